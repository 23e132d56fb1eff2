"""Tensors as the core reads them: checked for type, device, layout and shape before their addresses are taken."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.errors import TensorError


def address(tensor: Tensor | None) -> int:
    """The address of a checked tensor's elements; 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


def check_tensor(name: str, tensor: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> None:
    """Raises if the tensor is not strided, on the CPU, of this type and of this shape."""
    if tensor.dtype is not dtype or not tensor.is_cpu or tensor.layout is not torch.strided or tensor.shape != shape:
        raise TensorError(
            f"{name} is {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}",
            expected=f"{tuple(shape)} of {dtype} on cpu",
        )


def checked(name: str, tensor: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """The tensor, checked and contiguous."""
    if tensor.dtype is dtype and tensor.is_cpu and tensor.shape == shape and tensor.is_contiguous():
        return tensor  # nearly always: small calls should not wait for more
    check_tensor(name, tensor, dtype, shape)
    return tensor.contiguous()


def as_int64(tensor: Tensor) -> Tensor:
    """Ids or lengths as contiguous int64 on the CPU."""
    if tensor.dtype is not torch.int64 or not tensor.is_cpu:
        tensor = tensor.to("cpu", torch.int64)
    return tensor.contiguous()
