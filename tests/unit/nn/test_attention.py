"""Attention: the four scores are their equations, and padding is nowhere."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import WeftError
from weft.nn.attention import SCORES, Attention, masked_softmax

B, T, S, Q, M = 3, 4, 5, 6, 7
LENGTHS = torch.tensor([5, 2, 0])


def attention_of(name, query_size=Q, memory_size=M):
    torch.manual_seed(0)
    memory_size = query_size if "dot" in name else memory_size
    attention = Attention(name, query_size, memory_size).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    return attention, torch.randn(B, S, memory_size, dtype=torch.float64)


def queries():
    return torch.randn(B, T, Q, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(name, score, q, k):
    """The equation of one query and one key."""
    if name == "additive":
        u = score.query.weight @ q + score.query.bias + score.key.weight @ k
        return (score.weight.weight[0] * torch.tanh(u)).sum()
    if name == "bilinear":
        return q @ score.key.weight @ k
    return q @ k / (math.sqrt(len(q)) if name == "scaled_dot" else 1)


@pytest.mark.parametrize("name", SCORES)
def test_it_is_the_equation(name):
    """Row by row, place by place, values and gradients."""
    attention, memory = attention_of(name)
    asked = queries().requires_grad_()
    memory.requires_grad_()
    context, weights = attention(asked, attention.prepare(memory, LENGTHS))
    assert context.shape == (B, T, memory.shape[-1])
    expected, mixed = torch.zeros(B, T, S, dtype=torch.float64), torch.zeros_like(context)
    for b in range(B):
        length = int(LENGTHS[b])
        for t in range(T if length else 0):
            scores = [by_hand(name, attention.score, asked[b, t], memory[b, s]) for s in range(length)]
            chances = torch.stack(scores).exp()
            chances = chances / chances.sum()
            expected[b, t, :length] = chances
            mixed[b, t] = (chances[:, None] * memory[b, :length]).sum(0)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(context, mixed)
    sources = [asked, memory, *attention.parameters()]
    weighting = torch.randn(context.shape, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad((context * weighting).sum(), sources),
        torch.autograd.grad((mixed * weighting).sum(), sources),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, 1e30])
def test_padding_reaches_nothing(name, garbage):
    attention, memory = attention_of(name)
    found = []
    for filled in (0.0, garbage):
        outside = torch.arange(S) >= LENGTHS[:, None]
        given_memory = memory.masked_fill(outside[..., None], filled).requires_grad_()
        asked = queries().requires_grad_()
        context, weights = attention(asked, attention.prepare(given_memory, LENGTHS))
        gradients = torch.autograd.grad(context.sum(), [asked, given_memory, *attention.parameters()])
        found.append([context, weights, *gradients])
    for clean, dirty in zip(*found, strict=True):
        assert torch.equal(clean, dirty)
        assert clean.isfinite().all()


@pytest.mark.parametrize("name", SCORES)
def test_a_row_alone(name):
    attention, memory = attention_of(name)
    context, weights = attention(queries(), attention.prepare(memory, LENGTHS))
    for b, length in enumerate(LENGTHS.tolist()):
        if length:
            alone = attention.prepare(memory[b : b + 1, :length], LENGTHS[b : b + 1])
            one_context, one_weights = attention(queries()[b : b + 1], alone)
            torch.testing.assert_close(context[b], one_context[0])
            torch.testing.assert_close(weights[b, :, :length], one_weights[0])


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(
    "picks",
    [
        [[0, 1, 2]],
        [[2, 2, 0, 1, 0, 2]],
        [[1, 1]],
        [[0, 0, 1, 2, 2], [4, 0, 2, 3, 3]],
        [[0, 1, 1, 2], [3, 3, 3], [0, 2]],
        [[1, 0], []],
    ],
)
def test_rows_that_share_a_source_are_as_if_each_had_its_own(name, picks):
    """Picked once or several times over, in any order; what is no longer asked may be dropped on the way."""
    attention, memory = attention_of(name)
    source, rows = attention.prepare(memory, LENGTHS), torch.arange(B)
    for pick in picks:
        pick = torch.tensor(pick, dtype=torch.long)
        source, rows = source.select(pick), rows[pick]
    asked = torch.randn(len(rows), T, Q, dtype=torch.float64, requires_grad=True)
    context, weights = attention(asked, source)
    known, known_weights = attention(asked, attention.prepare(memory[rows], LENGTHS[rows]))
    torch.testing.assert_close(context, known)
    torch.testing.assert_close(weights, known_weights)
    weighting = torch.randn_like(context)
    for one, other in zip(
        torch.autograd.grad((context * weighting).sum(), [asked, *attention.parameters()]),
        torch.autograd.grad((known * weighting).sum(), [asked, *attention.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_what_is_asked_by_several_rows_is_held_once():
    """And what most rows no longer ask is given up."""
    memory = torch.randn(8, S, Q)
    source = Attention("dot", Q, Q).prepare(memory, torch.full((8,), S))
    wide = source.select(torch.arange(8).repeat_interleave(5))
    assert wide.values is source.values
    assert len(wide.select(torch.tensor([0, 1, 39])).values) == 2


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4), min_size=1, max_size=4),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
)
def test_masked_softmax(rows, lengths):
    scores, lengths = torch.tensor(rows, dtype=torch.float64)[:, None], torch.tensor(lengths)[: len(rows)]
    weights = masked_softmax(scores, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(weights[row, 0, length:], torch.zeros(4 - length, dtype=torch.float64))
        torch.testing.assert_close(weights[row, 0, :length], scores[row, 0, :length].softmax(-1))


def test_scaling_keeps_the_weights_soft():
    """Of wide random vectors, a plain dot product picks one place; scaled, it weighs all."""
    torch.manual_seed(0)
    asked, memory = torch.randn(1, 64, 512), torch.randn(1, 20, 512)
    sharpest = {}
    for name in ("dot", "scaled_dot"):
        attention = Attention(name, 512, 512)
        _, weights = attention(asked, attention.prepare(memory, torch.tensor([20])))
        sharpest[name] = weights.max(-1).values.mean().item()
    assert sharpest["dot"] > 0.9
    assert sharpest["scaled_dot"] < 0.4


def test_mistakes():
    with pytest.raises(WeftError, match=r"queries of size 6 and keys of size 7.*bilinear"):
        Attention("dot", 6, 7)
    with pytest.raises(WeftError, match=r"'aditive' is not known.*Try: additive"):
        Attention("aditive", 6, 7)
