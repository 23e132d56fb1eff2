"""Metrics of text classification: accuracy, precision, recall, F1 and the confusion matrix.

The definitions are scikit-learn's: 0/0 counts as 0, and macro F1 is the mean over the labels that occur, as true or as
predicted labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from weft import html
from weft.errors import WeftError
from weft.metrics.metric import Metric

ACCURACY = Metric("accuracy", higher_is_better=True)


class LabelScore(NamedTuple):
    """The scores of one label. `support` is the number of texts whose true label it is."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix (rows: true labels, columns: predicted labels), and the negative log-likelihood in nats.

    >>> found = Confusion.of(("no", "yes"), [("no", "no"), ("no", "yes"), ("yes", "yes")])
    >>> found.counts, round(found.accuracy, 3), found.scores[1].precision
    (((1, 1), (0, 1)), 0.667, 0.5)
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    nats: float = 0.0

    @classmethod
    def of(cls, labels: tuple[str, ...], pairs: Iterable[tuple[str, str]], nats: float = 0.0) -> Confusion:
        """Count (true label, predicted label) pairs."""
        indices = {label: index for index, label in enumerate(labels)}
        counts = [[0] * len(labels) for _ in labels]
        for true, predicted in pairs:
            counts[indices[true]][indices[predicted]] += 1
        return cls(labels, tuple(map(tuple, counts)), nats)

    def __add__(self, other: Confusion) -> Confusion:
        if self.labels != other.labels:
            raise WeftError(
                f"the labels are {', '.join(self.labels)} and {', '.join(other.labels)}",
                expected="the same labels in both, in the same order",
            )
        rows = zip(self.counts, other.counts, strict=True)
        counts = tuple(tuple(a + b for a, b in zip(*pair, strict=True)) for pair in rows)
        return Confusion(self.labels, counts, self.nats + other.nats)

    @property
    def count(self) -> int:
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float:
        return _ratio(sum(row[index] for index, row in enumerate(self.counts)), self.count, empty=math.nan)

    @property
    def cross_entropy(self) -> float:
        """In nats per text; NaN if there are no texts."""
        return _ratio(self.nats, self.count, empty=math.nan)

    @property
    def scores(self) -> tuple[LabelScore, ...]:
        """The scores of each label, in the order of the labels."""
        predicted = self._predicted
        found = []
        for index, (label, row) in enumerate(zip(self.labels, self.counts, strict=True)):
            correct, support = row[index], sum(row)
            precision, recall = _ratio(correct, predicted[index]), _ratio(correct, support)
            found.append(LabelScore(label, precision, recall, _ratio(2 * correct, predicted[index] + support), support))
        return tuple(found)

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels that occur, as true or as predicted labels."""
        scores = zip(self.scores, self._predicted, strict=True)
        occurring = [score.f1 for score, predicted in scores if predicted or score.support]
        return _ratio(sum(occurring), len(occurring), empty=math.nan)

    @property
    def _predicted(self) -> list[int]:
        """How often each label was predicted."""
        return [sum(column) for column in zip(*self.counts, strict=True)]

    def score(self) -> float:
        return self.accuracy

    def _repr_html_(self) -> str:
        """The confusion matrix and the scores of each label, for notebooks."""
        facts = {"accuracy": f"{self.accuracy:.3f}", "macro F1": f"{self.macro_f1:.3f}", "texts": f"{self.count:,}"}
        matrix = html.confusion_matrix(self.labels, self.counts) if len(self.labels) <= html.MOST_LABELS else ""
        by_label = html.score_table(self.scores, "texts")
        side_by_side = f'<div style="display:flex;flex-wrap:wrap;gap:32px">{matrix}{by_label}</div>'
        return html.box(html.heading("Confusion matrix" if matrix else "Scores", facts) + side_by_side)

    def signature(self) -> str:
        """What exactly was measured."""
        return f"accuracy|labels:{len(self.labels)}|texts:{self.count}"


def _ratio(part: float, whole: float, *, empty: float = 0.0) -> float:
    return part / whole if whole else empty
