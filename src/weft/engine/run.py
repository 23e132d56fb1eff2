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
from weft.engine.memory import empty
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


def layers_of(layers: Sequence[Sequence[Direction]], dropout: float) -> Layers:
    if not dropout:
        return Layers(layers)
    return Layers(layers, kept_of(dropout), [draw_seed() for _ in layers[1:]])


def run(
    layers: Layers,
    x: Tensor,
    lengths: Tensor | None,
    parameters: Sequence[Sequence[Tensor]],
    states: Sequence[Sequence[Tensor] | None],
) -> tuple[Tensor, list[list[Tensor]]]:
    """Outputs (B, T, sum of H) of the last layer and for each direction of each its last state; torch can
    differentiate them."""
    flat: list[Tensor | None] = []
    for direction, given, state in zip(layers.directions(), parameters, states, strict=True):
        flat += given
        flat += [None] * direction.plan.states if state is None else state
    x = x.contiguous() if x.is_floating_point() else x.to(torch.int64).contiguous()
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *flat)):
        outputs, *last = _Run.apply(layers, x, lengths, *flat)  # type: ignore[no-untyped-call]
    else:
        outputs, last, _, _ = _forward(layers, x, lengths, flat, False)
    parts = iter(last)
    return outputs, [[next(parts) for _ in range(d.plan.states)] for d in layers.directions()]


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layers: Layers, x: Tensor, lengths: Tensor | None, *flat: Any) -> Any:
        outputs, last, between, kept = _forward(layers, x, lengths, flat, True)
        ctx.layers, ctx.count = layers, len(flat)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, lengths, *flat, *between, *kept)
        return outputs, *last

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        # Only a way back that is itself recorded asks for the wrapper, which refuses to go back over it.
        return (_Run._once if torch.is_grad_enabled() else _Run._back)(ctx, *gradients)

    @staticmethod
    def _back(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> Any:
        x, lengths, *rest = ctx.saved_tensors
        end = ctx.count + len(ctx.layers.layers) - 1
        flat, between, kept = rest[: ctx.count], rest[ctx.count : end], rest[end:]
        _, wants_x, _, *wanted = ctx.needs_input_grad
        d_x, gradients = _back(ctx.layers, [x, *between], lengths, flat, kept, d_outputs, d_last, wants_x, wanted)
        return None, d_x, None, *gradients

    _once = staticmethod(torch.autograd.function.once_differentiable(_back))


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


class _Numbers:
    """The numbers of one call of the core, layer after layer (core/run.hpp, core/call.hpp)."""

    def __init__(self, layers: Layers, x: Tensor, lengths: Tensor | None, dtype: torch.dtype) -> None:
        self.layers, self.lengths, self.dtype = layers, _address(lengths), dtype
        self.rows, self.steps = x.shape[0], x.shape[1]
        self.tokens = self.rows * self.steps if lengths is None else sum(lengths.tolist())
        self.numbers: list[int] = []

    def begin_layer(self, number: int, dropped: Tensor | None) -> None:
        """Layer `number` comes next; `dropped` is its input, or its input's gradient, if noise falls on it."""
        layers = self.layers
        noise = layers.keep and number and dropped is not None
        self.numbers.append(len(layers.layers[number]))
        self.numbers += (
            (layers.keep, layers.seeds[number - 1], dropped.data_ptr(), dropped.numel()) if noise else (0, 0, 0, 0)  # type: ignore[union-attr]
        )

    def put(
        self,
        direction: Direction,
        x: Tensor,
        parameters: Sequence[Tensor],
        kept: Tensor | None,
        outputs: tuple[int, int] = (0, 0),  # address and distance of rows
        d_outputs: tuple[int, int] = (0, 0),
        d_x: Tensor | None = None,
        before: Sequence[Tensor | None] = (),
        after: Sequence[Tensor | None] = (),
        gradients: Sequence[Tensor | None] = (),
    ) -> None:
        plan, place = direction.plan, x.data_ptr()
        self.numbers += (
            plan.address, self.rows, self.steps, self.tokens, parameters[0].shape[1], direction.reverse,
            kept is not None, self.lengths, *((0, place) if x.is_floating_point() else (place, 0)),
            _address(kept), _address(d_x), *outputs, *d_outputs,
            _address(direction.row_mask), _address(direction.step_mask),
            *map(_address, before), *map(_address, after), *map(_address, parameters),
            *(map(_address, gradients) if gradients else (0,) * len(parameters)),
        )  # fmt: skip

    def run(self, function: Any) -> None:
        numbers, is_double = array("q", self.numbers), self.dtype == torch.float64
        check(function(numbers.buffer_info()[0], len(self.layers.layers), torch.get_num_threads(), is_double))


def _forward(
    layers: Layers, x: Tensor, lengths: Tensor | None, flat: Sequence[Any], train: bool, room: int = 0
) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
    """Outputs (B, T, sum of H), the states after each direction, what each layer but the first reads, and what each
    direction keeps, at least `room` tokens."""
    dtype, at = flat[0].dtype, 0
    numbers = _Numbers(layers, x, lengths, dtype)
    inputs, last, kept = [x], list[Tensor](), list[Tensor]()
    alive = []  # until the core has run
    for number, layer in enumerate(layers.layers):
        width, column = sum(direction.plan.hidden_size for direction in layer), 0
        outputs = empty((numbers.rows, numbers.steps, width), dtype)
        numbers.begin_layer(number, inputs[-1])
        for direction in layer:
            plan = direction.plan
            middle, end = at + len(plan.names), at + len(plan.names) + plan.states
            before = [None if part is None else part.contiguous() for part in flat[middle:end]]
            after = [torch.empty(numbers.rows, plan.hidden_size, dtype=dtype) for _ in before]
            if train:
                kept.append(empty((max(room, numbers.tokens), plan.kept_size), dtype))
            numbers.put(
                direction, inputs[-1], flat[at:middle], kept[-1] if train else None,
                outputs=(outputs.data_ptr() + column * dtype.itemsize, width), before=before, after=after,
            )  # fmt: skip
            alive.append(before)
            last += after
            at = end
            column += plan.hidden_size
        inputs.append(outputs)
    numbers.run(loaded_library().weft_forward)
    return inputs[-1], last, inputs[1:-1], kept


def _back(
    layers: Layers,
    inputs: Sequence[Tensor],
    lengths: Tensor | None,
    flat: Sequence[Any],
    kept: Sequence[Tensor],
    d_outputs: Tensor | None,
    d_last: Sequence[Tensor | None],
    wants_x: bool,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of x and of everything in `flat`, None where it is not wanted."""
    dtype, stop, direction_number = flat[0].dtype, len(flat), len(kept)
    numbers = _Numbers(layers, inputs[0], lengths, dtype)
    d_outputs, width = _d_outputs(layers, d_outputs, dtype)
    gradients = [empty(tuple(t.shape), dtype) if wants else None for t, wants in zip(flat, wanted, strict=True)]
    states_end = len(d_last)
    alive: list[Any] = []
    for number in reversed(range(len(layers.layers))):
        layer, x = layers.layers[number], inputs[number]
        d_x = empty(tuple(x.shape), dtype) if number or wants_x else None
        numbers.begin_layer(number, d_x)
        direction_number -= len(layer)
        at = stop = stop - sum(len(direction.plan.names) + direction.plan.states for direction in layer)
        state = states_end = states_end - sum(direction.plan.states for direction in layer)
        place = d_outputs.data_ptr()
        for n, direction in enumerate(layer):
            plan = direction.plan
            middle, end = at + len(plan.names), at + len(plan.names) + plan.states
            after = [None if g is None else g.contiguous() for g in d_last[state : state + plan.states]]
            numbers.put(
                direction, x, flat[at:middle], kept[direction_number + n], d_outputs=(place, width), d_x=d_x,
                before=gradients[middle:end], after=after, gradients=gradients[at:middle],
            )  # fmt: skip
            alive.append(after)
            at, state = end, state + plan.states
            place += plan.hidden_size * dtype.itemsize
        if number:
            assert d_x is not None
            alive.append(d_outputs)
            d_outputs, width = d_x, d_x.shape[2]
    numbers.run(loaded_library().weft_back)
    return d_x, gradients


def _d_outputs(layers: Layers, given: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, int]:
    """The gradient of the outputs as the core reads it, and the distance of its rows (0: the same for all)."""
    if given is None:
        return torch.zeros(sum(d.plan.hidden_size for d in layers.layers[-1]), dtype=dtype), 0
    if given.stride() == (0, 0, 0) and given.numel():  # of a sum or a mean: one number for all
        return given.as_strided(given.shape[2:], (0,)).contiguous(), 0
    return given.contiguous(), given.shape[2]
