"""Building a program: forward code for inference and for training, backward code, and the places of all gradients.

The forward code for training also stores what the backward pass needs, preferably over input blocks that are dead by
then.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.abi import Buffer
from weft.cells import Cell
from weft.compiler.derive import (
    Derivative,
    derive,
    join_sums,
    with_expected_zoneout,
    with_recurrent_dropout,
    with_zoneout,
)
from weft.compiler.graph import Equations, Vector, Weight
from weft.compiler.lower import Code, Place, lower
from weft.compiler.trace import trace


class Forward(NamedTuple):
    """A block of a product: its weight, and the input block and vector that it is added to (-1: none)."""

    weight: Weight
    block: int
    vector: int  # row of the table of vectors


class ProductPlan(NamedTuple):
    """A product in the forward and the backward pass."""

    blocks: list[Forward]
    state: int  # the state that is its operand, or -1 if the operand is computed
    operand: Place  # where the backward pass reads the operand of all steps
    gradients: list[Place]  # where the backward pass reads the gradient of each block, of all steps


class Program(NamedTuple):
    """A compiled cell: what the engine needs to run it, and what Python needs to allocate its memory."""

    hidden_size: int
    blocks: int
    states: int
    vectors: list[Vector]
    vector_sums: list[tuple[int, ...]]  # further rows of the table of vectors: sums of the first ones
    input_vectors: list[tuple[int, int]]  # (block, vector): biases that are added to the input projection
    products: list[ProductPlan]
    extra: int  # blocks that a step stores in addition to those of the input
    input_sums: list[int]  # for each input block, the sum that is the gradient of its bias (-1: zero)
    vector_gradients: list[list[int]]  # for each vector, the sums that add up to its gradient
    sums: int
    d_products: int  # blocks of product gradients that are not also gradients of the input
    operands: int  # blocks of recomputed operands
    back_order: list[int]  # products, in the order of the backward pass
    run: Code
    train: Code
    back: Code
    kept: list[Place]  # of each value that the derivative keeps
    derivative: Derivative
    equations: Equations
    traced: Equations  # before sums were joined into products


class StepMasks(NamedTuple):
    """Which masks a step uses: a recurrent dropout mask on h, a zoneout mask, or the expected zoneout of evaluation."""

    recurrent_dropout: bool = False
    zoneout: bool = False
    expected_zoneout: float = 0.0


_NONE = StepMasks()


def program_of(cell: Cell, noise: StepMasks = _NONE) -> Program:
    """Compiles a cell.

    Args:
        cell: the cell; its current mode and Python attributes are compiled in.
        noise: the masks that the step uses.

    Raises:
        Untraceable: the step uses an operation that the engine does not have.
    """
    equations = trace(cell)
    if noise.recurrent_dropout:
        equations = with_recurrent_dropout(equations)
    if noise.zoneout:
        equations = with_zoneout(equations)
    if noise.expected_zoneout:
        equations = with_expected_zoneout(equations, noise.expected_zoneout)
    return compile_equations(equations)


def compile_equations(equations: Equations) -> Program:
    """Compiles traced equations: fuses sums, derives the backward pass, allocates storage, generates code."""
    traced, equations = equations, join_sums(equations)
    derivative = derive(equations)
    kept = _keep(equations, derivative)
    vector_sums, products, input_vectors = _products(equations, derivative, kept)
    sums, input_sums, vector_gradients = _sums(derivative)
    back, d_products, operands = _back(equations, derivative, kept, products, sums)
    return Program(
        hidden_size=equations.hidden_size,
        blocks=equations.blocks,
        states=len(equations.outputs),
        vectors=equations.vectors,
        vector_sums=vector_sums,
        input_vectors=input_vectors,
        products=products,
        extra=sum(place.buffer == Buffer.EXTRA for place in kept),
        input_sums=input_sums,
        vector_gradients=vector_gradients,
        sums=len(sums),
        d_products=d_products,
        operands=operands,
        back_order=derivative.order,
        run=_forward(equations, {}),
        train=_forward(equations, dict(zip(derivative.kept, kept, strict=True))),
        back=back,
        kept=kept,
        derivative=derivative,
        equations=equations,
        traced=traced,
    )


_LEAVES = {
    "x": Buffer.INPUT,
    "state": Buffer.STATE,
    "vector": Buffer.VECTORS,
    "step_mask": Buffer.STEP_MASK,
    "d_state": Buffer.D_STATE,
}


def _leaf_place(op: str, key: tuple[float, ...]) -> Place:
    if op == "product":
        return Place(Buffer.PRODUCT, int(key[0]), int(key[1]))
    if op == "d_operand":
        return Place(Buffer.D_OPERAND, int(key[0]), 0)
    if op in ("row_mask", "d_output"):
        return Place(Buffer.ROW_MASK if op == "row_mask" else Buffer.D_OUTPUT, 0, 0)
    return Place(_LEAVES[op], 0, int(key[0]))


def _forward_segment(op: str, key: tuple[float, ...]) -> int:
    return int(key[0]) + 1 if op == "product" else 0


def _forward(equations: Equations, kept: dict[int, Place]) -> Code:
    targets: dict[int, list[Place]] = {}
    for k, product in enumerate(equations.products):
        if equations.graph.nodes[product.operand].op != "state":
            targets.setdefault(product.operand, []).append(Place(Buffer.OPERAND, k, 0))
    for i, output in enumerate(equations.outputs):
        targets.setdefault(output, []).append(Place(Buffer.NEW_STATE, 0, i))
    for number, place in kept.items():
        targets.setdefault(number, []).append(place)
    targets[equations.outputs[0]].append(Place(Buffer.OUTPUT, 0, 0))
    return lower(equations.graph, _leaf_place, _forward_segment, len(equations.products) + 1, targets, [])


def _keep(equations: Equations, derivative: Derivative) -> list[Place]:
    """Allocates a place for every stored value: an input block that is dead by then, or an extra block (liveness)."""
    graph = equations.graph
    uses = graph.uses([*equations.outputs, *(p.operand for p in equations.products)])
    segment: dict[int, int] = {}
    last_read = dict.fromkeys(range(equations.blocks), (-1, -1))
    for number, node in enumerate(graph.nodes):
        if uses[number]:
            segment[number] = max([_forward_segment(node.op, node.key), *(segment[a] for a in node.args)])
    for number in segment:
        for arg in graph.nodes[number].args:
            if graph.nodes[arg].op == "x":
                g = int(graph.nodes[arg].key[0])
                # A fused multiplication is executed as late as its addition.
                later = [n for n in segment if number in graph.nodes[n].args] if graph.nodes[number].op == "mul" else []
                last_read[g] = max([last_read[g], *((segment[n], n) for n in [number, *later])])
    for k, product in enumerate(equations.products):
        for origin in product.origins:
            if origin.block >= 0:
                last_read[origin.block] = max(last_read[origin.block], (k, len(graph.nodes)))
    chosen: list[Place | None] = [None] * len(derivative.kept)
    free = set(range(equations.blocks))
    for n, number in enumerate(derivative.kept):
        node = graph.nodes[number]
        if node.op == "x":
            chosen[n] = Place(Buffer.GATES, 0, int(node.key[0]))
            free.discard(int(node.key[0]))
    extra = 0
    for n, number in enumerate(derivative.kept):
        if chosen[n] is None:
            written = (segment[number], number if graph.nodes[number].args else -1)
            fits = [g for g in sorted(free) if last_read[g] <= written and graph.nodes[number].op != "state"]
            if fits:
                free.discard(fits[0])
                chosen[n] = Place(Buffer.GATES, 0, fits[0])
            else:
                chosen[n] = Place(Buffer.EXTRA, 0, extra)
                extra += 1
    return [place for place in chosen if place is not None]


def _products(
    equations: Equations, derivative: Derivative, kept: list[Place]
) -> tuple[list[tuple[int, ...]], list[ProductPlan], list[tuple[int, int]]]:
    sums: list[tuple[int, ...]] = []
    input_vectors: list[tuple[int, int]] = []
    plans = []
    d_products: dict[int, int] = {}
    operands: dict[int, int] = {}
    for k, product in enumerate(equations.products):
        blocks, gradients = [], []
        for j, (weight, origin) in enumerate(zip(product.weights, product.origins, strict=True)):
            vector = -1
            if origin.block >= 0:
                input_vectors += [(origin.block, v) for v in origin.vectors]
            elif len(origin.vectors) == 1:
                vector = origin.vectors[0]
            elif origin.vectors:
                vector = len(equations.vectors) + len(sums)
                sums.append(origin.vectors)
            blocks.append(Forward(weight, origin.block, vector))
            gradient = derivative.products[k][j]
            if gradient in derivative.inputs:
                gradients.append(Place(Buffer.D_INPUT, 0, derivative.inputs.index(gradient)))
            else:
                gradients.append(Place(Buffer.D_PRODUCTS, 0, d_products.setdefault(gradient, len(d_products))))
        node = equations.graph.nodes[product.operand]
        if product.operand in derivative.kept:
            operand = kept[derivative.kept.index(product.operand)]
        else:
            operand = Place(Buffer.OPERANDS, 0, operands.setdefault(derivative.operands[k], len(operands)))
        plans.append(ProductPlan(blocks, int(node.key[0]) if node.op == "state" else -1, operand, gradients))
    return sums, plans, sorted(input_vectors)


def _sums(derivative: Derivative) -> tuple[list[int], list[int], list[list[int]]]:
    """Returns the nodes to sum over all rows and steps, and the sums that form the gradient of each bias and vector."""
    sums: list[int] = []

    def position(number: int) -> int:
        if derivative.graph.value_of(number) == 0:
            return -1
        if number not in sums:
            sums.append(number)
        return sums.index(number)

    input_sums = [position(number) for number in derivative.inputs]
    vectors = [[p for number in numbers if (p := position(number)) >= 0] for numbers in derivative.vectors]
    return sums, input_sums, vectors


def _back(
    equations: Equations, derivative: Derivative, kept: list[Place], plans: list[ProductPlan], sums: list[int]
) -> tuple[Code, int, int]:
    targets: dict[int, list[Place]] = {}

    def send(number: int, place: Place) -> None:
        if place not in targets.setdefault(number, []):
            targets[number].append(place)

    for k, plan in enumerate(plans):
        for j, place in enumerate(plan.gradients):
            send(derivative.products[k][j], Place(Buffer.D_PRODUCT, k, j))
            if place.buffer == Buffer.D_PRODUCTS:
                send(derivative.products[k][j], place)
        if plan.operand.buffer == Buffer.OPERANDS:
            send(derivative.operands[k], plan.operand)
    for g, number in enumerate(derivative.inputs):
        send(number, Place(Buffer.D_INPUT, 0, g))
    for i, number in enumerate(derivative.states):
        send(number, Place(Buffer.D_NEW_STATE, 0, i))

    def place_of(op: str, key: tuple[float, ...]) -> Place:
        return kept[int(key[0])] if op == "kept" else _leaf_place(op, key)

    def segment_of(op: str, key: tuple[float, ...]) -> int:
        return derivative.order.index(int(key[0])) + 1 if op == "d_operand" else 0

    code = lower(derivative.graph, place_of, segment_of, len(plans) + 1, targets, sums)
    used = [place for plan in plans for place in [*plan.gradients, plan.operand]]

    def count(buffer: Buffer) -> int:
        return len({place for place in used if place.buffer == buffer})

    return code, count(Buffer.D_PRODUCTS), count(Buffer.OPERANDS)
