"""Measures of tags: known and unknown words, spans, words found in a text."""

from __future__ import annotations

import math
from functools import reduce
from operator import add

import pytest

from tests.checks import check_metric
from weft.metrics import Found, Hits, SpanScores, TokenScores, WordScores
from weft.text.spans import word_tags


def test_words_by_whether_they_are_known():
    scores = TokenScores.of(list("ABAB"), list("ABBA"), [1, 1, 1, 0])
    assert (scores.known, scores.unknown) == (Hits(2, 3), Hits(0, 1))
    assert scores.accuracy == 0.5
    assert scores.facts() == {"accuracy": 0.5, "accuracy_known": 2 / 3, "accuracy_unknown": 0.0}
    assert math.isnan(TokenScores().accuracy)
    assert "accuracy_unknown" not in TokenScores.of(["A"], ["A"], [1]).facts(), "no number for nothing"
    assert "words:4|unknown:1" in scores.signature()


def test_segmentation_by_hand():
    """我们 / 去 / 图书馆 cut as 我们 / 去图 / 书馆: one of three words; the unknown one is missed."""
    true, found = word_tags(["我们", "去", "图书馆"]), word_tags(["我们", "去图", "书馆"])
    scores = WordScores.of(true, found, [1, 1, 0])
    assert scores.words == Found(right=1, found=3, true=3)
    assert (scores.known, scores.unknown) == (Hits(1, 2), Hits(0, 1))
    assert scores.score() == pytest.approx(1 / 3)
    assert scores.facts()["recall_unknown"] == 0
    other = WordScores.of(true, word_tags(["我", "们", "去", "图书馆"]), [1, 1, 0])
    assert other.words == Found(right=2, found=4, true=3)
    assert other.words.precision == 0.5
    assert other.words.f1 == pytest.approx(4 / 7)
    assert other.unknown == Hits(1, 1)


def test_nothing_found_is_zero_not_an_error():
    scores = SpanScores.of(["O", "O"], ["O", "O"])
    assert scores.score() == 0
    assert SpanScores.of(["B-X"], ["O"]).all == Found(0, 0, 1)


def test_statistics_add_up():
    rows = [("AAB", "ABB", [1, 0, 1]), ("B", "A", [0]), ("AB", "AB", [1, 1])]
    parts = [TokenScores.of(list(one), list(other), known) for one, other, known in rows]
    whole = TokenScores.of(list("AABBAB"), list("ABBAAB"), [1, 0, 1, 0, 1, 1])
    assert reduce(add, parts) == whole
    check_metric(whole, parts)
    parts = [WordScores.of(["B", "E"], ["B", "E"], [1]), WordScores.of(["B", "E"], ["S", "S"], [0])]
    check_metric(WordScores(Found(1, 3, 2), Hits(1, 1), Hits(0, 1)), parts)
    parts = [SpanScores.of(["B-X"], ["B-X"]), SpanScores.of(["B-Y"], ["B-X"])]
    check_metric(SpanScores({"X": Found(1, 2, 1), "Y": Found(0, 0, 1)}), parts)
