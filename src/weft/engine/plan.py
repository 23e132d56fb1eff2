"""A program loaded into the core, and how a cell's parameters and their gradients map to it."""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from weft.cells import Cell
from weft.compiler import Program
from weft.compiler.graph import Weight
from weft.compiler.lower import Place
from weft.engine.library import loaded_library
from weft.errors import WeftError


class WeightRun(NamedTuple):
    """Neighbouring rows (columns, if turned) of a weight whose gradient is one product."""

    product: int
    gradient: Place
    blocks: int
    weight: Weight


def reach(cell: Cell, path: Sequence[str]) -> Any:
    """The parameter of this name, or of a module within."""
    value: Any = cell
    for part in path:
        value = getattr(value, part)
    return value


class Plan:
    """A program in the core. Parameters come and gradients go in the order of `names`, weight_ih and bias_ih first."""

    def __init__(self, program: Program, cell: Cell) -> None:
        core = loaded_library()
        self.program = program
        names = ["weight_ih", "bias_ih"]
        names += [block.weight.name for product in program.products for block in product.blocks]
        names += [vector.name for vector in program.vectors]
        self.names = list(dict.fromkeys(names))
        self._paths = [name.split(".") for name in self.names]
        self.shapes = [reach(cell, path).shape for path in self._paths]
        self.states, self.hidden_size = program.states, program.hidden_size
        self.state_widths = [self.hidden_size] * self.states
        self.kept_size = (program.blocks + program.extra) * program.hidden_size  # numbers a token
        code = [*program.encode(), *self._bindings()]
        # What is in it, as a number below 2^63: the same wherever the same program is made.
        self.number = int.from_bytes(hashlib.sha256(array("q", code).tobytes()).digest()[:8], "little") >> 1
        self.address: int = core.weft_program((ctypes.c_int64 * len(code))(*code))
        weakref.finalize(self, core.weft_forget, self.address)

    def __deepcopy__(self, memo: Any) -> Plan:
        return self  # it never changes

    def parameters(self, cell: Cell) -> list[Tensor]:
        own, found = cell._parameters, []
        for name, path in zip(self.names, self._paths, strict=True):
            value = own.get(name)  # as a rule; else of a module within, or computed by the cell's class
            if value is None:
                value = reach(cell, path)
            found.append(value if value.is_contiguous() else value.contiguous())
        if [value.shape for value in found] != self.shapes:  # one was replaced since the plan was made
            self._check_shapes(cell, found)
        return found

    def _check_shapes(self, cell: Cell, found: Sequence[Tensor]) -> None:
        """Only the number of inputs may change: the core would read past the end."""
        wanted = [(self.shapes[0][0], found[0].shape[-1]), *self.shapes[1:]]
        for name, value, shape in zip(self.names, found, wanted, strict=True):
            if value.shape != shape:
                raise WeftError(
                    f"{type(cell).__name__}: {name} is {tuple(value.shape)}",
                    expected=f"{tuple(shape)}, as at the cell's first run; make a new cell for another size",
                )

    def _bindings(self) -> list[int]:
        """How parameters come into the program and gradients out of it, as the core reads it (core/code.hpp)."""
        program, at = self.program, {name: number for number, name in enumerate(self.names)}
        out = [len(self.shapes)]
        for shape in self.shapes:
            out += [shape.numel(), shape[-1] if shape else 1]
        out.append(len(program.vectors))
        for vector in program.vectors:
            out += [at[vector.name], vector.start, int(vector.single)]
        out += _lists(program.vector_sums)
        out += [len(program.input_vectors), *(number for pair in program.input_vectors for number in pair)]
        out += [program.extra, program.d_products, program.operands]
        for product in program.products:
            for block in product.blocks:
                out += [at[block.weight.name], block.weight.start, int(block.weight.turned)]
            out += product.operand
        runs = _weight_runs(program)
        out.append(len(runs))
        for run in runs:
            out += [run.product, *run.gradient, run.blocks]
            out += [at[run.weight.name], run.weight.start, int(run.weight.turned)]
        out += [len(program.input_sums), *program.input_sums]
        return out + _lists(program.vector_gradients)


def _lists(lists: Any) -> list[int]:
    out = [len(lists)]
    for numbers in lists:
        out += [len(numbers), *numbers]
    return out


def _weight_runs(program: Program) -> list[WeightRun]:
    H = program.hidden_size
    uses = Counter(block.weight for product in program.products for block in product.blocks)
    runs: list[WeightRun] = []
    for k, product in enumerate(program.products):
        for block, place in zip(product.blocks, product.gradients, strict=True):
            weight, before = block.weight, runs[-1] if runs else None
            if (
                before
                and before.product == k
                and before.weight._replace(start=before.weight.start + before.blocks * H) == weight
                and before.gradient._replace(block=before.gradient.block + before.blocks) == place
                # What is used twice is added up block by block.
                and uses[weight] == uses[before.weight] == 1
                and not weight.turned
            ):
                runs[-1] = before._replace(blocks=before.blocks + 1)
            else:
                runs.append(WeightRun(k, place, 1, weight))
    return runs
