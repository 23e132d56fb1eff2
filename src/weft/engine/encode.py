"""A program as the core reads it: records one after the other, as weft/abi.py describes them at `ProgramHeader`."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from torch import Size

from weft.abi import (
    CodeHeader,
    InputVector,
    Instruction,
    ListHeader,
    Op,
    ParameterShape,
    Place,
    ProductBlock,
    ProductHeader,
    ProgramHeader,
    SegmentHeader,
    VectorSource,
    WeightGradient,
)
from weft.compiler import Program
from weft.compiler.graph import Weight
from weft.compiler.lower import Code
from weft.compiler.lower import Place as PlaceOfValue


class WeightRows(NamedTuple):
    """Neighbouring rows (columns, if transposed) of a weight whose gradient is one product."""

    product: int
    gradient: PlaceOfValue
    blocks: int
    weight: Weight


def encode(program: Program, names: Sequence[str], shapes: Sequence[Size], handle: int) -> list[int]:
    """A program whose parameters have these names and shapes; the core writes its handle to the address `handle`."""
    at, neighbours = {name: number for number, name in enumerate(names)}, _weight_rows(program)
    out: list[int] = [
        *ProgramHeader(
            hidden_size=program.hidden_size,
            blocks=program.blocks,
            states=program.states,
            products=len(program.products),
            backward_order=len(program.back_order),
            parameters=len(shapes),
            vectors=len(program.vectors),
            vector_sums=len(program.vector_sums),
            input_vectors=len(program.input_vectors),
            extra=program.extra,
            d_products=program.d_products,
            operands=program.operands,
            weight_gradients=len(neighbours),
            input_sums=len(program.input_sums),
            vector_gradients=len(program.vector_gradients),
            program=handle,
        )
    ]
    for product in program.products:
        out += ProductHeader(len(product.blocks), product.state, *product.operand)
        for weight, block, vector in product.blocks:
            out += ProductBlock(block, vector, at[weight.name], weight.start, weight.turned)
    out += program.back_order
    for code in (program.run, program.train, program.back):
        out += _encode_code(code)
    for shape in shapes:
        out += ParameterShape(shape.numel(), shape[-1] if shape else 1)
    for source in program.vectors:
        out += VectorSource(at[source.name], source.start, source.single)
    out += _encode_lists(program.vector_sums)
    for block, vector in program.input_vectors:
        out += InputVector(block, vector)
    for rows in neighbours:
        weight = rows.weight
        out += WeightGradient(rows.product, *rows.gradient, rows.blocks, at[weight.name], weight.start, weight.turned)
    return [*out, *program.input_sums, *_encode_lists(program.vector_gradients)]


def _encode_code(code: Code) -> list[int]:
    constants = len(code.constants)
    out: list[int] = [
        *CodeHeader(
            places=len(code.places),
            constants=constants,
            sums=code.sums,
            registers=code.registers,
            segments=len(code.segments),
            whole_rows=any(i.op in (Op.mean, Op.mean_product) for s in code.segments for i in s.instructions),
        )
    ]
    for place in code.places:
        out += Place(*place)
    out += struct.unpack(f"{constants}q", struct.pack(f"{constants}d", *code.constants))
    for segment in code.segments:
        out += SegmentHeader(len(segment.loads), len(segment.stores), len(segment.instructions))
        out += [*segment.loads, *segment.stores]
        for op, target, args, uniform in segment.instructions:
            out += Instruction(op, uniform, target, *args, *[0] * (3 - len(args)))
    return out


def _encode_lists(lists: Sequence[Sequence[int]]) -> list[int]:
    out: list[int] = []
    for indices in lists:
        out += [*ListHeader(len(indices)), *indices]
    return out


def _weight_rows(program: Program) -> list[WeightRows]:
    H = program.hidden_size
    uses = Counter(block.weight for product in program.products for block in product.blocks)
    found: list[WeightRows] = []
    for k, product in enumerate(program.products):
        for block, place in zip(product.blocks, product.gradients, strict=True):
            weight, before = block.weight, found[-1] if found else None
            if (
                before
                and before.product == k
                and before.weight._replace(start=before.weight.start + before.blocks * H) == weight
                and before.gradient._replace(block=before.gradient.block + before.blocks) == place
                # What is used twice is added up block by block.
                and uses[weight] == uses[before.weight] == 1
                and not weight.turned
            ):
                found[-1] = before._replace(blocks=before.blocks + 1)
            else:
                found.append(WeightRows(k, place, 1, weight))
    return found
