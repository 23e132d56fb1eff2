"""A place in torch's graph at the least price: what torch.autograd.Function does for others, the core does not need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.errors import WeftError


def address(tensor: Tensor | None) -> int:
    """Where its numbers are, for the core; 0 if there are none."""
    return 0 if tensor is None else tensor.data_ptr()


def check_tensor(name: str, tensor: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> None:
    """Raises if the tensor is not what the core will read: strided, on the CPU, of this type and shape."""
    if tensor.dtype is not dtype or not tensor.is_cpu or tensor.layout is not torch.strided or tensor.shape != shape:
        raise WeftError(
            f"{name} is {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}",
            expected=f"{tuple(shape)} of {dtype} on cpu",
        )


def checked(name: str, tensor: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """The tensor, checked, with its elements one after the other."""
    check_tensor(name, tensor, dtype, shape)
    return tensor.contiguous()


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
