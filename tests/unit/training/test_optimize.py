"""Optimizers: parity with torch.optim, with the engine and without."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from weft import engine
from weft.cells import GRUCell
from weft.engine import OptimizerStep
from weft.training.config import TrainConfig
from weft.training.muon import Muon, hidden_matrices, orthogonalize
from weft.training.optimizer import OPTIMIZERS, SGD, Adam, Optimizer, Rule, rules_for

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


def optimizer_of(weights: list[nn.Parameter], rule: Rule) -> Optimizer:
    return Optimizer(weights, [rule] * len(weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("name", PEERS)
def test_steps_are_those_of_torch(name: str, clip: float, dtype: torch.dtype, way: str) -> None:
    config, make = PEERS[name]
    ours, theirs = parameters(dtype), parameters(dtype)
    optimizer, peer = optimizer_of(ours, OPTIMIZERS[config.optimizer](config)), make(theirs)
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
        optimizer = optimizer_of(weights, Adam(0.1))
        for step in range(4):
            for weight in weights:
                weight.grad = torch.sin(weight.detach() + step)
            optimizer.step(0.05, clip_norm=1.0)
        found.append([*weights, *optimizer.state().values()])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", [Adam(0.01), SGD(0.9), SGD(), Muon(1, interval=2)])
def test_a_restored_optimizer_goes_on_bit_for_bit(rule: Any, way: str) -> None:
    make = matrices if isinstance(rule, Muon) else lambda: parameters(torch.float32)

    def run(weights: list[nn.Parameter], optimizer: Optimizer, first: int, last: int) -> None:
        for step in range(first, last):
            for weight in weights:
                weight.grad = torch.cos(weight.detach() * step)
            optimizer.step(0.1, clip_norm=1.0)

    whole, parts = make(), make()
    run(whole, optimizer_of(whole, rule), 0, 6)
    first = optimizer_of(parts, rule)
    run(parts, first, 0, 3)
    second = optimizer_of(parts, rule)
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
            optimizer = optimizer_of(weights, Adam(0.01))
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
    optimizer = optimizer_of(weights, Adam())
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
    optimizer = optimizer_of(weights, Adam())
    optimizer.zero_grad()
    assert optimizer.step(0.1, clip_norm=1.0) == 0


def test_numbers_that_do_not_lie_together() -> None:
    """A gradient that is a view, and parameters of two types."""
    torch.manual_seed(1)
    ours = [nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(3, dtype=torch.float64))]
    theirs = [nn.Parameter(parameter.detach().clone()) for parameter in ours]
    optimizer, peer = optimizer_of(ours, Adam(0.1)), torch.optim.AdamW(theirs, 0.1, weight_decay=0.1)
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
    optimizer = optimizer_of([weight], Adam())
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
            optimizer = optimizer_of(weights, Adam(0.1))
            for weight in weights:
                weight.grad = weight.detach() * 3
            norm = optimizer.step(0.1, clip_norm=1.0)
            found.append((norm, torch.cat([weight.detach().flatten() for weight in weights])))
    finally:
        torch.set_num_threads(before)
    assert all(norm == found[0][0] and torch.equal(numbers, found[0][1]) for norm, numbers in found)


def matrices() -> list[nn.Parameter]:
    torch.manual_seed(3)
    return [nn.Parameter(torch.randn(shape)) for shape in [(12, 5), (4, 9), (6, 6)]]


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_muon_is_that_of_torch(clip: float, way: str) -> None:
    """torch orthogonalises at every step, in bfloat16, and each parameter as one matrix."""
    ours, theirs = matrices(), matrices()
    rules = [Muon(len(one), weight_decay=0.1, interval=1, low_precision=True) for one in ours]
    optimizer = Optimizer(ours, rules)
    peer = torch.optim.Muon(theirs, 0.1, weight_decay=0.1, nesterov=False, adjust_lr_fn="match_rms_adamw")
    averages = [torch.zeros_like(one) for one in ours]
    for _ in range(5):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        torch.nn.utils.clip_grad_norm_(theirs, clip or math.inf)
        optimizer.step(0.1, clip_norm=clip, ema=averages, ema_decay=0.0)
        peer.step()
        torch.testing.assert_close(averages, [one.detach() for one in ours])
    for start, one, other in zip(matrices(), ours, theirs, strict=True):
        assert (one - other).norm() < 0.05 * (other - start).norm()  # as far as bfloat16 rounds


def test_orthogonalised_matrices_keep_their_singular_vectors() -> None:
    torch.manual_seed(4)
    for shape in [(7, 4), (4, 7), (2, 5, 5)]:
        given = torch.randn(shape, dtype=torch.float64)
        u, _, v = torch.linalg.svd(given, full_matrices=False)
        turned = u.mT @ orthogonalize(given) @ v.mT  # diagonal: the new singular values
        values = turned.diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(turned, torch.diag_embed(values))
        assert ((values > 0.6) & (values < 1.3)).all()


def test_muon_treats_each_gate_as_a_matrix() -> None:
    (whole, _, _), step = matrices(), 0.1
    parts = [nn.Parameter(part.clone()) for part in whole.detach().split(4)]
    gradients = torch.randn_like(whole).mul_(torch.tensor([1.0, 100.0, 0.01]).repeat_interleave(4)[:, None])
    whole.grad = gradients
    for part, gradient in zip(parts, gradients.split(4), strict=True):
        part.grad = gradient
    optimizer_of([whole], Muon(4)).step(step)
    optimizer_of(parts, Muon(4)).step(step)
    torch.testing.assert_close(whole.detach(), torch.cat([part.detach() for part in parts]))


def test_muon_updates_at_every_few_steps_with_a_rate_for_all_of_them() -> None:
    (weight, *_), moves = matrices(), []
    optimizer = optimizer_of([weight], Muon(12, interval=4))
    weight.grad = torch.randn_like(weight)
    for _ in range(9):
        before = weight.detach().clone()
        optimizer.step(0.01)
        moves.append(float((weight.detach() - before).norm()))
    assert [move > 0 for move in moves] == [True, False, False, False] * 2 + [True]
    (other, *_) = matrices()
    other.grad = weight.grad
    before = other.detach().clone()
    optimizer_of([other], Muon(12, interval=1)).step(0.04)
    assert float((other.detach() - before).norm()) == pytest.approx(moves[0], rel=1e-5)


class Labeller(nn.Module):
    output_layers = ("output",)

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(9, 5), GRUCell(5, 4)
        self.join, self.output = nn.Linear(4, 3), nn.Linear(3, 9)


def test_muon_is_for_the_matrices_of_hidden_layers() -> None:
    model = Labeller()
    found = hidden_matrices(model)
    rows = {name: found[one] for name, one in model.named_parameters() if one in found}
    assert rows == {"cell.weight_ih": 4, "cell.weight_hh": 4, "join.weight": 3}
    weights = list(model.parameters())
    config = TrainConfig(optimizer="muon", weight_decay=0.3, precision="bf16")
    for rule, weight in zip(rules_for(model, weights, config), weights, strict=True):
        assert rule == (Muon(found[weight], 0.3, low_precision=True) if weight in found else Adam(0.3))
    assert set(rules_for(model, weights, TrainConfig(optimizer="adamw", weight_decay=0.3))) == {Adam(0.3)}
