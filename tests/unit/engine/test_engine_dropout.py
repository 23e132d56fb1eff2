"""Dropout of the engine: the same mask forward and backward, and otherwise what torch computes."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from weft import engine
from weft.errors import WeftError
from weft.nn import Stack, make_stack

LIBRARY = import_module("weft.engine.library")  # the package has a function of that name
DROPOUT = import_module("weft.engine.dropout")  # as well
needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")


@pytest.fixture
def one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call draws the same seed."""
    monkeypatch.setattr(DROPOUT, "draw_seed", lambda: 12345)
    monkeypatch.setattr("weft.engine.layers.draw_seed", lambda: 12345)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_share_is_dropped_and_the_rest_scaled(rate: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(40_000, 3, dtype=dtype)
    dropped = engine.dropout(x, rate)
    values = dropped.unique()
    torch.testing.assert_close(values, torch.tensor([0, 1 / (1 - rate)], dtype=dtype))
    found = float((dropped == 0).double().mean())
    assert abs(found - rate) < 5 * (rate * (1 - rate) / x.numel()) ** 0.5


@needs_engine
def test_no_pattern_in_what_is_dropped() -> None:
    """Neighbours, blocks of the hash and seeds next to each other know nothing of each other."""
    torch.manual_seed(1)
    size = 1 << 17
    runs = []
    for seed in (7, 8, 7 + (1 << 40)):
        x = torch.ones(size)
        runs.append(
            (DROPOUT.DropoutFunction.apply(x, (size, 0, 1), DROPOUT.keep_threshold(0.5), seed) != 0).double() * 2 - 1
        )
    limit = 5 / size**0.5
    for lag in (1, 2, 3, 16, 64, 1 << 14):
        assert abs(float((runs[0][lag:] * runs[0][:-lag]).mean())) < limit
    assert abs(float((runs[0] * runs[1]).mean())) < limit
    assert abs(float((runs[0] * runs[2]).mean())) < limit
    for bit in range(14):
        column = torch.arange(size) >> bit & 1
        assert abs(float(runs[0][column == 1].mean())) < 1.5 * limit


def test_without_training_or_share_nothing_happens() -> None:
    x = torch.randn(3, 4, 2)
    for drop in (engine.dropout, engine.variational_dropout):
        assert drop(x, 0.5, False) is x
        assert drop(x, 0.0) is x


@pytest.mark.parametrize("built", [True, False])
def test_rows_lose_the_same_units_at_all_steps(built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not built:
        monkeypatch.setattr(LIBRARY, "usable", lambda: False)
    torch.manual_seed(0)
    x = torch.randn(200, 7, 60, dtype=torch.float64, requires_grad=True)
    dropped = engine.variational_dropout(x, 0.25)
    factors = (dropped / x).detach()
    assert torch.allclose(factors, factors[:, :1].expand_as(factors))
    torch.testing.assert_close(factors.unique().round(decimals=9).unique(), torch.tensor([0, 4 / 3]).double())
    assert abs(float((factors[:, 0] == 0).double().mean()) - 0.25) < 5 * (0.25 * 0.75 / 12_000) ** 0.5
    assert not torch.equal(factors[0], factors[1])
    gradient = torch.randn_like(dropped)
    torch.testing.assert_close(torch.autograd.grad(dropped, x, gradient)[0], gradient * factors)


def test_the_way_back_drops_the_same() -> None:
    x = torch.randn(5, 7, 11, dtype=torch.float64, requires_grad=True)
    dropped = engine.dropout(x, 0.3)
    gradient = torch.randn_like(dropped)
    (back,) = torch.autograd.grad(dropped, x, gradient)
    torch.testing.assert_close(back, gradient * (dropped / x).detach())


@needs_engine
def test_noise_does_not_depend_on_threads_and_comes_from_torchs_seed() -> None:
    x = torch.randn(300, 301)
    found, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        found.append(engine.dropout(x, 0.4))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], engine.dropout(x, 0.4))


def test_rows_that_do_not_lie_in_order() -> None:
    x = torch.randn(6, 4).t()
    dropped = engine.dropout(x, 0.5)
    assert dropped.shape == x.shape
    stayed = dropped != 0
    torch.testing.assert_close(dropped[stayed], 2 * x[stayed])


def one_by_one(stack: Stack, x: torch.Tensor, lengths: torch.Tensor | None) -> tuple[torch.Tensor, list[object]]:
    states = []
    for number, layer in enumerate(stack.layers):
        x, state = layer(engine.dropout(x, stack.dropout, stack.training) if number else x, lengths=lengths)
        states.append(state)
    return x, states


@needs_engine
@pytest.mark.parametrize("cell", ["lstm", "gru-reset-before"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("sizes", [(5, 3), (40, 32), (600, 16)])  # small weights and large ones are projected apart
def test_layers_at_once_are_layers_one_by_one(
    one_seed: None, cell: str, bidirectional: bool, ragged: bool, sizes: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    stack = make_stack(cell, *sizes, layers=3, bidirectional=bidirectional, dropout=0.4).double()
    x = torch.randn(6, 5, sizes[0], dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([5, 0, 3, 1, 5, 2]) if ragged else None
    results = []
    for run in (lambda: stack(x, lengths=lengths), lambda: one_by_one(stack, x, lengths)):
        outputs, states = run()
        loss = (outputs * torch.linspace(0, 1, outputs.numel(), dtype=torch.float64).view_as(outputs)).sum()
        for state in states:
            for side in state if bidirectional else (state,):
                loss = loss + side.h.square().sum()
        results.append((outputs, *torch.autograd.grad(loss, [x, *stack.parameters()])))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@needs_engine
def test_dropout_between_layers_is_differentiated(one_seed: None) -> None:
    stack = make_stack("gru", 3, 4, layers=3, bidirectional=True, dropout=0.5).double()
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    dropped = stack(x)[0]
    assert not torch.equal(dropped, stack.eval()(x)[0])
    stack.train()
    assert torch.autograd.gradcheck(lambda given: stack(given, lengths=torch.tensor([4, 2]))[0], x)


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("rate", [1.0, 1.5, -0.5])
def test_a_share_of_one_or_more_is_refused(rate: float, built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not built:
        monkeypatch.setattr(LIBRARY, "usable", lambda: False)
    x = torch.ones(2, 3, 4)
    for call in (
        lambda: engine.dropout(x, rate),
        lambda: engine.variational_dropout(x, rate),
        lambda: engine.embed(torch.tensor([0]), x[0], rate),
    ):
        with pytest.raises(WeftError, match="the dropout rate"):
            call()
