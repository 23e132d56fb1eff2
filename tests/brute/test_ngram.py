"""n-grams against the formula written a second time with counters, cases worked by hand, and mutants."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks.steppers import check_stepper
from weft.errors import WeftError
from weft.tasks import kneser_ney as ngram
from weft.tasks.kneser_ney import NGram, kneser_ney, modified_discounts, modified_kneser_ney

START = "start"


class ByHand:
    """Kneser-Ney from the definition: dictionaries, loops and nothing shared with the code under test."""

    def __init__(self, tokens, size, order, discounts, *, uniform=True):
        self.size, self.order, self.uniform = size, order, uniform
        self.counts = {}
        for length in range(1, order + 1):
            if length == order:
                found = Counter(tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1))
            else:
                padded = [START, *tokens]
                wider = {tuple(padded[i : i + length + 1]) for i in range(len(padded) - length)}
                found = Counter(gram[1:] for gram in wider)
            self.counts[length] = found
        self.discounts = discounts or {
            length: self.modified(list(found.values())) for length, found in self.counts.items()
        }

    @staticmethod
    def modified(counts):
        n = Counter(counts)
        result = []
        for c, fallback in ((1, 0.5), (2, 1.0), (3, 1.5)):
            D = None
            if n[1] and n[c]:
                D = c - (c + 1) * n[1] / (n[1] + 2 * n[2]) * n[c + 1] / n[c]
            result.append(D if D is not None and 0 < D <= c else fallback)
        return result

    def prob(self, token, context):
        context = tuple(context)[-(self.order - 1) :] if self.order > 1 else ()
        return self._prob(token, context)

    def _prob(self, token, context):
        length = len(context) + 1
        followers = {gram[-1]: c for gram, c in self.counts[length].items() if gram[:-1] == context}
        below = self._prob(token, context[1:]) if context else (1 / self.size if self.uniform else 0.0)
        if not followers:
            return below
        D = self.discounts[length]
        total = sum(followers.values())
        taken = sum(D[min(c, 3) - 1] for c in followers.values())
        c = followers.get(token, 0)
        return (c - D[min(c, 3) - 1] if c else 0) / total + taken / total * below


def random_text(seed, size=6, length=120):
    return np.random.default_rng(seed).choice(size, length, p=np.arange(size, 0, -1) / (size * (size + 1) / 2))


def table(model: NGram, context):
    state = model.initial_state(1)
    for token in context:
        log_probs, state = model.step(torch.tensor([token]), state)
    return log_probs[0].exp().numpy()


def check_against_definition(model, reference, size, order):
    for context in itertools.islice(itertools.product(range(size), repeat=order), None, None, 5 if order > 3 else 1):
        expected = [reference.prob(token, context) for token in range(size)]
        np.testing.assert_allclose(table(model, context), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_modified_equals_the_definition(order):
    tokens = random_text(order, size=5)
    size = 6  # one token never occurs
    model = modified_kneser_ney(tokens, size, order)
    check_against_definition(model, ByHand(tokens.tolist(), size, order, None), size, order)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_one_discount_equals_the_definition(order):
    tokens = random_text(order)
    discounts = {length: [0.0 if length == 1 else 0.4] * 3 for length in range(1, order + 1)}
    model = kneser_ney(tokens, 6, order, discount=0.4)
    check_against_definition(model, ByHand(tokens.tolist(), 6, order, discounts, uniform=False), 6, order)


def test_three_discounts_by_hand():
    """n1..n4 = 4, 3, 2, 1: Y = 4 / 10; D1 = 1 - 2 Y 3/4, D2 = 2 - 3 Y 2/3, D3 = 3 - 4 Y 1/2."""
    counts = np.array([1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 9, 0, 0])
    assert modified_discounts(counts) == pytest.approx((1 - 0.6, 2 - 0.8, 3 - 0.8))


def test_degenerate_counts_of_counts_fall_back():
    assert modified_discounts(np.array([7, 8, 9])) == (0.5, 1.0, 1.5)  # no ones at all
    assert modified_discounts(np.array([1, 1, 2, 3, 3])) == (0.5, 1.0, 3.0)  # Y = 1/2: D2 = 2 - 3/2 * 2 < 0, D3 = 3 - 0
    assert modified_discounts(np.array([], dtype=int)) == (0.5, 1.0, 1.5)


def test_a_bigram_model_by_hand():
    """a b a b a c: the bigrams ab 2, ba 2, ac 1; a, b, c have 2 (start, b), 1 and 1 different tokens before them.

    Bigram counts 2, 2, 1: Y = 1/5, D1 = 1 - 2/5 * 2 = 1/5, D2 = 2 - 0 = 2.
    Unigram counts 2, 1, 1: Y = 2/4, D1 = 1 - 2 * 1/2 * 1/2 = 1/2, D2 = 2 - 0 = 2.
    Unigrams: all of a's 2 and a half of b and c each are taken, 3 of 4: P(a) = 0 + 3/4 / 3, P(b) = P(c) = 1/8 + 1/4.
    After a, 3 counts: 2 + 1/5 taken. P(b | a) = 0 + 2.2/3 * 3/8, P(c | a) = 0.8/3 + 2.2/3 * 3/8.
    """
    model = modified_kneser_ney(np.array([0, 1, 0, 1, 0, 2]), 3, 2)
    assert model.discounts[0] == pytest.approx((1 / 2, 2, 1.5))
    assert model.discounts[1] == pytest.approx((1 / 5, 2, 1.5))
    np.testing.assert_allclose(model.levels[0].probs, [1 / 4, 3 / 8, 3 / 8])
    np.testing.assert_allclose(table(model, [0]), [2.2 / 3 / 4, 2.2 / 3 * 3 / 8, 0.8 / 3 + 2.2 / 3 * 3 / 8])
    np.testing.assert_allclose(table(model, [2]), [1 / 4, 3 / 8, 3 / 8])  # nothing follows c


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(1, 5),
    st.lists(st.integers(0, 5), min_size=1, max_size=7),
)
def test_chances_sum_to_one_and_every_token_has_one(tokens, order, context):
    probs = table(modified_kneser_ney(np.array(tokens), 6, order), context)
    assert probs.sum() == pytest.approx(1)
    assert probs.min() > 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_a_whole_text_at_once_is_step_by_step(seed, order):
    model = modified_kneser_ney(random_text(seed), 6, order)
    text = random_text(seed + 1, length=40)
    state, nats = model.initial_state(1), 0.0
    for before, token in itertools.pairwise(text):
        log_probs, state = model.step(torch.tensor([before]), state)
        nats -= float(log_probs[0, token])
    likelihood = model.evaluate(text)
    assert likelihood.count == len(text) - 1
    assert likelihood.nats == pytest.approx(nats)


def test_measured_in_chunks(monkeypatch):
    model = modified_kneser_ney(random_text(0), 6, 4)
    text = random_text(1, length=100)
    whole = model.evaluate(text).nats
    for chunk in (1, 2, 3, 7, 99, 100):
        monkeypatch.setattr(ngram, "TOKENS_AT_ONCE", chunk)
        assert model.evaluate(text).nats == pytest.approx(whole)


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("make", [kneser_ney, modified_kneser_ney])
def test_it_is_a_stepper(make, order):
    check_stepper(make(random_text(2), 6, order), vocabulary=6)


def test_stored_and_back():
    model = modified_kneser_ney(random_text(3), 6, 3)
    again = NGram.from_tensors(model.tensors(), {"size": model.size, "discounts": model.discounts})
    assert again.evaluate(random_text(4)) == model.evaluate(random_text(4))


def test_texts_shorter_than_the_order():
    model = modified_kneser_ney(np.array([1, 2]), 3, 5)
    assert table(model, [1, 2, 1, 2]).sum() == pytest.approx(1)
    assert math.isfinite(model.evaluate(np.array([0, 1, 2, 0])).nats)


def test_mistakes():
    with pytest.raises(WeftError, match="order is 0"):
        modified_kneser_ney(np.array([1]), 3, 0)
    with pytest.raises(WeftError, match="no token with id 3"):
        modified_kneser_ney(np.array([1, 3]), 3, 2)
    with pytest.raises(WeftError, match="no tokens"):
        modified_kneser_ney(np.array([]), 3, 2)
    with pytest.raises(WeftError, match="discount is 1"):
        kneser_ney(np.array([1]), 3, 2, discount=1.0)


# --- mutants: one thing wrong each, and the definition notices -----------------------------------------------------


def raw_counts_below(ids, size, order):
    """Counts of occurrences at every order: interpolated absolute discounting, not Kneser-Ney."""
    for length, (keys, suffixes, counts) in enumerate(real_count(ids, size, order), start=1):
        grams = np.array([ids[i : i + length] for i in range(len(ids) - length + 1)])
        raw = np.zeros_like(counts)
        raw[counts > 0] = np.unique(grams, axis=0, return_counts=True)[1]
        yield keys, suffixes, raw


def without_the_start(ids, size, order):
    for length, (keys, suffixes, counts) in enumerate(real_count(ids, size, order), start=1):
        if length == 1 and order > 1:
            counts[ids[0]] -= 1
        yield keys, suffixes, counts


real_count = ngram.count_ngrams


@pytest.mark.parametrize("mutant", [raw_counts_below, without_the_start])
def test_mutant_counts_are_noticed(mutant, monkeypatch):
    tokens = random_text(5, size=5)
    monkeypatch.setattr(ngram, "count_ngrams", mutant)
    model = modified_kneser_ney(tokens, 6, 3)
    with pytest.raises(AssertionError):
        check_against_definition(model, ByHand(tokens.tolist(), 6, 3, None), 6, 3)


def test_mutant_discounts_are_noticed(monkeypatch):
    tokens = random_text(6, size=5)
    monkeypatch.setattr(ngram, "modified_discounts", lambda counts: (modified_discounts(counts)[0],) * 3)
    model = modified_kneser_ney(tokens, 6, 3)
    with pytest.raises(AssertionError):
        check_against_definition(model, ByHand(tokens.tolist(), 6, 3, None), 6, 3)
