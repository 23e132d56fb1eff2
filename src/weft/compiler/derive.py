"""Transformations of equations: fused sums, dropout and zoneout masks, and the derivative.

The derivative is reverse-mode automatic differentiation of one step. It also decides what the forward pass stores:
results of expensive functions and of products are stored; values that follow from them by cheap arithmetic are
recomputed (rematerialisation). Two kinds of expensive functions are recomputed as well, because storing them would cost
more: a function of a new state (tanh(c') of the LSTM), and values that are uniform over the lanes (the inverse root of
a norm).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.compiler.graph import COSTLY, Equations, Graph, Node, Origin, Product


def join_sums(equations: Equations) -> Equations:
    """Fuses W x + U h + b into one leaf: the product accumulates onto the input block, the bias joins the input bias.

    It applies only if nothing else uses the parts (the candidate of the GRU needs U h separately).
    """
    old = equations.graph
    operands = [product.operand for product in equations.products]
    uses = old.uses([*equations.outputs, *operands])
    terms_of: dict[int, list[int]] = {}
    inner: set[int] = set()
    for number in reversed(range(len(old.nodes))):
        if old.nodes[number].op == "add" and uses[number] and number not in inner:
            terms_of[number] = _terms(old, number, uses, inner)

    new, renamed = Graph(), dict[int, int]()
    products = [Product(-1, list(p.weights), list(p.origins)) for p in equations.products]
    for number in range(len(old.nodes)):
        if not uses[number] or number in inner:
            continue
        if number in terms_of:
            terms = _absorb(old, terms_of[number], uses, products)
            renamed[number] = new.total([_copy(new, old, renamed, term) for term in terms])
        else:
            renamed[number] = _copy(new, old, renamed, number)
    for product, operand in zip(products, operands, strict=True):
        product.operand = renamed[operand]
    outputs = [renamed[number] for number in equations.outputs]
    return Equations(new, products, equations.vectors, outputs, equations.blocks, equations.hidden_size)


def _terms(graph: Graph, number: int, uses: list[int], inner: set[int]) -> list[int]:
    """Returns the terms of a tree of additions whose inner sums have no other use."""
    found = []
    for arg in graph.nodes[number].args:
        if graph.nodes[arg].op == "add" and uses[arg] == 1:
            inner.add(arg)
            found += _terms(graph, arg, uses, inner)
        else:
            found.append(arg)
    return found


def _absorb(graph: Graph, terms: list[int], uses: list[int], products: list[Product]) -> list[int]:
    """Fuses the input block and the bias into a product. Returns the remaining terms."""

    def alone(op: str) -> list[int]:
        return [t for t in terms if graph.nodes[t].op == op and (uses[t] == 1 or op == "vector")]

    found, blocks, vectors = alone("product"), alone("x"), alone("vector")
    if not found:
        return terms
    taken = blocks[:1] + vectors
    k, j = (int(n) for n in graph.nodes[found[0]].key)
    block = int(graph.nodes[blocks[0]].key[0]) if blocks else -1
    products[k].origins[j] = Origin(block, tuple(int(graph.nodes[v].key[0]) for v in vectors))
    return [t for t in terms if t not in taken]


def _copy(new: Graph, old: Graph, renamed: dict[int, int], number: int) -> int:
    if number not in renamed:
        node = old.nodes[number]
        args = [renamed[a] for a in node.args]
        renamed[number] = new.apply(node.op, *args) if args else new.leaf(node.op, *node.key)
    return renamed[number]


def with_recurrent_dropout(equations: Equations) -> Equations:
    """Multiplies h by the leaf ("row_mask",) inside the operands of products, and nowhere else."""
    graph, renamed = Graph(), dict[int, int]()
    for number in range(len(equations.graph.nodes)):
        _copy(graph, equations.graph, renamed, number)
    products = [_masked(graph, Product(renamed[p.operand], p.weights, p.origins)) for p in equations.products]
    outputs = [renamed[number] for number in equations.outputs]
    graph, moved = _topological_order(graph, products, outputs)
    outputs = [moved[number] for number in outputs]
    return replace(equations, graph=graph, products=products, outputs=outputs)


def with_zoneout(equations: Equations) -> Equations:
    """Adds zoneout: a unit of state i keeps its previous value where the leaf ("step_mask", i) is not zero."""
    graph = equations.graph
    outputs = [
        graph.apply("select", graph.leaf("step_mask", i), graph.leaf("state", i), output)
        for i, output in enumerate(equations.outputs)
    ]
    return replace(equations, outputs=outputs)


def with_expected_zoneout(equations: Equations, rate: float) -> Equations:
    """Adds the expectation of zoneout, for evaluation mode: rate * old + (1 - rate) * new."""
    graph = equations.graph
    outputs = []
    for i, output in enumerate(equations.outputs):
        old = graph.apply("mul", graph.constant(rate), graph.leaf("state", i))
        outputs.append(graph.apply("add", old, graph.apply("mul", graph.constant(1 - rate), output)))
    return replace(equations, outputs=outputs)


def _masked(graph: Graph, product: Product) -> Product:
    """Replaces h by h * mask inside the operand of a product."""
    h, mask = graph.leaf("state", 0), graph.leaf("row_mask")
    renamed = {h: graph.apply("mul", h, mask)}

    def swap(number: int) -> int:
        if number not in renamed:
            node = graph.nodes[number]
            renamed[number] = graph.apply(node.op, *(swap(a) for a in node.args)) if node.args else number
        return renamed[number]

    return Product(swap(product.operand), product.weights, product.origins)


def _topological_order(graph: Graph, products: list[Product], outputs: list[int]) -> tuple[Graph, dict[int, int]]:
    """Reorders the nodes so that every operand precedes the blocks of its product."""
    new, renamed = Graph(), dict[int, int]()

    def visit(number: int) -> None:
        if number in renamed:
            return
        node = graph.nodes[number]
        if node.op == "product":
            visit(products[int(node.key[0])].operand)
        for arg in node.args:
            visit(arg)
        _copy(new, graph, renamed, number)

    for number in outputs:
        visit(number)
    for product in products:
        visit(product.operand)
        product.operand = renamed[product.operand]
    return new, renamed


@dataclass
class Derivative:
    """The equations of the backward pass of one step.

    Its leaves are the stored forward values ("kept", n), the gradients of the new state ("d_state", i) and of the
    output ("d_output"), and the gradient of each product's operand ("d_operand", k), which the backward product
    computes.
    """

    graph: Graph
    kept: list[int]  # stored nodes of the forward graph; states may be among them
    order: list[int]  # products, in the order in which their gradients are available
    products: list[list[int]]  # for each product, the gradients of its blocks
    operands: list[int]  # for each product, its recomputed operand
    inputs: list[int]  # gradients of the blocks of the input projection
    states: list[int]  # gradients of the previous state
    vectors: list[list[int]]  # for each vector, the nodes whose sum over rows and steps is its gradient


def derive(equations: Equations) -> Derivative:
    """Derives the backward pass of one step by reverse-mode differentiation."""
    forward, back = equations.graph, Graph()
    kept: dict[int, int] = {}
    plan = _StoragePlan(equations)
    fetched: dict[int, int] = {}

    def fetch(number: int) -> int:
        """Returns the node of the backward graph that holds a forward value: stored or recomputed."""
        if number not in fetched:
            node = forward.nodes[number]
            if node.op in _FREE:
                fetched[number] = back.leaf(node.op, *node.key)
            elif number in plan.keep:
                kept.setdefault(number, len(kept))
                fetched[number] = back.leaf("kept", kept[number])
                if number in forward.uniform:
                    back.uniform.add(fetched[number])
            else:
                fetched[number] = back.apply(node.op, *(fetch(a) for a in node.args))
        return fetched[number]

    gradients: dict[int, list[int]] = {}
    for i, number in enumerate(equations.outputs):
        gradients.setdefault(number, []).append(back.leaf("d_state", i))
        if i == 0:
            gradients[number].append(back.leaf("d_output"))

    first_block: dict[int, int] = {}  # product -> its first leaf; in reverse order, all its gradients are known there
    for number, node in enumerate(forward.nodes):
        if node.op == "product":
            first_block.setdefault(int(node.key[0]), number)
    product_gradients = [[-1] * len(p.weights) for p in equations.products]
    order = []
    leaves: dict[Node, int] = {}
    for number in reversed(range(len(forward.nodes))):
        node = forward.nodes[number]
        if number in gradients:
            total = back.total(gradients[number])
            if node.args:
                for arg, gradient in _gradients(back, node, fetch, number, total):
                    gradients.setdefault(arg, []).append(gradient)
            else:
                leaves[node] = total
        if node.op == "product" and first_block[k := int(node.key[0])] == number:
            for j in range(len(product_gradients[k])):
                product_gradients[k][j] = leaves.get(Node("product", (), (k, j)), back.constant(0))
            order.append(k)
            gradients.setdefault(equations.products[k].operand, []).append(back.leaf("d_operand", k))

    order += [k for k in range(len(equations.products)) if k not in order]  # unused products
    inputs = [leaves.get(Node("x", (), (g,)), -1) for g in range(equations.blocks)]
    vectors = [[leaves[n]] if (n := Node("vector", (), (v,))) in leaves else [] for v in range(len(equations.vectors))]
    for k, product in enumerate(equations.products):
        for j, origin in enumerate(product.origins):
            if origin.block >= 0:
                inputs[origin.block] = product_gradients[k][j]
            for v in origin.vectors:
                vectors[v].append(product_gradients[k][j])
    zero = back.constant(0)
    operands = [fetch(p.operand) for p in equations.products]
    return Derivative(
        back,
        list(kept),
        order,
        product_gradients,
        operands,
        [zero if number < 0 else number for number in inputs],
        [leaves.get(Node("state", (), (i,)), zero) for i in range(len(equations.outputs))],
        vectors,
    )


_FREE = {"constant", "vector", "row_mask", "step_mask"}


class _StoragePlan:
    """Decides which forward values are stored for the backward pass."""

    def __init__(self, equations: Equations) -> None:
        graph = equations.graph
        needed = {p.operand for p in equations.products}
        for number in _live(equations):
            needed |= _needed_by(graph.nodes[number], number)
        self.keep: set[int] = set()
        self._graph, self._outputs = graph, set(equations.outputs)
        for number in sorted(needed):
            if not self._is_cheap(number):
                self.keep.add(number)

    def _is_cheap(self, number: int) -> bool:
        """Whether a value can be recomputed from stored ones by cheap arithmetic."""
        node = self._graph.nodes[number]
        if node.op in _FREE or number in self.keep:
            return True
        costly = node.op in COSTLY and number not in self._graph.uniform
        if not node.args or (costly and node.args[0] not in self._outputs):
            return False
        return all(self._is_cheap(arg) for arg in node.args)


def _live(equations: Equations) -> list[int]:
    uses = equations.graph.uses([*equations.outputs, *(p.operand for p in equations.products)])
    return [number for number, count in enumerate(uses) if count and equations.graph.nodes[number].args]


def _needed_by(node: Node, number: int) -> set[int]:
    """Returns the forward values that the derivative of a node uses."""
    a = node.args
    if node.op in ("mul", "maximum", "minimum"):
        return set(a)
    if node.op == "div":
        return {a[1], number}
    if node.op in ("tanh", "sigmoid", "exp", "sqrt", "rsqrt", "relu"):
        return {number}
    if node.op in ("log", "abs", "select"):
        return {a[0]}
    return set()


def _gradients(g: Graph, node: Node, fetch, number: int, d: int) -> list[tuple[int, int]]:  # type: ignore[no-untyped-def]
    """Returns (argument, gradient) pairs of a node whose result has the gradient d."""
    op, a = node.op, node.args
    if op == "add":
        return [(a[0], d), (a[1], d)]
    if op == "sub":
        return [(a[0], d), (a[1], g.apply("neg", d))]
    if op == "mul":
        return [(a[0], g.apply("mul", d, fetch(a[1]))), (a[1], g.apply("mul", d, fetch(a[0])))]
    if op == "div":
        part = g.apply("div", d, fetch(a[1]))
        return [(a[0], part), (a[1], g.apply("neg", g.apply("mul", part, fetch(number))))]
    if op in ("maximum", "minimum"):  # equal arguments share the gradient, as in torch
        x, y = (fetch(a[0]), fetch(a[1])) if op == "maximum" else (fetch(a[1]), fetch(a[0]))
        share = g.apply("select", g.apply("eq", x, y), g.constant(0.5), g.apply("lt", y, x))
        left = g.apply("mul", d, share)
        return [(a[0], left), (a[1], g.apply("sub", d, left))]
    if op == "select":
        zero, c = g.constant(0), fetch(a[0])
        return [(a[1], g.apply("select", c, d, zero)), (a[2], g.apply("select", c, zero, d))]
    if op in ("tanh", "sigmoid"):
        return [(a[0], g.apply("d_" + op, d, fetch(number)))]
    if op == "relu":
        return [(a[0], g.apply("select", g.apply("lt", g.constant(0), fetch(number)), d, g.constant(0)))]
    if op == "exp":
        return [(a[0], g.apply("mul", d, fetch(number)))]
    if op == "log":
        return [(a[0], g.apply("div", d, fetch(a[0])))]
    if op == "sqrt":
        return [(a[0], g.apply("div", d, g.apply("mul", g.constant(2), fetch(number))))]
    if op == "rsqrt":
        y = fetch(number)
        return [(a[0], g.apply("mul", g.apply("mul", g.constant(-0.5), d), g.apply("mul", y, g.apply("mul", y, y))))]
    if op == "abs":
        x, zero = fetch(a[0]), g.constant(0)
        sign = g.apply("sub", g.apply("lt", zero, x), g.apply("lt", x, zero))
        return [(a[0], g.apply("mul", d, sign))]
    if op == "neg":
        return [(a[0], g.apply("neg", d))]
    if op == "mean":  # the mean over lanes is its own transpose
        return [(a[0], _mean(g, d))]
    assert op in ("lt", "le", "eq", "stop"), op
    return []


def _mean(g: Graph, d: int) -> int:
    """Returns the mean over lanes, with uniform factors moved out of it."""
    node = g.nodes[d]
    if d in g.uniform:
        return d
    if node.op == "neg":
        return g.apply("neg", _mean(g, node.args[0]))
    if node.op == "mul":
        for factor, rest in (node.args, node.args[::-1]):
            if factor in g.uniform:
                return g.apply("mul", factor, _mean(g, rest))
    return g.apply("mean", d)
