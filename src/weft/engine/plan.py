"""A program loaded into the core, and how a cell's parameters and their gradients map to it."""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from array import array
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from weft import abi
from weft.abi import Buffer
from weft.cells import Cell
from weft.compiler import Program
from weft.engine.encode import encode
from weft.engine.library import check, loaded_library
from weft.errors import TensorError

_VERSION = f"weft::run_layer weft::run_layer_backward {abi.layout()} ".encode()


def reach(cell: Cell, path: Sequence[str]) -> Any:
    """The parameter of this name, possibly of a submodule."""
    value: Any = cell
    for part in path:
        value = getattr(value, part)
    return value


class Plan:
    """A program in the core. Parameters and gradients are in the order of `names`, weight_ih and bias_ih first."""

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
        self.kept_sizes = [
            program.blocks * program.hidden_size,
            program.extra * program.hidden_size,
        ]  # elements a token
        # Whether what is kept may be in bfloat16: weights that are read transposed have their operands elsewhere.
        self.keeps_half = not any(
            product.operand.buffer == Buffer.GATES or any(block.weight.turned for block in product.blocks)
            for product in program.products
        )
        # A hash of its content below 2^63: the same in every process. The operators and the layout are part of it,
        # since torch finds compiled graphs on disk by it, and those of another version call other operators.
        code = array("q", encode(program, self.names, self.shapes, handle=0))
        self.content_hash = int.from_bytes(hashlib.sha256(_VERSION + code.tobytes()).digest()[:8], "little") >> 1
        handle = ctypes.c_void_p()
        code = array("q", encode(program, self.names, self.shapes, ctypes.addressof(handle)))
        check(core.weft_new_program(code.tobytes()))
        assert handle.value is not None
        self.address: int = handle.value
        weakref.finalize(self, core.weft_free_program, self.address)

    def __deepcopy__(self, memo: Any) -> Plan:
        return self  # it never changes

    def parameters(self, cell: Cell) -> list[Tensor]:
        own, found = cell._parameters, []
        for name, path in zip(self.names, self._paths, strict=True):
            value = own.get(name)  # usually; else of a submodule, or computed by the cell's class
            if value is None:
                value = reach(cell, path)
            found.append(value if value.is_contiguous() else value.contiguous())
        if [value.shape for value in found] != self.shapes:  # one was replaced since the plan was made
            self.check_shapes(type(cell).__name__, found)
        return found

    def sources(self, cell: Cell, parameters: Sequence[Tensor]) -> list[tuple[dict[str, Any], str, Tensor]] | None:
        """Where the cell itself has these parameters; None if one is of a submodule, computed or a copy."""
        own = cell._parameters
        if any(own.get(name) is not value for name, value in zip(self.names, parameters, strict=True)):
            return None
        return [(own, name, value) for name, value in zip(self.names, parameters, strict=True)]

    def check_shapes(self, owner: str, found: Sequence[Tensor]) -> None:
        """Raises if a shape differs from the plan's; only the number of inputs may."""
        wanted = [(self.shapes[0][0], found[0].shape[-1]), *self.shapes[1:]]
        for name, value, shape in zip(self.names, found, wanted, strict=True):
            if value.shape != shape:
                raise TensorError(
                    f"{owner}: {name} is {tuple(value.shape)}",
                    expected=f"{tuple(shape)}, as at the cell's first run; make a new cell for another size",
                )
