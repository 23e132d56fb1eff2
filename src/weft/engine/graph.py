"""A place in torch's graph at the least price: what torch.autograd.Function does for others, the core does not need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def address(tensor: Tensor | None) -> int:
    """Where its numbers are, for the core; 0 if there are none."""
    return 0 if tensor is None else tensor.data_ptr()


def whole(numbers: Tensor) -> Tensor:
    """Whole numbers as the core reads them: here, of 64 bits, one after the other."""
    if numbers.dtype is not torch.int64 or not numbers.is_cpu:
        numbers = numbers.to("cpu", torch.int64)
    return numbers.contiguous()


def applied(function: type[torch.autograd.Function]) -> Any:
    """Its `apply`, without what that does for torch.func: inside its transforms the core does not run."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def once(back: Callable[..., Any]) -> Any:
    """Refuses gradients of gradients. Only a way back that is itself recorded asks for torch's wrapper."""
    refusing = once_differentiable(back)

    def backward(ctx: Any, *gradients: Any) -> Any:
        return (refusing if torch.is_grad_enabled() else back)(ctx, *gradients)

    return backward
