"""The loop over time in torch: for recordings, probes, derivatives of derivatives, and where the core does not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

AnyState = TypeVar("AnyState")
AnyGates = TypeVar("AnyGates")


def over_time(
    step: Callable[[int, AnyState], tuple[AnyState, AnyGates]],
    steps: int,
    state: AnyState,
    *,
    reverse: bool = False,
    active: Tensor | None = None,
) -> tuple[list[tuple[AnyState, AnyGates]], AnyState]:
    """Runs `step(t, state)`, which returns the next state and what else a step gives, such as gates.

    Args:
        step: one step.
        steps: how many, T.
        state: the state before the first.
        reverse: from the last step to the first.
        active: (B, T), whether a row has a step; None: all have. Elsewhere a row's state stays as it is, and what the
            step gives is zero. States and gates then are flat tuples of (B, H) tensors.

    Returns:
        What each step gave, in the order of time, and the final state.
    """
    kept: list[tuple[AnyState, AnyGates]] = []
    for t in reversed(range(steps)) if reverse else range(steps):
        new, gates = step(t, state)
        if active is None:
            state = new
        else:
            now = active[:, t, None]
            state = _each(lambda a, b, now=now: torch.where(now, a, b), new, state)
            new, gates = (_each(lambda a, now=now: torch.where(now, a, 0.0), part) for part in (new, gates))
        kept.append((new, gates))
    return kept[::-1] if reverse else kept, state


def _each(function: Callable[..., Tensor], *tuples: Any) -> Any:
    """The function of the tensors of tuples, as a tuple of the first one's type."""
    kind, found = type(tuples[0]), [function(*parts) for parts in zip(*tuples, strict=True)]
    return kind(*found) if hasattr(kind, "_fields") else kind(found)
