"""What the compiler makes of a cell, as text: step, graph, derivative and instructions.

`python -m weft.compiler CELL` prints it; docs/engine.md has that of the LSTM.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence

from weft.abi import Buffer, Op
from weft.cells import Cell
from weft.compiler.build import Program, program_of
from weft.compiler.graph import Graph, Node, Product, Vector, Weight
from weft.compiler.lower import Code, Instruction, Place

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "eq": "=="}
_WITH_PARTS = (Buffer.PRODUCT, Buffer.OPERAND, Buffer.D_PRODUCT, Buffer.D_OPERAND)  # one part for each product


def listing(cell: Cell) -> str:
    """Step, graph, derivative and instructions of a cell.

    Raises:
        Untraceable: the step uses an operation that the engine does not have.
    """
    program, states = program_of(cell), list(cell.state_type._fields)  # type: ignore[attr-defined]
    return "\n".join(_Listing(program, states, cell.hidden_size).lines(cell)) + "\n"


class _Listing:
    def __init__(self, program: Program, states: Sequence[str], hidden_size: int) -> None:
        self.program, self.states, self.H = program, states, hidden_size
        self.equations, self.derivative = program.equations, program.derivative
        self.forward = _names(self.equations.graph, "v", self._leaf, self._forward_results())
        self.backward = _names(self.derivative.graph, "g", self._leaf, self._backward_results())

    def lines(self, cell: Cell) -> Iterator[str]:
        yield (
            f"{type(cell).__name__}: {self.program.blocks} blocks x0, x1, ... of the projected input; state "
            + ", ".join(self.states)
        )
        yield from ("", "== step", "")
        yield textwrap.dedent(inspect.getsource(type(cell).step)).rstrip()
        yield from ("", "== graph: one step; a value is a vector of H", "")
        for k, product in enumerate(self.equations.products):
            yield from self._product(k, product)
        yield from _assignments(self.equations.graph, self.forward, self._forward_results())
        for name, number in zip(self.states, self.equations.outputs, strict=True):
            yield f"{name}' = {self.forward[number]}"
        yield from ("", "kept for the backward pass, of each step:")
        for number, place in zip(self.derivative.kept, self.program.kept, strict=True):
            yield f"{_place(place)} = {self.forward[number]}"
        yield from ("", "== derivative of one step", "")
        yield from _assignments(self.derivative.graph, self.backward, self._backward_results())
        for k, of_blocks in enumerate(self.derivative.products):
            for j, number in enumerate(of_blocks):
                yield f"d p{k}.{j} = {self.backward[number]}"
        for g, number in enumerate(self.derivative.inputs):
            yield f"d x{g} = {self.backward[number]}"
        for name, number in zip(self.states, self.derivative.states, strict=True):
            yield f"d {name} = {self.backward[number]}"
        for title, code, order in (
            ("inference", self.program.run, None),
            ("training", self.program.train, None),
            ("the backward pass", self.program.back, self.program.back_order),
        ):
            yield from ("", f"== instructions of {title}", "")
            yield from self._code(code, order)

    def _forward_results(self) -> list[int]:
        return [*self.equations.outputs, *(product.operand for product in self.equations.products)]

    def _backward_results(self) -> list[int]:
        found = [*self.derivative.inputs, *self.derivative.states]
        found += [number for of_blocks in self.derivative.products for number in of_blocks]
        recomputed = [plan.operand.buffer == Buffer.OPERANDS for plan in self.program.products]
        return found + [n for n, wanted in zip(self.derivative.operands, recomputed, strict=True) if wanted]

    def _leaf(self, node: Node) -> str:
        key = [int(part) for part in node.key] if node.op != "constant" else []
        if node.op == "constant":
            return f"{node.key[0]:g}"
        if node.op in ("state", "d_state"):
            return self.states[key[0]] if node.op == "state" else f"(d {self.states[key[0]]}')"
        if node.op == "vector":
            return self._vector(self.equations.vectors[key[0]])
        if node.op == "kept":
            return self.forward[self.derivative.kept[key[0]]]
        if node.op == "d_operand":
            return f"(d operand of p{key[0]})"
        names = {"x": "x{}", "product": "p{}.{}", "d_output": "(d output)", "row_mask": "row_mask"}
        return names.get(node.op, node.op + "{}").format(*key)

    def _vector(self, vector: Vector) -> str:
        return f"{vector.name}[{vector.start}]" if vector.single else f"{vector.name}[{self._block(vector.start)}]"

    def _block(self, start: int) -> str:
        first = start // self.H
        return f"{_times_h(first)}:{_times_h(first + 1)}"

    def _weight(self, weight: Weight) -> str:
        return f"{weight.name}[{':, ' if weight.turned else ''}{self._block(weight.start)}]"

    def _product(self, k: int, product: Product) -> Iterator[str]:
        for j, (weight, origin) in enumerate(zip(product.weights, product.origins, strict=True)):
            terms = [f"x{origin.block}"] if origin.block >= 0 else []
            terms += [self._vector(self.equations.vectors[v]) for v in origin.vectors]
            terms.append(f"{self._weight(weight)} @ {self.forward[product.operand]}")
            yield f"p{k}.{j} = {' + '.join(terms)}"

    def _code(self, code: Code, backward_order: Sequence[int] | None) -> Iterator[str]:
        """Segments of instructions, and the products between them."""
        order = range(len(self.program.products)) if backward_order is None else backward_order
        yield from self._segment(code, 0)
        for n, k in enumerate(order):
            plan = self.program.products[k]
            if backward_order is None:
                operand = Place(Buffer.STATE, 0, plan.state) if plan.state >= 0 else Place(Buffer.OPERAND, k, 0)
                yield f"product {k}: PRODUCT[{k}] = {_place(operand)} times {len(plan.blocks)} blocks of weights"
            else:
                weights = f"{len(plan.blocks)} blocks of weights, transposed"
                yield f"product {k}: D_OPERAND[{k}] = D_PRODUCT[{k}] times {weights}"
            yield from self._segment(code, n + 1)

    def _segment(self, code: Code, number: int) -> Iterator[str]:
        instructions = code.segments[number].instructions
        yield f"segment {number}:" + ("" if instructions else " nothing")
        for instruction in instructions:
            yield f"    {_instruction(code, instruction)}"


def _times_h(count: int) -> str:
    return "0" if count == 0 else "H" if count == 1 else f"{count}H"


def _names(graph: Graph, letter: str, leaf: Callable[[Node], str], results: list[int]) -> dict[int, str]:
    """What each live node is called: a leaf by what it is, another by its number."""
    names: dict[int, str] = {}
    count = 0
    for number, used in enumerate(graph.uses(results)):
        node = graph.nodes[number]
        if not node.args:
            names[number] = leaf(node)
        elif used:
            names[number] = f"{letter}{count}"
            count += 1
    return names


def _assignments(graph: Graph, names: dict[int, str], results: list[int]) -> Iterator[str]:
    for number, used in enumerate(graph.uses(results)):
        node = graph.nodes[number]
        if used and node.args:
            args = [names[arg] for arg in node.args]
            called = f" {_INFIX[node.op]} ".join(args) if node.op in _INFIX else f"{node.op}({', '.join(args)})"
            yield f"{names[number]} = {called}"


def _place(place: Place) -> str:
    part = f"[{place.part}]" if place.buffer in _WITH_PARTS else ""
    has_block = place.buffer not in (Buffer.OPERAND, Buffer.D_OPERAND, Buffer.OUTPUT, Buffer.D_OUTPUT)
    return f"{place.buffer.name}{part}" + (f"[{place.block}]" if has_block else "")


def _instruction(code: Code, instruction: Instruction) -> str:
    """An instruction with what its entries of the table stand for."""
    first_constant = len(code.places)
    first_sum = first_constant + len(code.constants)
    first_register = first_sum + code.sums

    def entry(number: int) -> str:
        if number < first_constant:
            return _place(code.places[number])
        if number < first_sum:
            return f"{code.constants[number - first_constant]:g}"
        return f"sum{number - first_sum}" if number < first_register else f"r{number - first_register}"

    args = " ".join(map(entry, instruction.args))
    if instruction.op is Op.accumulate:
        return f"{entry(instruction.target)} += {args}"
    return f"{entry(instruction.target)} = {'' if instruction.op is Op.copy else instruction.op.name + ' '}{args}"
