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

from weft.engine.embedding import Drawn
from weft.engine.graph import address, applied, once, whole
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
    """Directions over the same rows side by side, layer upon layer, with dropout between layers.

    The lowest reads what is embedded, or else an x.
    """

    def __init__(
        self, layers: Sequence[Sequence[Direction]], dropout: float = 0.0, embedded: Drawn | None = None
    ) -> None:
        self._alive = layers  # plans and masks, whose addresses are among the numbers
        self.embedded = embedded
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
                self.numbers += plan.address, inputs, reverse, address(row_mask), address(step_mask)
                self.states += plan.state_widths
                self.kept += plan.kept_size
                self.width += plan.hidden_size

    def shape(self, x: Tensor | None) -> tuple[int, int]:
        """Rows and steps."""
        rows, steps, *_ = self.embedded.shape if x is None and self.embedded is not None else x.shape  # type: ignore[union-attr]
        return rows, steps

    def inside(self, places: int) -> int:
        """How many numbers layers read at so many places that do not come from outside."""
        size = places * self.between
        if self.embedded is not None:
            size += -(-places * self.embedded.shape[-1] // 16) * 16  # what follows begins on a cache line
        return size


def run(
    layers: Layers, x: Tensor | None, lengths: Tensor | None, flat: Sequence[Tensor | None]
) -> tuple[Tensor, list[Tensor]]:
    """Outputs (B, T, sum of H) of the last layer and the last states of all directions; torch can differentiate them.

    `flat` has for each direction its parameters and its states before, None for zeros; all are contiguous.
    """
    if x is not None:
        x = x.contiguous() if x.is_floating_point() else whole(x)
    tables = layers.embedded.tables if layers.embedded is not None else ()
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, *flat, *tables) if t is not None):
        outputs, *last = _apply(layers, len(flat), lengths, x, *flat, *tables)
    else:
        outputs, last, _ = forward(layers, x, lengths, flat, False)
    return outputs, last


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layers: Layers, count: int, lengths: Tensor | None, x: Tensor | None, *given: Any) -> Any:
        outputs, last, memory = forward(layers, x, lengths, given[:count], True)
        ctx.layers, ctx.count = layers, count
        ctx.set_materialize_grads(False)
        ids = layers.embedded.ids if layers.embedded is not None else ()
        ctx.save_for_backward(lengths, x, memory, *given[:count], *ids)
        return outputs, *last

    @staticmethod
    @once
    def backward(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> Any:
        lengths, x, memory, *flat = ctx.saved_tensors
        _, _, _, wants_x, *wanted = ctx.needs_input_grad
        found = back(ctx.layers, x, lengths, flat[: ctx.count], memory, d_outputs, d_last, wants_x, wanted)
        return None, None, None, *found


_apply = applied(_Run)


def forward(
    layers: Layers, x: Tensor | None, lengths: Tensor | None, flat: Sequence[Any], train: bool, room: int = 0
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Outputs (B, T, sum of H), the states after each direction, and what is kept for the way back: of each direction,
    with room for `room` tokens, and what layers read that does not come from outside."""
    rows, steps = layers.shape(x)
    dtype, size = flat[0].dtype, layers.inside(rows * steps)
    outputs = empty((rows, steps, layers.width), dtype)
    last = [torch.empty(rows, width, dtype=dtype) for width in layers.states]
    if train:
        tokens = rows * steps if lengths is None else sum(lengths.tolist())
        size += max(tokens, room) * layers.kept
    memory = empty((size,), dtype) if train or size else None
    embedded = [0] if layers.embedded is None else layers.embedded.numbers(layers.embedded.tables)
    numbers = _numbers(layers, x, lengths, dtype, embedded, train=train, memory=memory, outputs=outputs)
    _call(loaded_library().weft_forward, [*numbers, *_addresses(flat), *_addresses(last)])
    return outputs, last, memory


def back(
    layers: Layers,
    x: Tensor | None,
    lengths: Tensor | None,
    flat: Sequence[Any],
    memory: Tensor,
    d_outputs: Tensor | None,
    d_last: Sequence[Tensor | None],
    wants_x: bool,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of x, of everything in `flat` and of the tables of what is embedded, None where none is wanted."""
    gradients = [empty_like(each) if wants else None for each, wants in zip(flat, wanted, strict=False)]
    d_x = empty_like(x) if x is not None and wants_x else None
    d_tables, embedded = list[Tensor | None](), [0]
    if layers.embedded is not None:
        d_tables, embedded = layers.embedded.gradients(wanted[len(flat) :])
    d_last = [None if each is None else each.contiguous() for each in d_last]
    rows, steps = layers.shape(x)
    size = layers.inside(rows * steps)
    d_memory = empty((size,), memory.dtype) if size else None
    distance = 0  # of rows of d_outputs; of a sum or a mean, which is one number for all, 0
    if d_outputs is not None and d_outputs.stride() != (0, 0, 0):
        d_outputs, distance = d_outputs.contiguous(), layers.width
    numbers = _numbers(
        layers, x, lengths, memory.dtype, embedded, train=True, memory=memory, d_memory=d_memory, d_outputs=d_outputs,
        distance=distance, d_x=d_x,
    )  # fmt: skip
    _call(loaded_library().weft_back, [*numbers, *_addresses(flat), *_addresses(d_last), *_addresses(gradients)])
    return [d_x, *gradients, *d_tables]


def _addresses(tensors: Sequence[Tensor | None]) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _numbers(
    layers: Layers,
    x: Tensor | None,
    lengths: Tensor | None,
    dtype: torch.dtype,
    embedded: Sequence[int],
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
    ids, numbers = (None, x) if x is None or x.is_floating_point() else (x, None)
    return [
        dtype is torch.float64, torch.get_num_threads(), *layers.shape(x),
        *_addresses((lengths, ids, numbers, d_x, memory, d_memory, outputs, d_outputs)), distance, train,
        *embedded, *layers.numbers,
    ]  # fmt: skip


def _call(function: Any, numbers: Sequence[int]) -> None:
    if code := function(array("q", numbers).tobytes()):
        check(code)
