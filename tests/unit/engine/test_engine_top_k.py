"""The k most probable classes of an output layer, against a product, a log-softmax and a topk of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from weft import engine
from weft.engine import TopK
from weft.errors import WeftError

needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")


def example(rows: int, inputs: int, size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(rows + size)
    shapes = (rows, inputs), (size, inputs), (size,)
    x, weight, bias = (torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes)
    return x, weight * 2 / inputs**0.5, bias


def check(x: Tensor, weight: Tensor, bias: Tensor | None, k: int) -> None:
    values, ids = TopK(weight, bias)(x, k)
    log_probs = F.log_softmax(F.linear(x, weight, bias), -1)
    torch.testing.assert_close(values, log_probs.topk(k).values)
    torch.testing.assert_close(log_probs.gather(1, ids), values)  # of equals, any may come first
    assert all(len(set(row)) == k for row in ids.tolist())


# One id and few; panels that are not full; several pieces of columns; more rows than pieces of rows are dealt for.
@pytest.mark.parametrize(
    ("rows", "inputs", "size"),
    [(1, 1, 1), (3, 5, 7), (0, 4, 9), (65, 40, 33), (7, 800, 130), (64, 20, 2500), (1100, 8, 70), (1030, 9, 1300)],
)
@pytest.mark.parametrize("k", [1, 5, 8, 17, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_what_torch_finds(rows: int, inputs: int, size: int, k: int, dtype: torch.dtype) -> None:
    x, weight, bias = example(rows, inputs, size, dtype)
    check(x, weight, bias, min(k, size))
    check(x, weight, None, min(k, size))


@needs_engine
def test_without_the_engine_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = example(20, 30, 100)
    found = TopK(weight, bias)(x, 5)
    monkeypatch.setattr("weft.engine.top_k.reads", lambda *tensors: False)
    torch.testing.assert_close(TopK(weight, bias)(x, 5), found)


def test_parameters_and_strides() -> None:
    """What torch would differentiate is read as it is; rows need not lie one after the other."""
    x, weight, bias = example(6, 8, 40)
    values, ids = TopK(weight.T.contiguous().T.requires_grad_(), bias.requires_grad_())(x.T.contiguous().T, 4)
    known = F.log_softmax(F.linear(x, weight, bias), -1).topk(4)
    torch.testing.assert_close(values, known.values.detach())
    assert torch.equal(ids, known.indices)
    assert not values.requires_grad


@needs_engine
def test_of_equals_the_first_comes_first() -> None:
    _, ids = TopK(torch.zeros(3000, 4))(torch.ones(2, 4), 20)
    assert ids.tolist() == [list(range(20))] * 2


@needs_engine
def test_threads_change_nothing() -> None:
    before = torch.get_num_threads()
    for rows in (5, 200, 1100):
        x, weight, bias = example(rows, 30, 2100)
        found = []
        try:
            for threads in (1, 2, 2, 3):
                torch.set_num_threads(threads)
                found.append(TopK(weight, bias)(x, 7))
        finally:
            torch.set_num_threads(before)
        for values, ids in found[1:]:
            assert torch.equal(values, found[0][0])
            assert torch.equal(ids, found[0][1])


def test_logits_that_overflow_an_exponential() -> None:
    x = torch.tensor([[1.0]])
    for logits in ([200.0, -200.0, 199.0], [3e38, -3e38, 1e38], [-900.0, -901.0, -902.0]):
        check(x, torch.tensor(logits)[:, None], None, 3)


@pytest.mark.parametrize("place", [0, 5, 40, 1024, 2599])
@pytest.mark.parametrize("k", [1, 6, 16])
def test_one_logit_that_is_no_number_spoils_its_row(place: int, k: int) -> None:
    x, weight, bias = example(3, 4, 2600)
    bias[place] = torch.nan
    values, ids = TopK(weight, bias)(x, k)
    assert not values.isfinite().any()
    assert ((ids >= 0) & (ids < 2600)).all()


def test_what_has_no_chance_comes_last_and_what_is_no_number_is_not_found() -> None:
    bias = torch.full((2600,), -torch.inf)
    bias[[3, 1500]] = torch.tensor([1.0, 2.0])
    values, ids = TopK(torch.zeros(2600, 2), bias)(torch.zeros(1, 2), 4)
    torch.testing.assert_close(values[0, :2], torch.tensor([0.0, -1.0]).log_softmax(-1))
    assert ids[0, :2].tolist() == [1500, 3]
    assert torch.equal(values[0, 2:], torch.tensor([-torch.inf, -torch.inf]))
    assert ((ids >= 0) & (ids < 2600)).all()
    bias = torch.full((2600,), -torch.inf).index_fill(0, torch.tensor([2500]), 1.0)  # far behind all that has none
    values, ids = TopK(torch.zeros(2600, 2), bias)(torch.zeros(1, 2), 2)
    assert values.tolist() == [[0.0, -torch.inf]]
    assert ids[0, 0] == 2500
    for wrong in (torch.nan, torch.inf):
        values, ids = TopK(torch.ones(40, 2))(torch.tensor([[0.0, wrong], [0.0, 1.0]]), 3)
        assert not values[0].isfinite().any()
        torch.testing.assert_close(values[1], torch.full((3,), 1 / 40).log())
        assert ((ids >= 0) & (ids < 40)).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TopK(torch.zeros(3)), "a weight (3,), no bias"),
        (lambda: TopK(torch.zeros(0, 3)), "a weight (0, 3)"),
        (lambda: TopK(torch.zeros(3, 2), torch.zeros(2)), "a bias (2,)"),
        (lambda: TopK(torch.zeros(3, 2))(torch.zeros(4, 3), 1), "x is (4, 3)"),
        (lambda: TopK(torch.zeros(3, 2))(torch.zeros(2), 1), "x is (2,)"),
        (lambda: TopK(torch.zeros(3, 2))(torch.zeros(4, 2), 4), "k is 4"),
        (lambda: TopK(torch.zeros(3, 2))(torch.zeros(4, 2), 0), "k is 0"),
    ],
)
def test_what_does_not_fit_is_said(make: Any, words: str) -> None:
    with pytest.raises(WeftError) as error:
        make()
    assert words in str(error.value)
