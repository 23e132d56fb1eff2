"""Cells with int8 weights: a weight is stored as whole numbers with a scale for each row, and reads as float32.

The core rounds what it reads to the same whole numbers again, so nothing is lost on the way.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from weft.cells import Cell
from weft.errors import WeftError


def is_quantized(cell: Cell) -> bool:
    """Whether the cell's weights are int8."""
    return getattr(cell, "quantized", ()) != ()


def quantize_cell(cell: Cell) -> None:
    """Replaces the cell's weights by int8 ones, in place."""
    names = [name for name, value in cell._parameters.items() if value is not None and value.dim() == 2]
    for name in names:
        weight = cell._parameters.pop(name)
        assert weight is not None
        if weight.dtype is not torch.float32 or not weight.is_cpu:
            raise WeftError(
                f"quantize: {type(cell).__name__}.{name} is {weight.dtype} on {weight.device}",
                expected="float32 on the CPU",
            )
        largest = weight.detach().abs().amax(1, keepdim=True)
        inverse = torch.where(largest > 0, 127 / largest, 0)
        cell.register_buffer(f"{name}_int8", (weight.detach() * inverse).round().to(torch.int8))
        cell.register_buffer(f"{name}_scale", largest / 127)
    cell.__class__ = _quantized_class(type(cell), tuple(names))


@cache
def _quantized_class(kind: type[Cell], names: tuple[str, ...]) -> type[Cell]:
    """The cell's class with weights that are computed from int8."""

    def weight(name: str) -> property:
        def get(cell: Any) -> Tensor:
            return cell._buffers[f"{name}_int8"] * cell._buffers[f"{name}_scale"]  # type: ignore[no-any-return]

        return property(get)

    def reduce(cell: Any) -> Any:
        return _restore, (kind, names), cell.__getstate__()

    return type(
        kind.__name__, (kind,), {**{name: weight(name) for name in names}, "quantized": names, "__reduce__": reduce}
    )


def _restore(kind: type[Cell], names: tuple[str, ...]) -> Cell:
    """An empty cell, for pickle and deepcopy."""
    made = _quantized_class(kind, names)
    return made.__new__(made)


def float_copy(cell: Cell) -> Cell:
    """A copy of a cell with float32 weights, quantized or not."""
    copied = copy.deepcopy(cell)
    names: tuple[str, ...] = getattr(copied, "quantized", ())
    if names:
        weights = {name: getattr(copied, name) for name in names}
        copied.__class__ = type(copied).__mro__[1]
        for name, weight in weights.items():
            del copied._buffers[f"{name}_int8"], copied._buffers[f"{name}_scale"]
            copied.register_parameter(name, nn.Parameter(weight, requires_grad=False))
    return copied
