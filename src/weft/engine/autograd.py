"""torch.autograd.Function with less overhead, with gradients of gradients, and with several gradients at once.

The core computes a backward pass once. Where a graph of the gradients themselves is asked for (`create_graph=True`),
the operation is computed again in torch, whose gradients can be differentiated as often as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch


def apply_of(function: type[torch.autograd.Function]) -> Any:
    """The function's `apply` without its support for torch.func."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def differentiable_gradients(
    function: Callable[..., Sequence[Tensor | None]],
    inputs: Sequence[Tensor | None],
    d_outputs: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of a function of torch operations, with a graph of their own.

    Args:
        function: The operation; it maps the inputs to outputs.
        inputs: Its tensors.
        d_outputs: The gradients of its outputs, None for zero.
        wanted: Of which inputs gradients are wanted.
    """

    def run(*chosen: Tensor) -> list[Tensor]:
        following = iter(chosen)
        outputs = function(*[next(following) if wants else each for each, wants in zip(inputs, wanted, strict=True)])
        return [o for o, d in zip(outputs, d_outputs, strict=True) if d is not None and o is not None]

    gradients = [d for d in d_outputs if d is not None]
    chosen = [each for each, wants in zip(inputs, wanted, strict=True) if wants and each is not None]
    if not gradients or not chosen:
        return [None] * len(inputs)
    if (
        _functorch.peek_interpreter_stack() is not None
    ):  # an input that this transform does not track has gradients, too
        found: Any = torch.func.vjp(run, *chosen)[1](gradients)
    else:
        with torch.enable_grad():
            # Views, so that a tensor that is given twice has a gradient for each place.
            chosen = [each.view_as(each) for each in chosen]
            pairs = [(o, d) for o, d in zip(run(*chosen), gradients, strict=True) if o.requires_grad]
            if not pairs:
                return [None] * len(inputs)
            outputs, gradients = map(list, zip(*pairs, strict=True))
            found = torch.autograd.grad(outputs, chosen, gradients, create_graph=True, allow_unused=True)
    following = iter(found)
    return [next(following) if wants else None for wants in wanted]


def one_at_a_time(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass that the core computes, where vmap asks it for several gradients at once.

    torch does so for `is_grads_batched=True`, as in `jacobian(vectorize=True)`, with tensors that have no memory.
    """

    @wraps(backward)
    def run(ctx: Any, *gradients: Any) -> Any:
        are_batched = [isinstance(each, Tensor) and _is_batched(each) for each in gradients]
        if not any(are_batched):
            return backward(ctx, *gradients)
        first = gradients[are_batched.index(True)]
        add: Any = _functorch._add_batch_dim
        remove: Any = _functorch._remove_batch_dim
        level = _functorch.maybe_get_level(first)
        if _functorch.is_legacy_batchedtensor(first):
            add, remove = torch._add_batch_dim, torch._remove_batch_dim
            level = torch._C._vmapmode_increment_nesting() - 1
            torch._C._vmapmode_decrement_nesting()
        rows = [remove(each, level, 1, 0) if mark else each for each, mark in zip(gradients, are_batched, strict=True)]
        found = [
            backward(ctx, *[each[n] if mark else each for each, mark in zip(rows, are_batched, strict=True)])
            for n in range(len(rows[are_batched.index(True)]))
        ]
        return tuple(None if one[0] is None else add(torch.stack(one), 0, level) for one in zip(*found, strict=True))

    return run


def _is_batched(tensor: Tensor) -> bool:
    return _functorch.is_legacy_batchedtensor(tensor) or _functorch.is_batchedtensor(tensor)
