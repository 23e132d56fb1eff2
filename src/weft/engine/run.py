"""Cells over time through the core, and its place in torch's graph.

The core does everything: it projects the input of all steps, runs the loop, and on the way back computes the gradients
of all parameters. What is here hands it memory. For training a run keeps what the program's derivative asks for, in the
memory of the projected input as far as that goes; else it keeps nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.engine.library import check, loaded_library
from weft.engine.memory import empty
from weft.engine.plan import Plan


class Direction(NamedTuple):
    """One pass over the rows, forward or in reverse, with the masks its program asks for."""

    plan: Plan
    reverse: bool
    row_mask: Tensor | None = None  # (B, H)
    step_mask: Tensor | None = None  # (B, T, states * H)


def run(
    directions: Sequence[Direction],
    x: Tensor,
    lengths: Tensor | None,
    parameters: Sequence[Sequence[Tensor]],
    states: Sequence[Sequence[Tensor] | None],
) -> tuple[Tensor, list[list[Tensor]]]:
    """Outputs (B, T, sum of H) and for each direction its last state; torch can differentiate them."""
    flat: list[Tensor | None] = []
    for direction, given, state in zip(directions, parameters, states, strict=True):
        flat += given
        flat += [None] * direction.plan.states if state is None else state
    x = x.contiguous() if x.is_floating_point() else x.to(torch.int64).contiguous()
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *flat)):
        outputs, *last = _Run.apply(directions, x, lengths, *flat)  # type: ignore[no-untyped-call]
    else:
        outputs, last, _ = _forward(directions, x, lengths, flat, False)
    parts = iter(last)
    return outputs, [[next(parts) for _ in range(d.plan.states)] for d in directions]


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, directions: Sequence[Direction], x: Tensor, lengths: Tensor | None, *flat: Any) -> Any:
        outputs, last, kept = _forward(directions, x, lengths, flat, True)
        ctx.directions, ctx.count = directions, len(flat)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, lengths, *flat, *kept)
        return outputs, *last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> Any:
        x, lengths, *rest = ctx.saved_tensors
        flat, kept = rest[: ctx.count], rest[ctx.count :]
        _, wants_x, _, *wanted = ctx.needs_input_grad
        d_x, gradients = _back(ctx.directions, x, lengths, flat, kept, d_outputs, d_last, wants_x, wanted)
        return None, d_x, None, *gradients


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


class _Calls:
    """The numbers of one call of the core, direction after direction (core/call.hpp)."""

    def __init__(self, directions: Sequence[Direction], x: Tensor, lengths: Tensor | None, flat: Sequence[Any]) -> None:
        self.directions, self.x, self.lengths, self.flat = directions, x, lengths, flat
        self.rows, self.steps = x.shape[0], x.shape[1]
        self.tokens = self.rows * self.steps if lengths is None else int(lengths.sum())
        self.dtype = flat[0].dtype
        self.numbers: list[int] = []
        self._at = 0

    def put(
        self,
        direction: Direction,
        kept: Tensor | None,
        outputs: tuple[int, int] = (0, 0),  # address and distance of rows
        d_outputs: tuple[int, int] = (0, 0),
        d_x: Tensor | None = None,
        before: Sequence[Tensor | None] = (),
        after: Sequence[Tensor | None] = (),
        gradients: Sequence[Tensor | None] = (),
    ) -> None:
        plan, lengths, x = direction.plan, self.lengths, self.x
        parameters = self.flat[self._at : self._at + len(plan.names)]
        self._at += len(parameters) + plan.states
        ids = not x.is_floating_point()
        inputs = parameters[0].shape[1]
        self.numbers += [plan.address, self.rows, self.steps, self.tokens, inputs, direction.reverse, kept is not None]
        self.numbers += [_address(lengths), x.data_ptr() if ids else 0, 0 if ids else x.data_ptr()]
        self.numbers += [_address(kept), _address(d_x), *outputs, *d_outputs]
        self.numbers += [_address(direction.row_mask), _address(direction.step_mask)]
        self.numbers += map(_address, before)
        self.numbers += map(_address, after)
        self.numbers += map(_address, parameters)
        self.numbers += map(_address, gradients or [None] * len(parameters))

    def run(self, function: Any) -> None:
        numbers = array("q", self.numbers)
        check(
            function(
                numbers.buffer_info()[0], len(self.directions), torch.get_num_threads(), self.dtype == torch.float64
            )
        )


def _forward(
    directions: Sequence[Direction], x: Tensor, lengths: Tensor | None, flat: Sequence[Any], train: bool, room: int = 0
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Outputs (B, T, sum of H), the states after each direction, and what each one keeps, at least `room` tokens."""
    calls = _Calls(directions, x, lengths, flat)
    dtype, at, column = calls.dtype, 0, 0
    width = sum(direction.plan.hidden_size for direction in directions)
    outputs = empty((calls.rows, calls.steps, width), dtype)
    last: list[Tensor] = []
    kept: list[Tensor] = []
    alive = []  # until the core has run
    for direction in directions:
        plan = direction.plan
        at += len(plan.names)
        before = [None if part is None else part.contiguous() for part in flat[at : at + plan.states]]
        after = [torch.empty(calls.rows, plan.hidden_size, dtype=dtype) for _ in before]
        if train:
            kept.append(empty((max(room, calls.tokens), plan.kept_size), dtype))
        place = outputs.data_ptr() + column * dtype.itemsize, width
        calls.put(direction, kept[-1] if train else None, outputs=place, before=before, after=after)
        alive.append(before)
        last += after
        at += plan.states
        column += plan.hidden_size
    calls.run(loaded_library().weft_forward)
    return outputs, last, kept


def _back(
    directions: Sequence[Direction],
    x: Tensor,
    lengths: Tensor | None,
    flat: Sequence[Any],
    kept: Sequence[Tensor],
    d_outputs: Tensor | None,
    d_last: Sequence[Tensor | None],
    wants_x: bool,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of x and of everything in `flat`, None where it is not wanted."""
    calls = _Calls(directions, x, lengths, flat)
    dtype = calls.dtype
    if d_outputs is None:
        d_outputs, width = torch.zeros(sum(d.plan.hidden_size for d in directions), dtype=dtype), 0
    elif d_outputs.stride() == (0, 0, 0) and d_outputs.numel():  # of a sum or a mean: one number for all
        d_outputs, width = d_outputs.as_strided(d_outputs.shape[2:], (0,)).contiguous(), 0
    else:
        d_outputs, width = d_outputs.contiguous(), d_outputs.shape[2]
    d_x = empty(tuple(x.shape), dtype) if wants_x else None
    gradients = [empty(tuple(t.shape), dtype) if wants else None for t, wants in zip(flat, wanted, strict=True)]
    alive = []
    at, place = 0, d_outputs.data_ptr()
    for n, direction in enumerate(directions):
        plan = direction.plan
        middle, end = at + len(plan.names), at + len(plan.names) + plan.states
        after = [None if g is None else g.contiguous() for g in d_last[: plan.states]]
        d_last = d_last[plan.states :]
        calls.put(
            direction, kept[n], d_outputs=(place, width), d_x=d_x,
            before=gradients[middle:end], after=after, gradients=gradients[at:middle],
        )  # fmt: skip
        alive.append(after)
        at = end
        place += plan.hidden_size * dtype.itemsize
    calls.run(loaded_library().weft_back)
    return d_x, gradients
