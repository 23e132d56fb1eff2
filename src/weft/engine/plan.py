"""A program loaded into the core, and how a cell's parameters and their gradients map to it."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.cells import Cell
from weft.engine.library import loaded_library
from weft.program import Program
from weft.program.lower import VECTORS, Place


class BiasRun(NamedTuple):
    """Neighbouring vectors of one parameter that are added to the bias of the input projection."""

    column: int
    width: int  # in the bias
    name: str
    start: int
    length: int  # in the parameter: the width, or 1


class WeightRun(NamedTuple):
    """Neighbouring rows (columns, if turned) of a weight whose gradient is one product."""

    product: int
    gradient: Place
    blocks: int
    name: str
    start: int
    turned: bool


class Plan:
    """A program in the core. Parameters come and gradients go in the order of `names`, weight_ih and bias_ih first."""

    def __init__(self, program: Program) -> None:
        core = loaded_library()
        self.program = program
        code = program.encode()
        self.address: int = core.weft_program((ctypes.c_int64 * len(code))(*code))
        weakref.finalize(self, core.weft_forget, self.address)
        names = ["weight_ih", "bias_ih"]
        names += [block.weight.name for product in program.products for block in product.blocks]
        names += [vector.name for vector in program.vectors]
        self.names = list(dict.fromkeys(names))
        self.at = {name: i for i, name in enumerate(self.names)}
        self.bias_runs = _bias_runs(program)
        self.weight_runs = _weight_runs(program)
        self.input_width = program.blocks * program.hidden_size
        read = {place.buffer for code in (program.run, program.train, program.back) for place in code.places}
        begun = any(block.vector >= 0 for product in program.products for block in product.blocks)
        self.reads_vectors = begun or VECTORS in read
        self.whole_vectors = _whole_vectors(program)

    def __deepcopy__(self, memo: Any) -> Plan:
        return self  # it never changes

    def parameters(self, cell: Cell) -> list[Tensor]:
        found = []
        for name in self.names:
            value: Any = cell
            for part in name.split("."):
                value = getattr(value, part)
            found.append(value if value.is_contiguous() else value.contiguous())
        return found

    def input_bias(self, given: Sequence[Tensor]) -> Tensor:
        """bias_ih, and with it the recurrent biases that need no place of their own."""
        bias = given[1].detach()
        for column, width, name, start, length in self.bias_runs:
            piece = given[self.at[name]].detach().reshape(-1)[start : start + length]
            if width == self.input_width and length == width:
                bias = bias + piece
            else:
                bias = bias.clone()
                bias[column : column + width] += piece
        return bias

    def vectors(self, given: Sequence[Tensor]) -> Tensor | None:
        """The table of vectors, one row of H each."""
        program, H = self.program, self.program.hidden_size
        if not self.reads_vectors:
            return None
        table = given[0].new_empty(len(program.vectors) + len(program.vector_sums), H)
        for row, vector in enumerate(program.vectors):
            values = given[self.at[vector.name]].detach().reshape(-1)
            table[row] = values[vector.start] if vector.single else values[vector.start : vector.start + H]
        for row, numbers in enumerate(program.vector_sums, len(program.vectors)):
            table[row] = table[list(numbers)].sum(0)
        return table

    def weight_addresses(self, given: Sequence[Tensor]) -> list[int]:
        """Address, stride and orientation of every block of every product."""
        found = []
        for product in self.program.products:
            for block in product.blocks:
                weight = given[self.at[block.weight.name]]
                stride = weight.stride(0)
                offset = block.weight.start * (1 if block.weight.turned else stride) * weight.element_size()
                found += [weight.data_ptr() + offset, stride, int(block.weight.turned)]
        return found

    def vector_gradients(self, sums: Tensor, given: Sequence[Tensor], gradients: dict[str, Tensor]) -> None:
        """From sums over rows and steps (S, H) to gradients of bias_ih and of every parameter used as a vector."""
        program, H = self.program, self.program.hidden_size
        numbers = program.input_sums
        if numbers == list(range(program.blocks)):
            gradients["bias_ih"] = sums[: program.blocks].reshape(-1)
        else:
            bias = gradients["bias_ih"] = torch.zeros_like(given[1])
            for block, number in enumerate(numbers):
                if number >= 0:
                    bias[block * H : (block + 1) * H] = sums[number]
        for name, (first, count) in self.whole_vectors.items():
            parameter = given[self.at[name]]
            if parameter.numel() == count * H:
                gradients[name] = sums[first : first + count].reshape(parameter.shape)
        whole = set(gradients)
        for vector, parts in zip(program.vectors, program.vector_gradients, strict=True):
            if vector.name in whole:
                continue
            parameter = given[self.at[vector.name]]
            if vector.name not in gradients:
                gradients[vector.name] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            target = gradients[vector.name].view(-1)
            for number in parts:
                if vector.single:
                    target[vector.start] += sums[number].sum()
                else:
                    target[vector.start : vector.start + H] += sums[number]


def _whole_vectors(program: Program) -> dict[str, tuple[int, int]]:
    """Parameters whose vectors, in order, have neighbouring sums as their gradients: (the first sum, how many)."""
    H = program.hidden_size
    found: dict[str, tuple[int, int]] = {}
    broken: set[str] = set()
    for vector, parts in zip(program.vectors, program.vector_gradients, strict=True):
        first, count = found.get(vector.name, (parts[0] if parts else -1, 0))
        if vector.single or vector.start != count * H or parts != [first + count]:
            broken.add(vector.name)
        found[vector.name] = (first, count + 1)
    return {name: run for name, run in found.items() if name not in broken and name != "bias_ih"}


def _bias_runs(program: Program) -> list[BiasRun]:
    H = program.hidden_size
    runs: list[BiasRun] = []
    for block, number in program.input_vectors:
        vector = program.vectors[number]
        run = BiasRun(block * H, H, vector.name, vector.start, 1 if vector.single else H)
        before = runs[-1] if runs else None
        if before and before[:1] + before[2:4] == (run.column - before.width, run.name, run.start - before.width):
            runs[-1] = before._replace(width=before.width + H, length=before.length + H)
        else:
            runs.append(run)
    return runs


def _weight_runs(program: Program) -> list[WeightRun]:
    H = program.hidden_size
    runs: list[WeightRun] = []
    for k, product in enumerate(program.products):
        for block, place in zip(product.blocks, product.gradients, strict=True):
            run = WeightRun(k, place, 1, *block.weight)
            before = runs[-1] if runs and runs[-1].product == k and not run.turned else None
            if (
                before
                and (before.name, before.start + before.blocks * H, before.turned) == run[3:]
                and before.gradient._replace(block=before.gradient.block + before.blocks) == place
            ):
                runs[-1] = before._replace(blocks=before.blocks + 1)
            else:
                runs.append(run)
    return runs
