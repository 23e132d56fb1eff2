"""Checkpointing in time: the full gradient of a long sequence in memory that grows with the square root of its length.

The sequence is run in segments. Only the state at the border of two segments is kept; the backward pass computes each
segment again before it needs its values. Chen et al. 2016, "Training deep nets with sublinear memory cost".
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from weft import engine
from weft.cells import State
from weft.engine import Embedded, materialize
from weft.errors import WeftError
from weft.nn.layers import Bidirectional, BothDirections, Recurrent, Stack
from weft.nn.states import check_input

_Layer = Recurrent | Bidirectional | Stack


def checkpointed(
    layer: _Layer, x: Tensor | Embedded, state: State = None, *, lengths: Tensor | None = None, steps: int | None = None
) -> tuple[Tensor, State]:
    """Runs a layer as `layer(x, state, lengths=lengths)` does, and keeps the states of `steps` steps only.

    Results and gradients are the same; a training step computes the forward pass twice. Memory for the backward pass
    is that of one segment and of T / steps states. The input and the outputs, (B, T, I) and (B, T, H), stay; embedding
    lookups are made a segment at a time.

    Args:
        layer: a `Recurrent`, `Bidirectional` or `Stack`.
        x: (B, T, I) features, (B, T) token ids, or embedding lookups.
        state: the initial state; None means zeros.
        lengths: (B,) lengths of the rows; None means T.
        steps: the length of a segment; None means the square root of T.

    Returns:
        The outputs (B, T, H) and the final state.

    Raises:
        WeftError: `steps` is below 1, or the layer has recurrent dropout, whose mask is one for all steps of a row.

    >>> from weft.nn import make_stack
    >>> stack = make_stack("lstm", 4, 8)
    >>> outputs, state = checkpointed(stack, torch.zeros(2, 100, 4))
    >>> outputs.shape
    torch.Size([2, 100, 8])
    """
    check_input("checkpointed", x, layer.input_size, lengths)
    if not (isinstance(layer, Recurrent) or (isinstance(layer, Stack) and layer.causal)):
        x = materialize(x)  # several layers read it
    steps = max(1, math.isqrt(x.shape[1])) if steps is None else steps
    if steps < 1:
        raise WeftError(f"checkpointed: steps is {steps}", expected="1 or more, the length of a segment")
    for one in layer.modules():
        if isinstance(one, Recurrent) and one.recurrent_dropout and one.training:
            raise WeftError(
                f"checkpointed: the layer has recurrent_dropout={one.recurrent_dropout}",
                expected="none, because its mask is one for all steps of a row",
                hint="dropout between layers, or zoneout",
            )
    return _run(layer, x, state, lengths, steps)


def _run(layer: _Layer, x: Tensor | Embedded, state: State, lengths: Tensor | None, steps: int) -> tuple[Tensor, State]:
    if isinstance(layer, Recurrent) or (isinstance(layer, Stack) and layer.causal):
        return _segments(layer, x, state, lengths, steps)
    assert isinstance(x, Tensor)
    if isinstance(layer, Bidirectional):
        state = state or BothDirections(None, None)
        forward, last = _segments(layer.forward_layer, x, state[0], lengths, steps)
        backward, first = _segments(layer.backward_layer, x, state[1], lengths, steps)
        return torch.cat([forward, backward], -1), BothDirections(last, first)
    before, after = layer._states(state), []
    for number, (one, given) in enumerate(zip(layer.layers, before, strict=True)):
        inputs = engine.dropout(x, layer.dropout, layer.training) if number else x
        outputs, last = _run(one, inputs, given, lengths, steps)  # type: ignore[arg-type]
        x = layer._add_residual(x, outputs, lengths)
        after.append(last)
    return x, tuple(after)


def _segments(
    layer: Recurrent | Stack, x: Tensor | Embedded, state: State, lengths: Tensor | None, steps: int
) -> tuple[Tensor, State]:
    """Runs a layer that reads in one direction, a segment at a time in this direction."""
    if x.shape[1] <= steps or not torch.is_grad_enabled():
        return layer(x, state, lengths=lengths)  # type: ignore[no-any-return]
    reverse = isinstance(layer, Recurrent) and layer.reverse
    # split, not slices: the gradient of each slice would be as long as x.
    parts = x.segments(steps) if isinstance(x, Embedded) else x.split(steps, 1)  # type: ignore[no-untyped-call]
    segments = list(enumerate(parts))
    outputs, stored = None, []
    for number, segment in reversed(segments) if reverse else segments:
        rest = None if lengths is None else (lengths - number * steps).clamp(0, segment.shape[1])
        done, state = checkpoint(layer, segment, state, lengths=rest, use_reentrant=False)
        if outputs is None:
            outputs = done.new_empty(done.shape[0], x.shape[1], done.shape[2])
        first = number * steps
        stored.append(_Store.apply(done, outputs[:, first : first + done.shape[1]]))  # type: ignore[no-untyped-call]
    return _Join.apply(outputs, steps, *(stored[::-1] if reverse else stored)), state  # type: ignore[no-untyped-call]


# torch.cat of the segments would hold all outputs twice.


class _Store(torch.autograd.Function):
    """Copies the outputs of a segment to their place. The result stands for them in the graph, without memory."""

    @staticmethod
    def forward(ctx: Any, done: Tensor, place: Tensor) -> Tensor:
        place.copy_(done)
        return done.new_zeros(1, 1, 1).expand(done.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class _Join(torch.autograd.Function):
    """The outputs of all segments, which are in their places."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, steps: int, *stored: Tensor) -> Tensor:
        ctx.steps = steps
        return outputs.view_as(outputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, None, *gradient.split(ctx.steps, 1)  # type: ignore[no-untyped-call]
