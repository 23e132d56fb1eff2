"""torch.autograd.Function with less overhead, and with gradients of gradients.

The core computes a backward pass once. Where a graph of the gradients themselves is asked for (`create_graph=True`),
the operation is computed again in torch, whose gradients can be differentiated as often as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def apply_of(function: type[torch.autograd.Function]) -> Any:
    """The function's `apply` without its support for torch.func, in whose transforms the core does not run."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def differentiable_gradients(
    function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor | None], d_outputs: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients of a function of torch operations, with a graph of their own.

    Args:
        function: The operation; it maps the inputs to outputs.
        inputs: Its tensors. Those that require no gradient get none.
        d_outputs: The gradients of its outputs, None for zero.
    """
    with torch.enable_grad():
        # Views, so that a tensor that is given twice has a gradient for each place.
        given = [each.view_as(each) if each is not None and each.requires_grad else each for each in inputs]
        outputs = function(*given)
        pairs = [(o, d) for o, d in zip(outputs, d_outputs, strict=True) if d is not None and o.requires_grad]
        wanted = [each for each in given if each is not None and each.requires_grad]
        if not pairs or not wanted:
            return [None] * len(inputs)
        some, gradients = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(some, wanted, gradients, create_graph=True, allow_unused=True))
        return [next(found) if each is not None and each.requires_grad else None for each in given]
