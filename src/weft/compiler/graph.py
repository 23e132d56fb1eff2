"""The intermediate representation: a graph of pointwise operations on vectors of H lanes.

A graph is a list of nodes in topological order; the arguments of a node are indices of earlier nodes. Equal nodes are
merged (common subexpression elimination), so a value that is used twice is computed once. The graph knows neither cells
nor tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Node(NamedTuple):
    """An operation. A leaf has no arguments; its `key` is the index of a gate block, state or vector, or a constant."""

    op: str
    args: tuple[int, ...]
    key: tuple[float, ...]


# operation -> number of arguments. `select` is where(a != 0, b, c); `mean` is the mean over the lanes, on every lane;
# `d_tanh` and `d_sigmoid` map (gradient, result) to the argument's gradient; `stop` is the identity without gradient.
POINTWISE = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "maximum": 2, "minimum": 2, "lt": 2, "le": 2, "eq": 2,
    "neg": 1, "abs": 1, "sqrt": 1, "rsqrt": 1, "exp": 1, "log": 1, "tanh": 1, "sigmoid": 1, "relu": 1, "mean": 1,
    "select": 3, "multiply_add": 3, "d_tanh": 2, "d_sigmoid": 2, "stop": 1,
}  # fmt: skip
COSTLY = {"sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "div"}


@dataclass
class Graph:
    """Nodes in topological order. `leaf` and `apply` return the index of a new or an existing equal node."""

    nodes: list[Node] = field(default_factory=list)
    uniform: set[int] = field(default_factory=set)  # nodes with the same value on all lanes
    _known: dict[Node, int] = field(default_factory=dict)

    def leaf(self, op: str, *key: float) -> int:
        """Returns the leaf with that key."""
        return self._add(Node(op, (), key))

    def constant(self, value: float) -> int:
        """Returns the constant."""
        return self.leaf("constant", float(value))

    def apply(self, op: str, *args: int) -> int:
        """Returns the result of an operation on nodes, simplified."""
        assert len(args) == POINTWISE[op], op
        return self._simplify(op, args)

    def value_of(self, number: int) -> float | None:
        """Returns the value of a constant node, or None."""
        node = self.nodes[number]
        return node.key[0] if node.op == "constant" else None

    def total(self, terms: list[int]) -> int:
        """Returns the sum of the nodes; zero for an empty list."""
        result = self.constant(0.0) if not terms else terms[0]
        for term in terms[1:]:
            result = self.apply("add", result, term)
        return result

    def uses(self, results: list[int]) -> list[int]:
        """Counts the uses of each node by live nodes and by the results; 0 means dead code."""
        counts = [0] * len(self.nodes)
        for number in results:
            counts[number] += 1
        for number in reversed(range(len(self.nodes))):
            if counts[number]:
                for arg in self.nodes[number].args:
                    counts[arg] += 1
        return counts

    def _simplify(self, op: str, args: tuple[int, ...]) -> int:
        """Applies algebraic identities that are exact (x * 0 = 0 is not: x may be NaN)."""
        values = [self.value_of(arg) for arg in args]
        if op == "add" and 0.0 in values:
            return args[1 - values.index(0.0)]
        if op == "mul" and 1.0 in values:
            return args[1 - values.index(1.0)]
        if op in ("sub", "div") and values[1] == (0.0 if op == "sub" else 1.0):
            return args[0]
        if op == "select" and args[1] == args[2]:
            return args[1]
        if op == "neg" and self.nodes[args[0]].op == "neg":
            return self.nodes[args[0]].args[0]
        if op == "add" and self.nodes[args[1]].op == "neg":
            return self.apply("sub", args[0], self.nodes[args[1]].args[0])
        if op in ("add", "mul"):
            args = (min(args), max(args))
        return self._add(Node(op, args, ()))

    def _add(self, node: Node) -> int:
        if node not in self._known:
            self._known[node] = len(self.nodes)
            if node.op in ("constant", "mean") or (node.args and self.uniform.issuperset(node.args)):
                self.uniform.add(len(self.nodes))
            self.nodes.append(node)
        return self._known[node]


class Weight(NamedTuple):
    """H rows of the parameter `name` from row `start`; H columns from column `start` if `turned` (transposed)."""

    name: str
    start: int
    turned: bool


class Vector(NamedTuple):
    """H elements of a parameter, broadcast over rows and steps; with `single`, one element for all lanes."""

    name: str
    start: int
    single: bool


class Origin(NamedTuple):
    """What a block of a product is added to: a block of the input projection (-1: none), and vectors (biases)."""

    block: int
    vectors: tuple[int, ...]


@dataclass
class Product:
    """Product k: an operand of H lanes times blocks of weights. Block j of its result is the leaf ("product", k, j)."""

    operand: int
    weights: list[Weight]
    origins: list[Origin]


@dataclass
class Equations:
    """One step of a cell: the graph, the products in order of execution, and the nodes of the new state, h first."""

    graph: Graph
    products: list[Product]
    vectors: list[Vector]
    outputs: list[int]
    blocks: int
    hidden_size: int
