"""A linear layer in the precision of the engine's products, computed by torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine.precision import rounds_to_bfloat16


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Computes x weight^T + bias.

    Inside `precision("bf16")` the product and those of its backward pass are in bfloat16 with float32 sums, and each
    result is rounded to bfloat16. Results and gradients are float32 all the same; float64 is not affected.

    Args:
        x: (..., I).
        weight: (O, I).
        bias: (O,).

    Returns:
        (..., O), of the type of x.
    """
    if x.dtype is not torch.float32 or not rounds_to_bfloat16():
        return F.linear(x, weight, bias)
    return F.linear(x.bfloat16(), weight.bfloat16()).float() + bias
