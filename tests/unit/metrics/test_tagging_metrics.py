"""Metrics of tagging: known and unknown words, spans, and segmentation."""

from __future__ import annotations

import math
from functools import reduce
from operator import add

import pytest

from tests.checks.metrics import check_metric
from weft.metrics import AccuracyCounts, MatchCounts, SpanScores, TokenScores, WordScores
from weft.text.spans import words_to_tags


def test_accuracy_on_known_and_unknown_words():
    scores = TokenScores.of(list("ABAB"), list("ABBA"), [1, 1, 1, 0])
    assert (scores.known, scores.unknown) == (AccuracyCounts(2, 3), AccuracyCounts(0, 1))
    assert scores.accuracy == 0.5
    assert scores.metrics() == {"accuracy": 0.5, "accuracy_known": 2 / 3, "accuracy_unknown": 0.0}
    assert math.isnan(TokenScores().accuracy)
    assert "accuracy_unknown" not in TokenScores.of(["A"], ["A"], [1]).metrics(), "no number for nothing"
    assert "words:4|unknown:1" in scores.signature()


def test_segmentation_by_hand():
    """我们 / 去 / 图书馆 cut as 我们 / 去图 / 书馆: one of three words; the unknown one is missed."""
    true, found = words_to_tags(["我们", "去", "图书馆"]), words_to_tags(["我们", "去图", "书馆"])
    scores = WordScores.of(true, found, [1, 1, 0])
    assert scores.words == MatchCounts(correct=1, predicted=3, true=3)
    assert (scores.known, scores.unknown) == (AccuracyCounts(1, 2), AccuracyCounts(0, 1))
    assert scores.score() == pytest.approx(1 / 3)
    assert scores.metrics()["recall_unknown"] == 0
    other = WordScores.of(true, words_to_tags(["我", "们", "去", "图书馆"]), [1, 1, 0])
    assert other.words == MatchCounts(correct=2, predicted=4, true=3)
    assert other.words.precision == 0.5
    assert other.words.f1 == pytest.approx(4 / 7)
    assert other.unknown == AccuracyCounts(1, 1)


def test_no_prediction_scores_zero():
    scores = SpanScores.of(["O", "O"], ["O", "O"])
    assert scores.score() == 0
    assert SpanScores.of(["B-X"], ["O"]).all == MatchCounts(0, 0, 1)


def test_statistics_add_up():
    rows = [("AAB", "ABB", [1, 0, 1]), ("B", "A", [0]), ("AB", "AB", [1, 1])]
    parts = [TokenScores.of(list(one), list(other), known) for one, other, known in rows]
    whole = TokenScores.of(list("AABBAB"), list("ABBAAB"), [1, 0, 1, 0, 1, 1])
    assert reduce(add, parts) == whole
    check_metric(whole, parts)
    parts = [WordScores.of(["B", "E"], ["B", "E"], [1]), WordScores.of(["B", "E"], ["S", "S"], [0])]
    check_metric(WordScores(MatchCounts(1, 3, 2), AccuracyCounts(1, 1), AccuracyCounts(0, 1)), parts)
    parts = [SpanScores.of(["B-X"], ["B-X"]), SpanScores.of(["B-Y"], ["B-X"])]
    check_metric(SpanScores({"X": MatchCounts(1, 2, 1), "Y": MatchCounts(0, 0, 1)}), parts)
