"""How well labels were told: accuracy, precision, recall, F1, and which label was taken for which.

The definitions are scikit-learn's: a quotient of 0 by 0 counts as 0, and macro F1 is the mean over the labels that
occur, as truth or as answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from weft.errors import WeftError


class LabelScore(NamedTuple):
    """How well one label was told."""

    label: str
    precision: float
    recall: float
    f1: float
    texts: int  # of texts that truly have it


@dataclass(frozen=True)
class Confusion:
    """How often each label (row) was taken for each (column), and the sum of -log P(true label) in nats.

    >>> found = Confusion.of(("no", "yes"), [("no", "no"), ("no", "yes"), ("yes", "yes")])
    >>> found.counts, round(found.accuracy, 3), found.scores[1].precision
    (((1, 1), (0, 1)), 0.667, 0.5)
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    nats: float = 0.0

    @classmethod
    def of(cls, labels: tuple[str, ...], pairs: Iterable[tuple[str, str]], nats: float = 0.0) -> Confusion:
        """From pairs of the true label and the one that was told."""
        places = {label: place for place, label in enumerate(labels)}
        counts = [[0] * len(labels) for _ in labels]
        for truth, told in pairs:
            counts[places[truth]][places[told]] += 1
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
        return _share(sum(row[place] for place, row in enumerate(self.counts)), self.count, empty=math.nan)

    @property
    def nats_per_text(self) -> float:
        return _share(self.nats, self.count, empty=math.nan)

    @property
    def scores(self) -> tuple[LabelScore, ...]:
        """The scores of each label, in the order of the labels."""
        told = [sum(column) for column in zip(*self.counts, strict=True)]
        found = []
        for place, (label, row) in enumerate(zip(self.labels, self.counts, strict=True)):
            right = row[place]
            precision, recall = _share(right, told[place]), _share(right, sum(row))
            found.append(LabelScore(label, precision, recall, _share(2 * right, told[place] + sum(row)), sum(row)))
        return tuple(found)

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels that occur, as truth or as answer."""
        told = [sum(column) for column in zip(*self.counts, strict=True)]
        occur = [score.f1 for score, count in zip(self.scores, told, strict=True) if count or score.texts]
        return _share(sum(occur), len(occur), empty=math.nan)

    def score(self) -> float:
        return self.accuracy

    def signature(self) -> str:
        """What exactly was measured, to stand beside the numbers."""
        return f"accuracy|labels:{len(self.labels)}|texts:{self.count}"


def _share(part: float, whole: float, *, empty: float = 0.0) -> float:
    return part / whole if whole else empty
