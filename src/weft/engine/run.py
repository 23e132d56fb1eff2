"""Layers of cells over time through the core, and their place in torch's graph.

The core does everything: it projects the input of all steps, runs the loop, and on the way back computes the gradients
of all parameters. What is here hands it memory. For training a run keeps what the program's derivative asks for, in the
memory of the projected input as far as that goes, and what each layer reads; else it keeps nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.engine.graph import applied, once
from weft.engine.library import check, loaded_library
from weft.engine.memory import empty, empty_like
from weft.engine.noise import draw_seed, kept_of
from weft.engine.plan import Plan


class Direction(NamedTuple):
    """One pass over the rows, forward or in reverse, with the masks its program asks for."""

    plan: Plan
    inputs: int  # numbers a token, or the size of the vocabulary
    reverse: bool
    row_mask: Tensor | None = None  # (B, H)
    step_mask: Tensor | None = None  # (B, T, states * H)


class Layers:
    """Directions over the same rows side by side, layer upon layer, with dropout between layers."""

    def __init__(self, layers: Sequence[Sequence[Direction]], dropout: float = 0.0) -> None:
        self._alive = layers  # plans and masks, whose addresses are among the numbers
        self.numbers = [len(layers)]  # as the core reads them (core/read.hpp)
        self.states: list[int] = []  # of each part of a last state its width
        self.kept = 0  # numbers a token for the way back
        self.between = 0  # numbers a place that go from layer to layer
        self.width = 0  # of the outputs
        keep = kept_of(dropout) if dropout else 0
        for layer in layers:
            self.between += self.width
            self.width = 0
            self.numbers += (len(layer), keep, draw_seed()) if keep and layer is not layers[0] else (len(layer), 0, 0)
            for plan, inputs, reverse, row_mask, step_mask in layer:
                self.numbers += plan.address, inputs, reverse, _address(row_mask), _address(step_mask)
                self.states += plan.state_widths
                self.kept += plan.kept_size
                self.width += plan.hidden_size


def run(
    layers: Layers, x: Tensor, lengths: Tensor | None, flat: Sequence[Tensor | None]
) -> tuple[Tensor, list[Tensor]]:
    """Outputs (B, T, sum of H) of the last layer and the last states of all directions; torch can differentiate them.

    `flat` has for each direction its parameters and its states before, None for zeros; all are contiguous.
    """
    x = x.contiguous() if x.is_floating_point() else x.to(torch.int64).contiguous()
    if torch.is_grad_enabled() and (x.requires_grad or any(t.requires_grad for t in flat if t is not None)):
        outputs, *last = _apply(layers, x, lengths, *flat)
    else:
        outputs, last, _ = forward(layers, x, lengths, flat, False)
    return outputs, last


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layers: Layers, x: Tensor, lengths: Tensor | None, *flat: Any) -> Any:
        outputs, last, memory = forward(layers, x, lengths, flat, True)
        ctx.layers = layers
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, lengths, memory, *flat)
        return outputs, *last

    @staticmethod
    @once
    def backward(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> Any:
        x, lengths, memory, *flat = ctx.saved_tensors
        _, wants_x, _, *wanted = ctx.needs_input_grad
        d_x, gradients = back(ctx.layers, x, lengths, flat, memory, d_outputs, d_last, wants_x, wanted)
        return None, d_x, None, *gradients


_apply = applied(_Run)


def forward(
    layers: Layers, x: Tensor, lengths: Tensor | None, flat: Sequence[Any], train: bool, room: int = 0
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Outputs (B, T, sum of H), the states after each direction, and what is kept for the way back: of each direction,
    with room for `room` tokens, and what the layers but the first read."""
    rows, steps, *_ = x.shape
    dtype, size = flat[0].dtype, rows * steps * layers.between
    outputs = empty((rows, steps, layers.width), dtype)
    last = [torch.empty(rows, width, dtype=dtype) for width in layers.states]
    if train:
        tokens = rows * steps if lengths is None else sum(lengths.tolist())
        size += max(tokens, room) * layers.kept
    memory = empty((size,), dtype) if train or size else None
    numbers = _numbers(layers, x, lengths, dtype, train=train, memory=memory, outputs=outputs)
    _call(loaded_library().weft_forward, [*numbers, *_addresses(flat), *_addresses(last)])
    return outputs, last, memory


def back(
    layers: Layers,
    x: Tensor,
    lengths: Tensor | None,
    flat: Sequence[Any],
    memory: Tensor,
    d_outputs: Tensor | None,
    d_last: Sequence[Tensor | None],
    wants_x: bool,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of x and of everything in `flat`, None where it is not wanted."""
    gradients = [empty_like(each) if wants else None for each, wants in zip(flat, wanted, strict=True)]
    d_x = empty_like(x) if wants_x else None
    d_last = [None if each is None else each.contiguous() for each in d_last]
    d_memory = empty((x.shape[0] * x.shape[1] * layers.between,), memory.dtype) if layers.between else None
    distance = 0  # of rows of d_outputs; of a sum or a mean, which is one number for all, 0
    if d_outputs is not None and d_outputs.stride() != (0, 0, 0):
        d_outputs, distance = d_outputs.contiguous(), layers.width
    numbers = _numbers(
        layers, x, lengths, memory.dtype, train=True, memory=memory, d_memory=d_memory, d_outputs=d_outputs,
        distance=distance, d_x=d_x,
    )  # fmt: skip
    _call(loaded_library().weft_back, [*numbers, *_addresses(flat), *_addresses(d_last), *_addresses(gradients)])
    return d_x, gradients


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _addresses(tensors: Sequence[Tensor | None]) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _numbers(
    layers: Layers,
    x: Tensor,
    lengths: Tensor | None,
    dtype: torch.dtype,
    *,
    train: bool,
    memory: Tensor | None,
    d_memory: Tensor | None = None,
    outputs: Tensor | None = None,
    d_outputs: Tensor | None = None,
    distance: int = 0,
    d_x: Tensor | None = None,
) -> list[int]:
    """What the core asks for before the addresses of parameters, states and their gradients (core/read.hpp)."""
    ids, numbers = (None, x) if x.is_floating_point() else (x, None)
    return [
        dtype is torch.float64, torch.get_num_threads(), x.shape[0], x.shape[1],
        *_addresses((lengths, ids, numbers, d_x, memory, d_memory, outputs, d_outputs)), distance, train,
        *layers.numbers,
    ]  # fmt: skip


def _call(function: Any, numbers: Sequence[int]) -> None:
    if code := function(array("q", numbers).tobytes()):
        check(code)
