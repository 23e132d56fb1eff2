"""A module of torch and ours, made from the same seed, and how close their results have to be."""

from __future__ import annotations

from typing import Any

import torch

import weft.nn

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of the largest element


def pair(kind: str, *arguments: Any, **options: Any) -> list[Any]:
    """The class of that name in torch.nn and in weft.nn: one module of each."""
    made = []
    for package in (torch.nn, weft.nn):
        torch.manual_seed(5)
        made.append(getattr(package, kind)(*arguments, **options))
    return made


def flat(state: Any) -> list[torch.Tensor]:
    """The tensors of a state."""
    return list(state) if isinstance(state, tuple) else [state]


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        scale = other.abs().max().clamp_min(1e-12)
        assert ((one - other).abs().max() / scale).item() < TOLERANCE[other.dtype]
