"""Layers computed in torch from their programs' equations: what the core computes, with gradients of any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.compiler import evaluate
from weft.engine.dropout import drop_with_seed
from weft.engine.over_time import over_time

if TYPE_CHECKING:
    from weft.engine.layers import Direction, Layers


def recompute(
    layers: Layers,
    lookup: Callable[..., Tensor],
    lengths: Tensor | None,
    x: Tensor | None,
    given: Sequence[Tensor | None],
) -> list[Tensor]:
    """Outputs (B, T, sum of H) of the last layer and the final states of all directions.

    Args:
        layers: The layers, with their masks and the seeds of their dropout.
        lookup: Maps embedding tables to what the first layer reads, where it reads no x.
        lengths: (B,), or None.
        x: (B, T, I), ids (B, T), or None.
        given: The parameters and initial states of each direction, then the embedding tables.
    """
    tensors = iter(given)
    flat = [
        [(list(islice(tensors, len(one.plan.names))), list(islice(tensors, one.plan.states))) for one in layer]
        for layer in layers.directions
    ]
    below = lookup(*tensors) if x is None else x
    last: list[Tensor] = []
    for layer, own, (keep, seed) in zip(layers.directions, flat, layers.dropouts, strict=True):
        if keep:
            below = drop_with_seed(below, keep, seed)
        outputs = []
        for direction, (parameters, states) in zip(layer, own, strict=True):
            out, final = _run(direction, parameters, states, below, lengths)
            outputs.append(out)
            last += final
        below = torch.cat(outputs, -1)
    return [below, *last]


def _run(
    direction: Direction,
    parameters: Sequence[Tensor | None],
    states: Sequence[Tensor | None],
    x: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    plan, (rows, steps) = direction.plan, x.shape[:2]
    named: dict[str, Any] = dict(zip(plan.names, parameters, strict=True))
    weight, bias = named["weight_ih"], named["bias_ih"]
    active = None
    if lengths is not None:
        active = torch.arange(steps) < lengths[:, None]  # (B, T)
        x = x.masked_fill(~active[..., None] if x.is_floating_point() else ~active, 0)
    projected = F.linear(x, weight, bias) if x.is_floating_point() else F.embedding(x, weight.t()) + bias
    state: Sequence[Tensor] = [weight.new_zeros(rows, plan.hidden_size) if part is None else part for part in states]

    def step(t: int, state: Sequence[Tensor]) -> tuple[Sequence[Tensor], tuple[()]]:
        mask = None if direction.step_mask is None else direction.step_mask[:, t]
        new = evaluate(plan.program.traced, named.__getitem__, projected[:, t], state, direction.row_mask, mask)
        return new, ()

    kept, state = over_time(step, steps, state, reverse=direction.reverse, active=active)
    return torch.stack([new[0] for new, _ in kept], 1), list(state)
