"""Metrics of sequence tagging: token accuracy, span F1 as conlleval computes it, and F1 of word segmentation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft import html
from weft.errors import WeftError
from weft.metrics.metric import Additive, Metric
from weft.text.spans import tags_to_spans

TAGGING_SCORE = Metric("score", higher_is_better=True)  # F1 of spans or words, else the accuracy of tags


@dataclass(frozen=True)
class AccuracyCounts(Additive):
    """The number of correct predictions among `count`."""

    correct: int = 0
    count: int = 0

    @property
    def accuracy(self) -> float:
        return self.correct / self.count if self.count else math.nan


@dataclass(frozen=True)
class MatchCounts(Additive):
    """The number of predicted items, of true items, and of items that are both."""

    correct: int = 0
    predicted: int = 0
    true: int = 0

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if nothing is correct, as in conlleval."""
        return 2 * self.correct / (self.predicted + self.true) if self.correct else 0.0


@dataclass(frozen=True)
class TokenScores(Additive):
    """Tag accuracy on words of the vocabulary (`known`) and on all others (`unknown`)."""

    known: AccuracyCounts = AccuracyCounts()
    unknown: AccuracyCounts = AccuracyCounts()

    @classmethod
    def of(cls, true: Sequence[str], predicted: Sequence[str], known: Sequence[int]) -> TokenScores:
        """Compare the tags of one sentence; `known` is 1 for each word of the vocabulary, else 0."""
        correct, count = [0, 0], [0, 0]
        for true_tag, predicted_tag, is_known in zip(true, predicted, known, strict=True):
            count[is_known] += 1
            correct[is_known] += true_tag == predicted_tag
        return cls(AccuracyCounts(correct[1], count[1]), AccuracyCounts(correct[0], count[0]))

    @property
    def all(self) -> AccuracyCounts:
        return self.known + self.unknown

    @property
    def accuracy(self) -> float:
        return self.all.accuracy

    def score(self) -> float:
        return self.accuracy

    def signature(self) -> str:
        """What exactly was measured."""
        return f"accuracy|per:word|words:{self.all.count}|unknown:{self.unknown.count}"

    def metrics(self) -> dict[str, float]:
        """All metrics by name; those without any word are left out."""
        named = {"accuracy": self.all, "accuracy_known": self.known, "accuracy_unknown": self.unknown}
        return {name: counts.accuracy for name, counts in named.items() if counts.count}


@dataclass(frozen=True)
class SpanScores:
    """Spans whose boundaries and label are both correct, by label."""

    labels: Mapping[str, MatchCounts] = field(default_factory=dict)

    @classmethod
    def of(cls, true: Sequence[str], predicted: Sequence[str]) -> SpanScores:
        """Compare the tags of one sentence, with spans read as conlleval reads them."""
        true_spans, predicted_spans = set(tags_to_spans(true)), set(tags_to_spans(predicted))
        labels: dict[str, MatchCounts] = {}
        for span in true_spans | predicted_spans:
            is_true, is_predicted = span in true_spans, span in predicted_spans
            counts = MatchCounts(int(is_true and is_predicted), int(is_predicted), int(is_true))
            labels[span.label] = labels.get(span.label, MatchCounts()) + counts
        return cls(labels)

    def __add__(self, other: SpanScores) -> SpanScores:
        none = MatchCounts()
        labels = {**self.labels, **other.labels}
        return SpanScores({label: self.labels.get(label, none) + other.labels.get(label, none) for label in labels})

    @property
    def all(self) -> MatchCounts:
        return sum(self.labels.values(), MatchCounts())

    def score(self) -> float:
        return self.all.f1

    def signature(self) -> str:
        """What exactly was measured."""
        return f"f1|per:span|micro|read:conlleval|spans:{self.all.true}"

    def metrics(self) -> dict[str, float]:
        """All metrics by name."""
        return {"precision": self.all.precision, "recall": self.all.recall, "f1": self.all.f1}

    def label_table(self) -> str:
        """The scores of each label as an HTML table."""
        scores = ((label, one.precision, one.recall, one.f1, one.true) for label, one in sorted(self.labels.items()))
        return html.score_table(scores, "spans")

    def _repr_html_(self) -> str:
        """The scores and those of each label, for notebooks."""
        return html.box(html.score_line(self.metrics()) + self.label_table())


@dataclass(frozen=True)
class WordScores(Additive):
    """Words of a segmented text with both boundaries correct, and recall of known and unknown words."""

    words: MatchCounts = MatchCounts()
    known: AccuracyCounts = AccuracyCounts()
    unknown: AccuracyCounts = AccuracyCounts()

    @classmethod
    def of(cls, true: Sequence[str], predicted: Sequence[str], known: Sequence[int]) -> WordScores:
        """Compare the BMES tags of one sentence; `known` is 1 for each true word seen in training, else 0."""
        true_spans, predicted_spans = tags_to_spans(true), set(tags_to_spans(predicted))
        if len(known) != len(true_spans):
            raise WeftError(f"{len(true_spans)} words and {len(known)} marks of known ones", expected="a mark for each")
        correct = [span in predicted_spans for span in true_spans]
        unknown_counts, known_counts = (
            AccuracyCounts(
                sum(hit for hit, kind in zip(correct, known, strict=True) if kind == wanted), known.count(wanted)
            )
            for wanted in (0, 1)
        )
        return cls(MatchCounts(sum(correct), len(predicted_spans), len(true_spans)), known_counts, unknown_counts)

    def score(self) -> float:
        return self.words.f1

    def signature(self) -> str:
        """What exactly was measured."""
        return f"f1|per:word|words:{self.words.true}|unknown:{self.unknown.count}"

    def metrics(self) -> dict[str, float]:
        """All metrics by name; recalls of no words are left out."""
        scores = {"precision": self.words.precision, "recall": self.words.recall, "f1": self.words.f1}
        named = {"recall_known": self.known, "recall_unknown": self.unknown}
        return scores | {name: counts.accuracy for name, counts in named.items() if counts.count}

    def _repr_html_(self) -> str:
        """The scores, for notebooks."""
        return html.box(html.score_line(self.metrics()))
