"""Optimizers: torch's own, number by number, with the engine and without."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from weft import engine
from weft.engine import OptimizerStep
from weft.training.config import TrainConfig
from weft.training.optimizer import OPTIMIZERS, SGD, Adam, Optimizer

PEERS: dict[str, tuple[TrainConfig, Any]] = {
    "sgd": (TrainConfig(optimizer="sgd"), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (TrainConfig(optimizer="sgd", momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "adam": (TrainConfig(optimizer="adam"), lambda p: torch.optim.Adam(p, 0.1)),
    "adamw": (
        TrainConfig(optimizer="adamw", weight_decay=0.2),
        lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.2),
    ),
}


@pytest.fixture(params=["engine", "torch"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "engine" and engine.library() is None:
        pytest.skip("the engine is not built here")
    if request.param == "torch":
        monkeypatch.setattr(OptimizerStep, "of", staticmethod(lambda moved: None))
    return str(request.param)


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    torch.manual_seed(0)
    shapes = [(3, 5), (), (1,), (7,), (200, 190)]  # the last is cut into pieces
    return [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("name", PEERS)
def test_steps_are_those_of_torch(name: str, clip: float, dtype: torch.dtype, way: str) -> None:
    config, make = PEERS[name]
    ours, theirs = parameters(dtype), parameters(dtype)
    optimizer, peer = Optimizer(ours, OPTIMIZERS[config.optimizer](config)), make(theirs)
    averages = [torch.zeros_like(parameter) for parameter in ours]
    known = [torch.zeros_like(parameter) for parameter in ours]
    for step in range(6):
        gradients = [torch.randn_like(parameter) for parameter in ours]
        for number, gradient in enumerate(gradients):
            asleep = number == 1 and step in (0, 3)  # a parameter that this step did not use
            ours[number].grad = theirs[number].grad = None if asleep else gradient
            theirs[number].grad = None if asleep else gradient.clone()
        before = torch.nn.utils.clip_grad_norm_(theirs, clip or math.inf)
        peer.step()
        norm = optimizer.step(0.1, clip_norm=clip, ema=averages, ema_decay=0.75)
        assert norm == pytest.approx(float(before), rel=1e-5)
        close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-6, "atol": 1e-6}
        torch.testing.assert_close(ours, theirs, **close)  # torch divides by norm + 1e-6
        for mean, weight in zip(known, theirs, strict=True):
            if weight.grad is not None:
                mean.lerp_(weight.detach(), 0.25)
        torch.testing.assert_close(averages, known, **close)


def test_both_ways_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for of in (OptimizerStep.of, lambda moved: None):
        monkeypatch.setattr(OptimizerStep, "of", staticmethod(of))
        weights = parameters(torch.float64)
        optimizer = Optimizer(weights, Adam(0.1))
        for step in range(4):
            for weight in weights:
                weight.grad = torch.sin(weight.detach() + step)
            optimizer.step(0.05, clip_norm=1.0)
        found.append([*weights, *optimizer.state().values()])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", [Adam(0.01), SGD(0.9), SGD()])
def test_a_restored_optimizer_goes_on_bit_for_bit(rule: Any, way: str) -> None:
    def run(weights: list[nn.Parameter], optimizer: Optimizer, first: int, last: int) -> None:
        for step in range(first, last):
            for weight in weights:
                weight.grad = torch.cos(weight.detach() * step)
            optimizer.step(0.1, clip_norm=1.0)

    whole, parts = parameters(torch.float32), parameters(torch.float32)
    run(whole, Optimizer(whole, rule), 0, 6)
    first = Optimizer(parts, rule)
    run(parts, first, 0, 3)
    second = Optimizer(parts, rule)
    second.restore({name: tensor.clone() for name, tensor in first.state().items()})
    run(parts, second, 3, 6)
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_torchs_own_state_can_be_taken_up() -> None:
    """Names and meanings are torch's, so runs that were saved with its optimizers go on."""
    weights, theirs = parameters(torch.float64), parameters(torch.float64)
    peer = torch.optim.AdamW(theirs, 0.1, weight_decay=0.01)
    for step in range(6):
        for weight in theirs:
            weight.grad = torch.cos(weight.detach() * step)
        if step == 3:
            with torch.no_grad():
                for one, other in zip(weights, theirs, strict=True):
                    one.copy_(other)
            optimizer = Optimizer(weights, Adam(0.01))
            saved = peer.state_dict()["state"]
            optimizer.restore({f"{n}.{name}": tensor for n, part in saved.items() for name, tensor in part.items()})
        if step >= 3:
            for one, other in zip(weights, theirs, strict=True):
                assert other.grad is not None
                one.grad = other.grad.clone()
            optimizer.step(0.1)
        peer.step()
    torch.testing.assert_close(weights, theirs)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_moves_nothing(wrong: float, way: str) -> None:
    weights = parameters(torch.float32)
    optimizer = Optimizer(weights, Adam())
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    assert weights[-1].grad is not None
    weights[-1].grad[3, 4] = wrong
    before = [tensor.clone() for tensor in [*weights, *optimizer.state().values()]]
    assert not math.isfinite(optimizer.step(0.1, clip_norm=1.0))
    after = [*weights, *optimizer.state().values()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_nothing_to_move() -> None:
    weights = parameters(torch.float32)
    optimizer = Optimizer(weights, Adam())
    optimizer.zero_grad()
    assert optimizer.step(0.1, clip_norm=1.0) == 0


def test_numbers_that_do_not_lie_together() -> None:
    """A gradient that is a view, and parameters of two types."""
    torch.manual_seed(1)
    ours = [nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(3, dtype=torch.float64))]
    theirs = [nn.Parameter(parameter.detach().clone()) for parameter in ours]
    optimizer, peer = Optimizer(ours, Adam(0.1)), torch.optim.AdamW(theirs, 0.1, weight_decay=0.1)
    for _ in range(3):
        turned, other = torch.randn(6, 4).t(), torch.randn(3, dtype=torch.float64)
        for some in (ours, theirs):
            some[0].grad, some[1].grad = turned, other
        optimizer.step(0.1)
        peer.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("other", [torch.ones(3, dtype=torch.float64), torch.ones(300)])
def test_a_parameter_that_has_become_another_is_not_moved_by_what_was_kept(other: torch.Tensor) -> None:
    """The core would read past the end of the means."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = Optimizer([weight], Adam())
    weight.data = other.clone()
    weight.grad = torch.ones_like(weight)
    moved = (weight, weight.grad, *optimizer.buffers[0], None)
    assert OptimizerStep.of([moved]) is None
    assert OptimizerStep.of([(weight, torch.ones(3), None, None, None)]) is None, "nor past the end of a gradient"


@pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")
def test_threads_change_nothing() -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            weights = parameters(torch.float32)
            optimizer = Optimizer(weights, Adam(0.1))
            for weight in weights:
                weight.grad = weight.detach() * 3
            norm = optimizer.step(0.1, clip_norm=1.0)
            found.append((norm, torch.cat([weight.detach().flatten() for weight in weights])))
    finally:
        torch.set_num_threads(before)
    assert all(norm == found[0][0] and torch.equal(numbers, found[0][1]) for norm, numbers in found)
