"""Backpropagation through time: full, truncated and randomized.

All return the outputs of the stack and its final state; only the gradients differ. With f_t the step and w its
weights, the gradient of a state is the sum

    dh_t/dw = df_t/dw + sum over i < t of (product over j = i+1..t of df_j/dh_{j-1}) df_i/dw

`full` computes all terms. `truncated` keeps the k most recent ones, i = t-k+1..t. `randomized` keeps each factor
df_j/dh_{j-1} with probability p and scales it by 1/p, so its expectation is the full sum. `checkpointed`
(checkpoint.py) is `full` with less memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from weft.cells import State
from weft.engine import over_time
from weft.errors import WeftError, unknown_name
from weft.nn.checkpoint import checkpointed
from weft.nn.layers import Stack
from weft.nn.states import map_state

Unroll = Callable[[Stack, Tensor, State], tuple[Tensor, State]]


def full(stack: Stack, x: Tensor, state: State = None) -> tuple[Tensor, State]:
    """Runs the stack with the full gradient.

    Args:
        stack: the layers.
        x: (B, T, I) features or (B, T) token ids.
        state: the initial state; None means zeros.

    Returns:
        The outputs (B, T, H) and the final state.
    """
    result: tuple[Tensor, State] = stack(x, state)
    return result


def truncated(stack: Stack, x: Tensor, state: State = None, *, steps: int) -> tuple[Tensor, State]:
    """Runs the stack so that the gradient of every output flows back through exactly `steps` steps.

    The first `steps` outputs are those of the full run. Each later output is computed again over its own window, from
    the detached state before it; all windows are rows of one batch. This costs `steps` times the work of the full
    gradient. Cutting a sequence into chunks is cheaper, but truncates at a different depth for every output. Every
    window draws its own dropout masks, so an output and its gradient belong to the same masks.

    Args:
        stack: causal layers.
        x: (B, T, I) features or (B, T) token ids.
        state: the initial state; None means zeros.
        steps: the number of steps, the output's own step included.

    Returns:
        The outputs (B, T, H) and the final state.

    Raises:
        WeftError: `steps` is below 1, or the stack is not causal.
    """
    _check_steps(steps)
    _check_causal("truncated", stack)
    B, T = x.shape[:2]
    if steps >= T:
        return full(stack, x, state)
    head, _ = full(stack, x[:, :steps], state)
    with torch.no_grad():
        # The state before window t is the state after step t - steps: (B, T - steps, H) for every layer.
        before = tuple(recording.states for recording in stack.record(x[:, : T - steps], state))  # type: ignore[union-attr]
    windows = x[:, 1:].unfold(1, steps, 1)  # (B, T - steps, I, steps) or (B, T - steps, steps)
    if x.is_floating_point():
        windows = windows.transpose(2, 3)
    outputs, last = full(stack, windows.flatten(0, 1), map_state(lambda part: part.flatten(0, 1), before))
    tail = outputs[:, -1].reshape(B, T - steps, stack.output_size)
    last = map_state(lambda part: part.reshape(B, T - steps, part.shape[-1])[:, -1], last)
    return torch.cat([head, tail], 1), last


def randomized(
    stack: Stack, x: Tensor, state: State = None, *, keep: float, generator: torch.Generator | None = None
) -> tuple[Tensor, State]:
    """Runs the stack; before each step of each row the gradient is cut with probability 1 - keep, else divided by keep.

    Tallec and Ollivier 2017, "Unbiasing truncated backpropagation through time". A smaller keep probability shortens
    the sampled dependencies and increases the variance.

    Args:
        stack: causal layers.
        x: (B, T, I) features or (B, T) token ids.
        state: the initial state; None means zeros.
        keep: the keep probability, above 0 and at most 1.
        generator: the source of random numbers; None means torch's default.

    Returns:
        The outputs (B, T, H) and the final state.

    Raises:
        WeftError: `keep` is out of range, or the stack is not causal.
    """
    _check_keep(keep)
    _check_causal("randomized", stack)
    kept = torch.rand(x.shape[:2], generator=generator) < keep  # drawn on the CPU: the same on every device
    return reweighted(stack, x, state, xi=kept.to(next(stack.parameters())) / keep)


def reweighted(stack: Stack, x: Tensor, state: State = None, *, xi: Tensor) -> tuple[Tensor, State]:
    """Runs the stack with the gradient of the state before step t of row b scaled by xi[b, t]; xi is (B, T)."""
    if x.shape[1] == 0:
        return full(stack, x, state)
    state = stack.initial_state(x.shape[0]) if state is None else state

    def step(t: int, before: State) -> tuple[State, Tensor]:
        output, after = full(stack, x[:, t : t + 1], map_state(partial(_scale_gradient, factor=xi[:, t, None]), before))
        return after, output

    kept, state = over_time(step, x.shape[1], state)
    return torch.cat([output for _, output in kept], 1), state


class _ScaledGradient(torch.autograd.Function):
    """The identity with a scaled gradient."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        # torch.where and not a product: an infinite gradient times 0 is NaN.
        return torch.where(factor == 0, 0.0, gradients[0] * factor), None


def _scale_gradient(value: Tensor, factor: Tensor) -> Tensor:
    scaled: Tensor = _ScaledGradient.apply(value, factor)  # type: ignore[no-untyped-call]
    return scaled


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise WeftError(f"truncated: steps is {steps}", expected="1 or more, the step itself included")


def _check_keep(keep: float) -> None:
    if not 0 < keep <= 1:
        raise WeftError(f"randomized: keep is {keep}", expected="a probability above 0 and at most 1")


def _check_causal(name: str, stack: Stack) -> None:
    if not stack.causal:
        raise WeftError(
            f"{name}: the stack is not causal",
            expected="layers that read forward only, because truncation needs one direction of time",
            hint='the method "full"',
        )


def _truncated(steps: int, keep: float) -> Unroll:
    _check_steps(steps)
    return partial(truncated, steps=steps)


def _randomized(steps: int, keep: float) -> Unroll:
    _check_keep(keep)
    return partial(randomized, keep=keep)


# name -> (steps, keep) -> Unroll; each uses only its own settings
BPTT: dict[str, Callable[[int, float], Unroll]] = {
    "full": lambda steps, keep: full,
    "checkpointed": lambda steps, keep: checkpointed,
    "truncated": _truncated,
    "randomized": _randomized,
}


def unroll(method: str, *, steps: int = 0, keep: float = 0.5) -> Unroll:
    """Returns the named method with its settings, as a function (stack, x, state) -> (outputs, final state).

    Args:
        method: "full", "checkpointed", "truncated" or "randomized".
        steps: the depth of "truncated".
        keep: the keep probability of "randomized".

    Raises:
        WeftError: an unknown method, or a setting out of range.

    >>> unroll("truncated", steps=5).keywords
    {'steps': 5}
    """
    if method not in BPTT:
        raise unknown_name("bptt method", method, BPTT)
    return BPTT[method](steps, keep)
