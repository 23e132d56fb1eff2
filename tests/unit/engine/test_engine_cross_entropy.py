"""An output layer with its cross-entropy, against torch: dropout and lengths included."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from weft import engine
from weft.engine import Dropout, linear_cross_entropy
from weft.engine.cross_entropy import IGNORE_INDEX as IGNORED
from weft.errors import WeftError

needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")
DROPOUT = import_module("weft.engine.dropout")  # the package has a function of that name
DROPOUTS = [Dropout(), Dropout(0.3), Dropout(0.3, shared_over_time=True)]


@pytest.fixture
def one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call draws the same seed."""
    monkeypatch.setattr(DROPOUT, "draw_seed", lambda: 12345)


def example(rows: int, steps: int, inputs: int, size: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor, Tensor]:
    torch.manual_seed(rows + steps)
    numbers = [torch.randn(rows, steps, inputs), torch.randn(size, inputs) / inputs**0.5, torch.randn(size)]
    wanted = torch.randint(0, size, (rows, steps))
    wanted[torch.rand(rows, steps) < 0.1] = IGNORED
    lengths = torch.randint(0, steps + 1, (rows,))
    return [number.to(dtype).requires_grad_() for number in numbers], wanted, lengths


def by_torch(numbers: list[Tensor], wanted: Tensor, lengths: Tensor | None, smoothing: float, drop: Dropout) -> Tensor:
    x, weight, bias = numbers
    x = engine.variational_dropout(x, drop.rate) if drop.shared_over_time else engine.dropout(x, drop.rate)
    nats = F.cross_entropy(
        F.linear(x, weight, bias).flatten(0, 1), wanted.flatten(), reduction="none", label_smoothing=smoothing
    ).view(wanted.shape)
    past = torch.zeros_like(wanted) if lengths is None else torch.arange(x.shape[1]) >= lengths[:, None]
    return nats.masked_fill(past.bool(), 0)


@pytest.mark.usefixtures("one_seed")
@pytest.mark.parametrize("drop", DROPOUTS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("sizes", [(3, 4, 5, 7), (1, 1, 1, 1), (32, 9, 40, 17), (20, 30, 33, 300), (2, 1, 600, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_what_torch_computes(sizes: Any, smoothing: float, drop: Dropout, dtype: torch.dtype) -> None:
    numbers, wanted, lengths = example(*sizes, dtype)
    for given in (None, lengths):
        nats = linear_cross_entropy(*numbers, wanted, lengths=given, label_smoothing=smoothing, dropout=drop)
        known = by_torch(numbers, wanted, given, smoothing, drop)
        torch.testing.assert_close(nats, known)
        factors = torch.randn_like(nats)  # of each place, as of a weighted sum; and the same for all
        for weights in (factors, torch.tensor(0.25, dtype=dtype).expand(nats.shape)):
            ours = torch.autograd.grad(nats, numbers, weights, retain_graph=True)
            theirs = torch.autograd.grad(known, numbers, weights, retain_graph=True)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 if dtype == torch.float32 else 1e-10)


@pytest.mark.usefixtures("one_seed")
@pytest.mark.parametrize("drop", DROPOUTS)
def test_gradients_are_those_of_differences(drop: Dropout) -> None:
    numbers, wanted, lengths = example(3, 4, 5, 6, torch.float64)
    assert torch.autograd.gradcheck(
        lambda *given: linear_cross_entropy(*given, wanted, lengths=lengths, label_smoothing=0.2, dropout=drop), numbers
    )


@needs_engine
@pytest.mark.usefixtures("one_seed")
@pytest.mark.parametrize("drop", DROPOUTS)
def test_the_engine_and_torch_are_one(drop: Dropout, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the engine and without it; the dropout of the plain path is still the engine's."""
    numbers, wanted, lengths = example(4, 6, 8, 10, torch.float64)
    found = linear_cross_entropy(*numbers, wanted, lengths=lengths, label_smoothing=0.1, dropout=drop)
    monkeypatch.setattr("weft.engine.cross_entropy.reads", lambda *tensors: False)
    torch.testing.assert_close(
        linear_cross_entropy(*numbers, wanted, lengths=lengths, label_smoothing=0.1, dropout=drop), found
    )


def test_what_is_not_asked_for_costs_nothing_and_moves_nothing() -> None:
    (x, weight, bias), wanted, lengths = example(5, 6, 4, 3, torch.float32)
    wanted[1] = IGNORED
    nats = linear_cross_entropy(x, weight, bias, wanted, lengths=lengths)
    nats.sum().backward()
    asked = (torch.arange(6) < lengths[:, None]) & (wanted != IGNORED)
    assert (nats[~asked] == 0).all()
    assert (nats[asked] > 0).all()
    assert (x.grad[~asked] == 0).all()
    assert (x.grad[asked] != 0).any(-1).all()


def test_nothing_is_asked_at_all() -> None:
    (x, weight, bias), wanted, _ = example(2, 3, 4, 5, torch.float32)
    nats = linear_cross_entropy(x, weight, bias, torch.full_like(wanted, IGNORED))
    nats.sum().backward()
    assert not nats.any()
    for tensor in (x, weight, bias):
        assert not tensor.grad.any()
    empty = linear_cross_entropy(x[:0], weight, bias, wanted[:0])
    assert empty.shape == (0, 3)


def test_only_wanted_gradients_and_no_bias() -> None:
    (x, weight, _), wanted, _ = example(2, 3, 4, 5, torch.float64)
    for chosen in ([x], [weight]):
        ours = torch.autograd.grad(linear_cross_entropy(x, weight, None, wanted).sum(), chosen)
        known = F.cross_entropy(F.linear(x, weight).flatten(0, 1), wanted.flatten(), reduction="sum")
        torch.testing.assert_close(ours, torch.autograd.grad(known, chosen))
    with torch.no_grad():
        assert not linear_cross_entropy(x, weight, None, wanted).requires_grad


def test_the_last_numbers_of_floats_are_as_in_torch() -> None:
    """Logits that overflow a naive exponential, infinities and NaN."""
    wanted = torch.tensor([[0, 1, 2, 0, 1]])
    rows = [[200.0, -200.0, 0.0], [3e38, 3e38, -3e38], [1.0, -torch.inf, 2.0], [torch.nan, 0, 0], [torch.inf, 0, 0]]
    x, eye = torch.tensor([rows]), torch.eye(3)
    for wide in (eye, torch.zeros(40, 3)):  # a product with the identity would spread NaN
        bias = torch.zeros(len(wide))
        found = linear_cross_entropy(x[:, :3].clamp(-1e38, 1e38), wide, bias, wanted[:, :3])
        known = F.cross_entropy(F.linear(x[:, :3].clamp(-1e38, 1e38), wide)[0], wanted[0, :3], reduction="none")
        torch.testing.assert_close(found[0], known)
    for row in rows[2:]:
        for id in range(3):
            found = linear_cross_entropy(
                torch.zeros(1, 1, 2), torch.zeros(3, 2), torch.tensor(row), torch.tensor([[id]])
            )
            known = F.cross_entropy(torch.tensor([row]), torch.tensor([id]), reduction="none")
            torch.testing.assert_close(found[0], known, equal_nan=True)


@needs_engine
def test_threads_change_nothing() -> None:
    numbers, wanted, lengths = example(20, 30, 33, 300, torch.float32)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 2, 3):
            torch.set_num_threads(threads)
            nats = linear_cross_entropy(*numbers, wanted, lengths=lengths, dropout=Dropout(0.0))
            found.append([nats, *torch.autograd.grad(nats.sum(), numbers)])
    finally:
        torch.set_num_threads(before)
    for run in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], run, strict=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, w, b, ids, n: (x[0], w, b, ids, n), "x (3, 4)"),
        (lambda x, w, b, ids, n: (x, w[:, :2], b, ids, n), "a weight (5, 2)"),
        (lambda x, w, b, ids, n: (x, w, b[:2], ids, n), "a bias (2,)"),
        (lambda x, w, b, ids, n: (x, w, b, ids[:, :1], n), "targets (2, 1)"),
        (lambda x, w, b, ids, n: (x, w, b, ids, n[:1]), "lengths (1,)"),
        (lambda x, w, b, ids, n: (x, w, b, ids, n + 3), "lengths run from"),
        (lambda x, w, b, ids, n: (x, w, b, ids, n - 9), "lengths run from"),
    ],
)
def test_what_does_not_fit_is_said(change: Any, words: str) -> None:
    (x, weight, bias), wanted, _ = example(2, 3, 4, 5, torch.float32)
    *given, lengths = change(x, weight, bias, wanted, torch.tensor([3, 2]))
    with pytest.raises(WeftError) as error:
        linear_cross_entropy(*given, lengths=lengths)
    assert words in str(error.value)


@needs_engine
@pytest.mark.parametrize("id", [5, -1, 1 << 40])
def test_an_id_outside_the_vocabulary_is_said(id: int) -> None:
    (x, weight, bias), wanted, _ = example(2, 3, 4, 5, torch.float32)
    wanted[1, 1] = id
    with pytest.raises(WeftError, match="outside the vocabulary"):
        linear_cross_entropy(x, weight, bias, wanted)


@pytest.mark.parametrize("way", ["engine", "torch"])
def test_any_id_may_be_the_one_to_ignore(way, monkeypatch):
    if way == "torch":
        monkeypatch.setattr("weft.engine.cross_entropy.reads", lambda *tensors: False)
    x, weight, wanted = torch.randn(2, 3, 4), torch.randn(5, 4), torch.tensor([[1, -1, 2], [-1, 0, 4]])
    found = linear_cross_entropy(x, weight, None, wanted, ignore_index=-1)
    torch.testing.assert_close(found, linear_cross_entropy(x, weight, None, wanted.where(wanted >= 0, IGNORED)))
    assert found[wanted < 0].eq(0).all()
    torch.testing.assert_close(
        linear_cross_entropy(x, weight, None, wanted, ignore_index=-1, reduction="sum"), found.sum()
    )
