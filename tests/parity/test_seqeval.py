"""Spans and their F1 equal those of seqeval, which follows conlleval."""

from __future__ import annotations

import random
import warnings
from functools import reduce
from operator import add

import pytest

from tests.checks.metrics import check_metric
from weft.metrics import MatchCounts, SpanScores
from weft.text.spans import tags_to_spans

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
        ours = [(kind, begin, end - 1) for kind, begin, end in tags_to_spans(row)]
        assert ours == labeling.get_entities(row)
    parts = [SpanScores.of(one, other) for one, other in zip(true, found, strict=True)]
    scores = reduce(add, parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("precision", "recall", "f1"):
            theirs = getattr(seqeval, f"{name}_score")(true, found)
            assert getattr(scores.all, name) == pytest.approx(theirs)
        report = seqeval.classification_report(true, found, output_dict=True)
    for kind, one in scores.labels.items():
        assert one.f1 == pytest.approx(report[kind]["f1-score"])
        assert one.true == report[kind]["support"]
    check_metric(scores, parts)


def test_a_worked_case():
    """Three spans are there, three are found: one is right, one is too long, one has the wrong kind."""
    true = ["B-PER", "I-PER", "O", "B-LOC", "O", "B-LOC"]
    tags = ["B-PER", "I-PER", "O", "I-LOC", "I-LOC", "B-PER"]
    scores = SpanScores.of(true, tags)
    assert scores.all == MatchCounts(correct=1, predicted=3, true=3)
    assert scores.labels["LOC"] == MatchCounts(0, 1, 2)
    assert scores.score() == seqeval.f1_score([true], [tags]) == pytest.approx(1 / 3)


def counted(true, tags):
    parts = [SpanScores.of(one.split(), other.split()) for one, other in zip(true, tags, strict=True)]
    return reduce(add, parts)


# The examples of seqeval's own documentation: sentences as they are, as they were told, and what it prints for them.
DOCUMENTED = {
    "README": (
        ["O O O B-MISC I-MISC I-MISC O", "B-PER I-PER O"],
        ["O O B-MISC I-MISC I-MISC I-MISC O", "B-PER I-PER O"],
        0.5,
        {"MISC": MatchCounts(0, 1, 1), "PER": MatchCounts(1, 1, 1)},
    ),
    "README, strict": (  # read leniently, as conlleval does, I-NP is no less a span than B-NP
        ["B-NP I-NP O"],
        ["I-NP I-NP O"],
        1.0,
        {"NP": MatchCounts(1, 1, 1)},
    ),
    "precision_score": (
        ["O O O B-MISC I-MISC I-MISC O", "B-PER I-PER O"],
        ["O O O B-MISC I-MISC I-MISC O", "B-PER O O"],
        0.5,
        {"MISC": MatchCounts(1, 1, 1), "PER": MatchCounts(0, 1, 1)},
    ),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_cases(name):
    true, tags, f1, kinds = DOCUMENTED[name]
    scores = counted(true, tags)
    assert scores.labels == kinds
    assert scores.score() == pytest.approx(f1)
    theirs = seqeval.f1_score([row.split() for row in true], [row.split() for row in tags])
    assert scores.score() == pytest.approx(theirs)


# By the rules of conlleval: a span begins at B, at S, and at I or E after O or another kind (or after E or S); it ends
# before O, B, S and another kind, and after E and S; it is right if kind, beginning and end are. Counted by hand.
RULES = {
    "right": ("B-X I-X O", "B-X I-X O", {"X": MatchCounts(1, 1, 1)}),
    "wrong kind": ("B-X I-X O", "B-Y I-Y O", {"X": MatchCounts(0, 0, 1), "Y": MatchCounts(0, 1, 0)}),
    "too short": ("B-X I-X O", "B-X O O", {"X": MatchCounts(0, 1, 1)}),
    "too long": ("B-X O O", "B-X I-X O", {"X": MatchCounts(0, 1, 1)}),
    "begins too late": ("B-X I-X I-X", "O B-X I-X", {"X": MatchCounts(0, 1, 1)}),
    "in two": ("B-X I-X I-X", "B-X B-X I-X", {"X": MatchCounts(0, 2, 1)}),
    "one of two": ("B-X B-X I-X", "B-X I-X I-X", {"X": MatchCounts(0, 1, 2)}),
    "I without B": ("B-X I-X O", "I-X I-X O", {"X": MatchCounts(1, 1, 1)}),
    "I after O, both": ("O I-X", "O I-X", {"X": MatchCounts(1, 1, 1)}),
    "adjacent, divided by B": ("B-X B-X", "B-X B-X", {"X": MatchCounts(2, 2, 2)}),
    "adjacent, told as one": ("B-X B-X", "B-X I-X", {"X": MatchCounts(0, 1, 2)}),
    "adjacent kinds, the second begins with I": (
        "B-X B-Y",
        "B-X I-Y",
        {"X": MatchCounts(1, 1, 1), "Y": MatchCounts(1, 1, 1)},
    ),
    "a kind changes inside": ("B-X I-X I-X", "B-X I-Y I-X", {"X": MatchCounts(0, 2, 1), "Y": MatchCounts(0, 1, 0)}),
    "S beside S": ("S-X S-X", "S-X S-X", {"X": MatchCounts(2, 2, 2)}),
    "I after E begins": ("B-X E-X S-X", "B-X E-X I-X", {"X": MatchCounts(2, 2, 2)}),
    "E alone": ("S-X O", "E-X O", {"X": MatchCounts(1, 1, 1)}),
    "nothing there": ("O O", "B-X O", {"X": MatchCounts(0, 1, 0)}),
    "nothing found": ("B-X O", "O O", {"X": MatchCounts(0, 0, 1)}),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_of_conlleval(name):
    true, tags, kinds = RULES[name]
    scores = counted([true], [tags])
    assert scores.labels == kinds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert scores.score() == pytest.approx(seqeval.f1_score([true.split()], [tags.split()]))
