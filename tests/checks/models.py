"""The battery of models."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tests.checks.comparisons import close, identical


def check_model(
    model: nn.Module,
    whole: Any,
    parts: Sequence[Any],
    *,
    loss: Callable[[nn.Module, Any], Any] = lambda model, batch: model.loss(batch),
    atol: float = 1e-4,
    rtol: float = 1e-5,
) -> None:
    """Checks a model: the loss of a batch is (total, count, ...), and totals, counts and gradients add up over parts.

    Every parameter receives a finite, non-zero gradient, and a state_dict holds the whole model. `parts` are the rows
    of `whole` in smaller batches, of unequal sizes if possible.
    """
    training = model.training
    model.eval()
    before = copy.deepcopy(whole)
    result = loss(model, whole)
    identical("the loss changed its batch", whole, before)
    total, count = result[:2]
    assert isinstance(total, Tensor), f"loss: total is a {type(total).__name__}"
    assert total.shape == (), f"loss: total is {tuple(total.shape)}, expected a single number"
    assert isinstance(count, int), f"loss: count is a {type(count).__name__}, expected an int"
    assert count > 0, f"loss: count is {count}"
    assert torch.isfinite(total), f"loss: total is {total.item()}"
    assert total >= 0, f"loss: total is {total.item()}, below zero"
    identical("the loss in evaluation is not repeatable", loss(model, whole)[0], total)

    pieces = [loss(model, part) for part in parts]
    assert sum(piece[1] for piece in pieces) == count, f"loss: the counts of the parts do not add up to {count}"
    summed = functools.reduce(operator.add, [piece[0] for piece in pieces])
    close("loss: the totals of the parts do not add up", summed, total, atol=atol, rtol=rtol)
    names, parameters = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True)
    for name, one, other in zip(
        names,
        torch.autograd.grad(summed, parameters, allow_unused=True),
        torch.autograd.grad(total, parameters, allow_unused=True),
        strict=True,
    ):
        assert other is not None, f"loss: no gradient reaches {name}"
        assert torch.isfinite(other).all(), f"loss: the gradient of {name} is not finite"
        assert other.any(), f"loss: the gradient of {name} is zero"
        close(f"loss: the gradients of {name} do not add up", one, other, atol=atol, rtol=rtol)

    twin = copy.deepcopy(model)
    with torch.no_grad():
        for tensor in [*twin.parameters(), *(b for b in twin.buffers() if b.is_floating_point())]:
            tensor.add_(1)
    twin.load_state_dict(model.state_dict())
    identical("a state_dict does not carry the whole model", loss(twin, whole)[0], total)
    model.train(training)
