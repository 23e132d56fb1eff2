"""Comparisons of the batteries: within a tolerance, bit for bit, of gradients. A failure names what is violated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft.cells import (
    SLSTMState,
)
from weft.nn import map_state


def close(what: str, actual: Tensor, expected: Tensor, *, atol: float, rtol: float) -> None:
    """Asserts that all elements agree within atol + rtol * max(abs(expected)); NaN is never close."""
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if not expected.numel():
        return
    a, b = actual.detach().double(), expected.detach().double()
    error, allowed = (a - b).abs().max().item(), atol + rtol * b.abs().max().item()
    assert error <= allowed, f"{what}: off by {error:.3g}, allowed is {allowed:.3g}"


def identical(what: str, actual: Any, expected: Any) -> None:
    """Asserts bitwise equality, in any nesting of tuples, lists, dicts and dataclasses."""
    if isinstance(expected, Tensor):
        assert torch.equal(actual, expected), f"{what}: values differ"
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), f"{what}: {len(actual)} parts, expected {len(expected)}"
        for a, b in zip(actual, expected, strict=True):
            identical(what, a, b)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), f"{what}: other keys"
        identical(what, list(actual.values()), list(expected.values()))
    elif dataclasses.is_dataclass(expected):
        identical(what, vars(actual), vars(expected))
    elif hasattr(expected, "__array__"):
        identical(what, torch.as_tensor(actual), torch.as_tensor(expected))
    elif type(expected).__eq__ is not object.__eq__:
        assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"


def flat(state: Any) -> list[Tensor]:
    """Returns all tensors of a nested state, in order."""
    found: list[Tensor] = []
    map_state(lambda part: found.append(part) or part, state)  # type: ignore[func-returns-value]
    return found


def reachable(state: Any) -> Any:
    """Returns a random state with the normalizer of an sLSTM, a divisor, in the range that it has in a run."""
    if isinstance(state, SLSTMState):
        return state._replace(n=(state.n.detach().abs() + 0.5).requires_grad_())
    if isinstance(state, tuple) and not hasattr(state, "h"):
        parts = [reachable(part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state


def gradients(results: Sequence[Tensor], sources: Sequence[Tensor], seed: int = 5) -> list[Tensor]:
    """Returns the gradients of a fixed random weighting of the results; unequal weights keep errors from cancelling."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(result.shape, generator=generator, dtype=torch.float64) for result in results]
    total = sum((result * weight.to(result.dtype)).sum() for result, weight in zip(results, weights, strict=True))
    assert total.requires_grad, "no gradient flows at all"
    found = torch.autograd.grad(total, sources, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(b) if a is None else a for a, b in zip(found, sources, strict=True)]
