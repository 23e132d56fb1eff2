"""torch.autograd.Function with less overhead: without the parts that the core does not need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def apply_of(function: type[torch.autograd.Function]) -> Any:
    """The function's `apply` without its support for torch.func, in whose transforms the core does not run."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def differentiable_once(backward: Callable[..., Any]) -> Any:
    """Refuses gradients of gradients. torch's wrapper is used only where the backward pass itself is recorded."""
    refusing = once_differentiable(backward)

    def run(ctx: Any, *gradients: Any) -> Any:
        return (refusing if torch.is_grad_enabled() else backward)(ctx, *gradients)

    return run
