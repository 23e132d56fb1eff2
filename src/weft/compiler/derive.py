"""From equations to equations: sums joined to products, masks put in, and the derivative.

The derivative is reverse mode over one step. It decides what the forward run must keep: results of costly functions
and of products are kept, what follows from them by cheap arithmetic is computed again, and so are one costly
function of a new state (the LSTM's tanh(c')) and those that are the same on all lanes (a norm's inverse root),
because the memory would cost more than the function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.compiler.graph import COSTLY, Equations, Graph, Node, Origin, Product


def join_sums(equations: Equations) -> Equations:
    """W x + U h + b becomes one leaf: the product is added on top of the input block, the bias goes to the input's.

    Only where nothing else uses the parts (the GRU's candidate needs U h by itself).
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
    """The leaves of a tree of additions none of whose inner sums is used elsewhere."""
    found = []
    for arg in graph.nodes[number].args:
        if graph.nodes[arg].op == "add" and uses[arg] == 1:
            inner.add(arg)
            found += _terms(graph, arg, uses, inner)
        else:
            found.append(arg)
    return found


def _absorb(graph: Graph, terms: list[int], uses: list[int], products: list[Product]) -> list[int]:
    """The terms that are left when a product has taken in its input block and its bias."""

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
    """Products see h times the leaf ("row_mask",), the same for all steps of a row; the rest sees h itself."""
    graph, renamed = Graph(), dict[int, int]()
    for number in range(len(equations.graph.nodes)):
        _copy(graph, equations.graph, renamed, number)
    products = [_masked(graph, Product(renamed[p.operand], p.weights, p.origins)) for p in equations.products]
    outputs = [renamed[number] for number in equations.outputs]
    graph, moved = _sorted_by_need(graph, products, outputs)
    outputs = [moved[number] for number in outputs]
    return replace(equations, graph=graph, products=products, outputs=outputs)


def with_zoneout(equations: Equations) -> Equations:
    """A unit of a state keeps its old value where the leaf ("step_mask", i) is not zero."""
    graph = equations.graph
    outputs = [
        graph.apply("select", graph.leaf("step_mask", i), graph.leaf("state", i), output)
        for i, output in enumerate(equations.outputs)
    ]
    return replace(equations, outputs=outputs)


def with_expected_zoneout(equations: Equations, rate: float) -> Equations:
    """What zoneout gives on average, for use after training: rate * old + (1 - rate) * new."""
    graph = equations.graph
    outputs = []
    for i, output in enumerate(equations.outputs):
        old = graph.apply("mul", graph.constant(rate), graph.leaf("state", i))
        outputs.append(graph.apply("add", old, graph.apply("mul", graph.constant(1 - rate), output)))
    return replace(equations, outputs=outputs)


def _masked(graph: Graph, product: Product) -> Product:
    """The product with h replaced by h * mask inside its operand."""
    h, mask = graph.leaf("state", 0), graph.leaf("row_mask")
    renamed = {h: graph.apply("mul", h, mask)}

    def swap(number: int) -> int:
        if number not in renamed:
            node = graph.nodes[number]
            renamed[number] = graph.apply(node.op, *(swap(a) for a in node.args)) if node.args else number
        return renamed[number]

    return Product(swap(product.operand), product.weights, product.origins)


def _sorted_by_need(graph: Graph, products: list[Product], outputs: list[int]) -> tuple[Graph, dict[int, int]]:
    """The same nodes, with every operand before the blocks of its product."""
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
    """The equations of one step backward. Its leaves are what the forward run kept, ("kept", n), the gradients of the
    new state and the output, and of each product's operand as the products before it in time give it."""

    graph: Graph
    kept: list[int]  # nodes of the forward graph, state leaves among them
    order: list[int]  # products, in the order their gradients are known
    products: list[list[int]]  # for each product the gradients of its blocks
    operands: list[int]  # for each product its operand, computed again
    inputs: list[int]  # gradients of the blocks of the projected input
    states: list[int]  # gradients of the state before
    vectors: list[list[int]]  # for each vector the nodes whose sum over rows and steps is its gradient


def derive(equations: Equations) -> Derivative:
    forward, back = equations.graph, Graph()
    kept: dict[int, int] = {}
    plan = _Plan(equations)
    fetched: dict[int, int] = {}

    def fetch(number: int) -> int:
        """The node of the backward graph that holds a forward value."""
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

    first_block: dict[int, int] = {}  # product -> the first of its leaves: there all its gradients are known
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
                for arg, gradient in _back_through(back, node, fetch, number, total):
                    gradients.setdefault(arg, []).append(gradient)
            else:
                leaves[node] = total
        if node.op == "product" and first_block[k := int(node.key[0])] == number:
            for j in range(len(product_gradients[k])):
                product_gradients[k][j] = leaves.get(Node("product", (), (k, j)), back.constant(0))
            order.append(k)
            gradients.setdefault(equations.products[k].operand, []).append(back.leaf("d_operand", k))

    order += [k for k in range(len(equations.products)) if k not in order]  # products that nothing uses
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


class _Plan:
    """Which forward values are kept for the way back."""

    def __init__(self, equations: Equations) -> None:
        graph = equations.graph
        needed = {p.operand for p in equations.products}
        for number in _reached(equations):
            needed |= _needed_by(graph.nodes[number], number)
        self.keep: set[int] = set()
        self._graph, self._outputs = graph, set(equations.outputs)
        for number in sorted(needed):
            if not self._follows(number):
                self.keep.add(number)

    def _follows(self, number: int) -> bool:
        """Whether a value follows from kept ones by cheap arithmetic."""
        node = self._graph.nodes[number]
        if node.op in _FREE or number in self.keep:
            return True
        costly = node.op in COSTLY and number not in self._graph.uniform
        if not node.args or (costly and node.args[0] not in self._outputs):
            return False
        return all(self._follows(arg) for arg in node.args)


def _reached(equations: Equations) -> list[int]:
    uses = equations.graph.uses([*equations.outputs, *(p.operand for p in equations.products)])
    return [number for number, count in enumerate(uses) if count and equations.graph.nodes[number].args]


def _needed_by(node: Node, number: int) -> set[int]:
    """The forward values in a node's derivative."""
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


def _back_through(g: Graph, node: Node, fetch, number: int, d: int) -> list[tuple[int, int]]:  # type: ignore[no-untyped-def]
    """(argument, gradient) pairs of one node whose result has the gradient d."""
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
    if op in ("maximum", "minimum"):  # equal arguments share the gradient, as torch has it
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
    """The mean over lanes; what is the same on all of them is taken out of it."""
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
