"""Expressions on lanes: what one step of a cell computes, one row of H numbers at a time.

A graph is a list of nodes in the order of computation; a node's arguments are numbers of earlier nodes. Equal nodes
are one node, so a gradient that is used twice is computed once. Nothing here knows a cell or a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Node(NamedTuple):
    """One operation. For a leaf, `key` says which: the number of a gate block, of a state, of a vector, a constant."""

    op: str
    args: tuple[int, ...]
    key: tuple[float, ...]


# op -> how many arguments. `select` is where(a != 0, b, c); `mean` is the mean over a row, on every lane of it;
# `d_tanh` and `d_sigmoid` are (gradient, result) -> gradient; `stop` is its argument, and no gradient goes through it.
POINTWISE = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "maximum": 2, "minimum": 2, "lt": 2, "le": 2, "eq": 2,
    "neg": 1, "abs": 1, "sqrt": 1, "rsqrt": 1, "exp": 1, "log": 1, "tanh": 1, "sigmoid": 1, "relu": 1, "mean": 1,
    "select": 3, "multiply_add": 3, "d_tanh": 2, "d_sigmoid": 2, "stop": 1,
}  # fmt: skip
COSTLY = {"sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "div"}
COMPARISONS = {"lt", "le", "eq"}


@dataclass
class Graph:
    """Nodes in order; `leaf` and `apply` give the number of the node they make or find."""

    nodes: list[Node] = field(default_factory=list)
    uniform: set[int] = field(default_factory=set)  # nodes that are the same on all lanes of a row
    _known: dict[Node, int] = field(default_factory=dict)

    def leaf(self, op: str, *key: float) -> int:
        return self._number(Node(op, (), key))

    def constant(self, value: float) -> int:
        return self.leaf("constant", float(value))

    def apply(self, op: str, *args: int) -> int:
        assert len(args) == POINTWISE[op], op
        return self._simpler(op, args)

    def value_of(self, number: int) -> float | None:
        """The number behind a constant node."""
        node = self.nodes[number]
        return node.key[0] if node.op == "constant" else None

    def total(self, terms: list[int]) -> int:
        """The sum of some nodes; of none, zero."""
        result = self.constant(0.0) if not terms else terms[0]
        for term in terms[1:]:
            result = self.apply("add", result, term)
        return result

    def uses(self, results: list[int]) -> list[int]:
        """How often each node is used, by other live nodes and by the results."""
        counts = [0] * len(self.nodes)
        for number in results:
            counts[number] += 1
        for number in reversed(range(len(self.nodes))):
            if counts[number]:
                for arg in self.nodes[number].args:
                    counts[arg] += 1
        return counts

    def _simpler(self, op: str, args: tuple[int, ...]) -> int:
        """The identities that never change a result (x * 0 is not one of them: x may be NaN)."""
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
        return self._number(Node(op, args, ()))

    def _number(self, node: Node) -> int:
        if node not in self._known:
            self._known[node] = len(self.nodes)
            if node.op in ("constant", "mean") or (node.args and self.uniform.issuperset(node.args)):
                self.uniform.add(len(self.nodes))
            self.nodes.append(node)
        return self._known[node]


class Weight(NamedTuple):
    """H rows of a recurrent weight: of parameter `name`, from row `start` (from column `start` if `turned`)."""

    name: str
    start: int
    turned: bool


class Vector(NamedTuple):
    """H numbers of a parameter, the same for every row and step; with `single`, one number for all lanes."""

    name: str
    start: int
    single: bool


class Origin(NamedTuple):
    """What a block of a product is added to: a block of the input (-1 for none), and vectors."""

    block: int
    vectors: tuple[int, ...]


@dataclass
class Product:
    """An operand of H lanes times some weights of H rows each; block j is the leaf ("product", k, j)."""

    operand: int
    weights: list[Weight]
    origins: list[Origin]


@dataclass
class Equations:
    """One step of a cell: products in order of need, and the nodes that are the new state, h first."""

    graph: Graph
    products: list[Product]
    vectors: list[Vector]
    outputs: list[int]
    blocks: int
    hidden_size: int
