"""Metrics of classification: by hand and by their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checks.metrics import check_metric
from weft.errors import WeftError
from weft.metrics import Confusion

ABC = ("a", "b", "c")
answers = st.lists(st.tuples(st.sampled_from(ABC), st.sampled_from(ABC)), min_size=1, max_size=30)


def test_a_case_by_hand():
    """Of 4 a, 3 are told; one b is taken for a, the other for c; c never occurs."""
    pairs = [("a", "a"), ("a", "a"), ("a", "a"), ("a", "b"), ("b", "a"), ("b", "c")]
    found = Confusion.of(ABC, pairs, nats=3.0)
    assert found.counts == ((3, 1, 0), (1, 0, 1), (0, 0, 0))
    assert found.count == 6
    assert found.accuracy == 0.5
    assert found.cross_entropy == 0.5
    a, b, c = found.scores
    assert (a.precision, a.recall, a.support) == (0.75, 0.75, 4)
    assert a.f1 == pytest.approx(0.75)
    assert (b.precision, b.recall, b.f1, b.support) == (0, 0, 0, 2)
    assert (c.precision, c.recall, c.f1, c.support) == (0, 0, 0, 0)
    assert found.macro_f1 == pytest.approx(0.25)
    assert found.signature() == "accuracy|labels:3|texts:6"


def test_labels_that_do_not_occur_are_not_in_macro_f1():
    found = Confusion.of(ABC, [("a", "a"), ("b", "b")])
    assert found.macro_f1 == 1
    assert found.scores[2].f1 == 0


def test_no_texts_are_nan():
    empty = Confusion.of(ABC, [])
    assert math.isnan(empty.accuracy)
    assert math.isnan(empty.macro_f1)


@given(answers, st.integers(0, 30))
def test_parts_add_up(pairs, cut):
    whole = Confusion.of(ABC, pairs, nats=float(len(pairs)))
    parts = [Confusion.of(ABC, part, nats=float(len(part))) for part in (pairs[:cut], pairs[cut:]) if part]
    check_metric(whole, parts)
    merged = parts[0] + parts[1] if len(parts) == 2 else parts[0]
    assert merged == whole
    assert merged.macro_f1 == whole.macro_f1


def test_different_labels_cannot_be_added():
    with pytest.raises(WeftError, match="the same labels"):
        Confusion.of(ABC, []) + Confusion.of(("a", "b"), [])


@given(answers)
def test_f1_is_the_harmonic_mean(pairs):
    for score in Confusion.of(ABC, pairs).scores:
        if score.precision and score.recall:
            assert score.f1 == pytest.approx(2 / (1 / score.precision + 1 / score.recall))
        else:
            assert score.f1 == 0
