"""Frozen weights: a promise that the weights of recurrent layers will not change, so that they are packed once.

The engine reads weights in another order than torch. A layer reorders, or packs, them in each call, since they may have
changed; for few rows and steps this takes a good part of the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from weft.cells import Cell
from weft.engine import freeze_weights, is_quantized, keep_weights, packed_bytes, rounds_to_bfloat16, unfreeze_weights
from weft.errors import WeftError
from weft.nn.torch_layers import EngineForward


@dataclass(frozen=True)
class FreezeReport:
    """What `freeze` did; `print` it."""

    layers: tuple[str, ...]  # the names of cells, and of layers that have torch's names
    bytes: int  # of memory that packed weights will take, beside the weights, in the precision chosen now

    def __str__(self) -> str:
        count, size = len(self.layers), self.bytes / 2**20
        what = "layer" if count == 1 else "layers"
        return f"frozen: {count} recurrent {what}; packed weights take about {size:.1f} MB beside the weights"


def freeze(model: Any) -> FreezeReport:
    """States that the weights of a model's recurrent layers will not change, so the engine packs them only once.

    They are packed at the first call without gradients, in each precision that is used. A write to a weight is seen at
    the next call, which raises and names the weight. torch does not count writes through `.data`, NumPy or C++, so
    these are not seen, and the model goes on with the packed weights. A copy of the model, its quantized copy and what
    `to_torch` returns are not frozen, nor is a model that is loaded from a file.

    Args:
        model: a module with recurrent layers of weft or accelerated ones of torch, or what `weft.load` returns.

    Returns:
        A report of the layers, and of the memory that their packed weights take.

    Raises:
        WeftError: there is no such layer.

    >>> from weft.nn import GRUCell, Recurrent
    >>> print(freeze(Recurrent(GRUCell(256, 256))))
    frozen: 1 recurrent layer; packed weights take about 1.5 MB beside the weights
    """
    names, size = [], 0
    for name, owner, cells in _owners(_module_of("freeze", model)):
        names.append(name)
        for cell in cells:
            freeze_weights(cell, owner, name)
            size += _packed_size(cell)
    if not names:
        raise WeftError(
            f"freeze: {type(model).__name__} has no recurrent layers that run on the engine",
            expected="a model with layers of weft",
            hint="weft.accelerate(model) for torch.nn.LSTM, GRU and RNN",
        )
    return FreezeReport(tuple(names), size)


def unfreeze(model: Any) -> None:
    """Ends `freeze`: the weights of the model may change again.

    Args:
        model: what `freeze` was called with.

    >>> from weft.nn import GRUCell, Recurrent
    >>> layer = Recurrent(GRUCell(8, 8))
    >>> report = freeze(layer)
    >>> unfreeze(layer)
    """
    for _, _, cells in _owners(_module_of("unfreeze", model)):
        for cell in cells:
            unfreeze_weights(cell)


def keep_packed(model: nn.Module) -> None:
    """Keeps packed weights of a model's cells from call to call. A write is no mistake: it packs anew."""
    for _, owner, cells in _owners(model):
        for cell in cells:
            keep_weights(cell, owner)


def packed_memory(model: Any) -> int:
    """Bytes of the packed weights that a model keeps now."""
    return packed_bytes(cell for _, _, cells in _owners(_module_of("packed_memory", model)) for cell in cells)


def _module_of(call: str, model: Any) -> nn.Module:
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        raise WeftError(f"{call}: {type(model).__name__}", expected="a module, or a recurrent model of weft.load")
    return module


def _owners(model: nn.Module) -> Iterator[tuple[str, nn.Module, list[Cell]]]:
    """The modules that own the weights of cells, with their names and these cells."""
    for name, module in model.named_modules():
        if isinstance(module, Cell):
            yield name, module, [module]
        elif isinstance(module, EngineForward):
            yield name, module, [run.cell for layer in module.bound_cells() for run in layer]


def _packed_size(cell: Cell) -> int:
    size = 1 if is_quantized(cell) else 2 if rounds_to_bfloat16() else 4
    weights = [*cell._parameters.values(), *cell._buffers.values()]
    return sum(size * weight.numel() for weight in weights if weight is not None and weight.dim() == 2)
