"""Layers of cells over time through the core, and their place in torch's graph.

The core does everything: it projects the input of all steps, runs the loop, and on the way back computes the gradients
of all parameters. What is here hands it memory. For training a run keeps what the program's derivative asks for, in the
memory of the projected input as far as that goes, and what each layer reads; else it keeps nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.engine.library import check, loaded_library
from weft.engine.memory import empty, empty_like
from weft.engine.noise import draw_seed, kept_of
from weft.engine.plan import Plan


class Direction(NamedTuple):
    """One pass over the rows, forward or in reverse, with the masks its program asks for."""

    plan: Plan
    reverse: bool
    row_mask: Tensor | None = None  # (B, H)
    step_mask: Tensor | None = None  # (B, T, states * H)


class Layers(NamedTuple):
    """Directions over the same rows side by side, layer upon layer, with dropout between layers."""

    layers: Sequence[Sequence[Direction]]
    keep: int = 0  # of 2^32 numbers that go from layer to layer, how many stay; 0: all
    seeds: Sequence[int] = ()  # for each layer but the first, what tells which ones

    def directions(self) -> Iterator[Direction]:
        for layer in self.layers:
            yield from layer

    def widths(self) -> list[int]:
        """Of each layer the width of its outputs."""
        return [sum([direction.plan.hidden_size for direction in layer]) for layer in self.layers]

    def between(self, places: int) -> int:
        """How many numbers go from layer to layer."""
        return places * sum(self.widths()[:-1])


def layers_of(layers: Sequence[Sequence[Direction]], dropout: float) -> Layers:
    if not dropout:
        return Layers(layers)
    return Layers(layers, kept_of(dropout), [draw_seed() for _ in layers[1:]])


def run(layers: Layers, x: Tensor, lengths: Tensor | None, flat: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor]]:
    """Outputs (B, T, sum of H) of the last layer and the last states of all directions; torch can differentiate them.

    `flat` has for each direction its parameters and its states before, None for zeros; all are contiguous.
    """
    x = x.contiguous() if x.is_floating_point() else x.to(torch.int64).contiguous()
    if torch.is_grad_enabled() and (x.requires_grad or any([t.requires_grad for t in flat if t is not None])):
        outputs, *last = _Run.apply(layers, x, lengths, *flat)  # type: ignore[no-untyped-call]
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
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        # Only a way back that is itself recorded asks for the wrapper, which refuses to go back over it.
        return (_Run._once if torch.is_grad_enabled() else _Run._back)(ctx, *gradients)

    @staticmethod
    def _back(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> Any:
        x, lengths, memory, *flat = ctx.saved_tensors
        _, wants_x, _, *wanted = ctx.needs_input_grad
        d_x, gradients = back(ctx.layers, x, lengths, flat, memory, d_outputs, d_last, wants_x, wanted)
        return None, d_x, None, *gradients

    _once = staticmethod(torch.autograd.function.once_differentiable(_back))


def forward(
    layers: Layers, x: Tensor, lengths: Tensor | None, flat: Sequence[Any], train: bool, room: int = 0
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Outputs (B, T, sum of H), the states after each direction, and what is kept for the way back: of each direction,
    with room for `room` tokens, and what the layers but the first read."""
    (rows, steps), dtype = x.shape[:2], flat[0].dtype
    outputs = empty((rows, steps, layers.widths()[-1]), dtype)
    last = [
        torch.empty(rows, direction.plan.hidden_size, dtype=dtype)
        for direction in layers.directions()
        for _ in range(direction.plan.states)
    ]
    size = layers.between(rows * steps)
    if train:
        tokens = rows * steps if lengths is None else sum(lengths.tolist())
        size += max(tokens, room) * sum([direction.plan.kept_size for direction in layers.directions()])
    memory = empty((size,), dtype) if train or size else None
    numbers = _numbers(layers, x, lengths, flat, train=train, memory=_address(memory), outputs=outputs.data_ptr())
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
    between = layers.between(x.shape[0] * x.shape[1])
    d_memory = empty((between,), memory.dtype) if between else None
    distance = 0  # of rows of d_outputs; of a sum or a mean, which is one number for all, 0
    if d_outputs is not None and d_outputs.stride() != (0, 0, 0):
        d_outputs, distance = d_outputs.contiguous(), d_outputs.shape[2]
    numbers = _numbers(
        layers, x, lengths, flat, train=True, memory=memory.data_ptr(), d_memory=_address(d_memory), d_x=_address(d_x),
        d_outputs=_address(d_outputs), distance=distance,
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
    flat: Sequence[Any],
    *,
    train: bool,
    memory: int,
    d_memory: int = 0,
    outputs: int = 0,
    d_outputs: int = 0,
    distance: int = 0,
    d_x: int = 0,
) -> list[int]:
    """What the core asks for before the addresses of parameters, states and their gradients (core/read.hpp)."""
    place, by_id, at = x.data_ptr(), not x.is_floating_point(), 0
    numbers = [
        flat[0].dtype is torch.float64, torch.get_num_threads(), len(layers.layers), x.shape[0], x.shape[1],
        _address(lengths), place if by_id else 0, 0 if by_id else place, d_x, train, memory, d_memory, outputs,
        d_outputs, distance,
    ]  # fmt: skip
    seeds = layers.seeds
    for number, layer in enumerate(layers.layers):
        numbers += (len(layer), layers.keep, seeds[number - 1]) if number and seeds else (len(layer), 0, 0)
        for plan, reverse, row_mask, step_mask in layer:
            numbers += plan.address, flat[at].shape[1], reverse, _address(row_mask), _address(step_mask)
            at += plan.tensors
    return numbers


def _call(function: Any, numbers: Sequence[int]) -> None:
    if code := function(array("q", numbers).tobytes()):
        check(code)
