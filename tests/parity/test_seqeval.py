"""Spans and their F1 as seqeval has them, whose own measure is conlleval."""

from __future__ import annotations

import random
import warnings
from functools import reduce
from operator import add

import pytest

from tests.checks import check_metric
from weft.metrics import Found, SpanScores
from weft.text.spans import read_spans

seqeval = pytest.importorskip("seqeval.metrics")
labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")


def random_tags(rng, letters, count):
    """Any tags at all, most of them broken; kinds with a dash inside are one kind."""
    kinds = ["PER", "LOC", "creative-work"]
    return [rng.choice(["O", *(f"{one}-{kind}" for one in letters for kind in kinds)]) for _ in range(count)]


@pytest.mark.parametrize("letters", ["BI", "BIES", "I"])
def test_spans_and_f1(letters):
    rng = random.Random(len(letters))
    true = [random_tags(rng, letters, rng.randint(0, 12)) for _ in range(300)]
    found = [[tag if rng.random() < 0.7 else rng.choice(random_tags(rng, letters, 5)) for tag in row] for row in true]
    for row in (*true, *found):
        ours = [(kind, begin, end - 1) for kind, begin, end in read_spans(row)]
        assert ours == labeling.get_entities(row)
    parts = [SpanScores.of(one, other) for one, other in zip(true, found, strict=True)]
    scores = reduce(add, parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("precision", "recall", "f1"):
            theirs = getattr(seqeval, f"{name}_score")(true, found)
            assert getattr(scores.all, name) == pytest.approx(theirs)
        report = seqeval.classification_report(true, found, output_dict=True)
    for kind, one in scores.kinds.items():
        assert one.f1 == pytest.approx(report[kind]["f1-score"])
        assert one.true == report[kind]["support"]
    check_metric(scores, parts)


def test_a_worked_case():
    """Three spans are there, three are found: one is right, one is too long, one has the wrong kind."""
    true = ["B-PER", "I-PER", "O", "B-LOC", "O", "B-LOC"]
    tags = ["B-PER", "I-PER", "O", "I-LOC", "I-LOC", "B-PER"]
    scores = SpanScores.of(true, tags)
    assert scores.all == Found(right=1, found=3, true=3)
    assert scores.kinds["LOC"] == Found(0, 1, 2)
    assert scores.score() == seqeval.f1_score([true], [tags]) == pytest.approx(1 / 3)
