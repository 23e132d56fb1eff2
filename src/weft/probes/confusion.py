"""The confusion matrix of a classifier or a tagger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from weft.pictures.figures import Array, Figure, HeatMap
from weft.probes.parts import find_part, get_run
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult
from weft.tasks.inspection import Inspection
from weft.tasks.operation import Option


@dataclass(frozen=True, eq=False)
class ConfusionMatrix(ProbeResult):
    """How often each label was predicted for each true label.

    Attributes:
        labels: The K labels or tags.
        counts: (K, K); rows are true labels, columns predicted ones.
        accuracy: The share of correct predictions.
    """

    probe = "confusion"

    labels: tuple[str, ...]
    counts: Array
    accuracy: float

    def records(self) -> Iterator[dict[str, Any]]:
        for true, row in zip(self.labels, self.counts.tolist(), strict=True):
            for predicted, count in zip(self.labels, row, strict=True):
                yield {"true": true, "predicted": predicted, "count": int(count)}

    def figures(self) -> list[Figure]:
        """The share of each predicted label among the examples of each true label."""
        totals = self.counts.sum(1)
        shares = np.divide(
            self.counts, totals[:, None], out=np.full_like(self.counts, np.nan), where=totals[:, None] > 0
        )
        rows = tuple(f"{label} ({int(total):,})" for label, total in zip(self.labels, totals, strict=True))
        return [
            HeatMap(
                f"Confusion matrix (accuracy {self.accuracy:.1%})",
                shares,
                rows,
                self.labels,
                "share of the true label",
                "true label (count)",
                "predicted label",
                annotate=len(self.labels) <= 12,
                limits=(0.0, 1.0),
            )
        ]


DATA_HELP = "Labelled data: a path or the name of a data set. Without it, the run's own held-out examples."


def confusion(model: Any, data: Annotated[Any, Option(DATA_HELP, requests=())] = None) -> ConfusionMatrix:
    """The confusion matrix of a classifier's labels or a tagger's tags.

    Args:
        model: A loaded run of the classify or the tag task.
        data: Labelled data, as `weft eval` reads it; without it the run's own held-out examples.

    Raises:
        WeftError: The model predicts no labels, or there is no data.
    """
    get_run(model)
    found = find_part(model, Inspection(), "labels")(data)
    return ConfusionMatrix(found.labels, np.array(found.counts, dtype=np.float64), found.accuracy)


PROBE = Probe(
    "confusion",
    "how often each label was predicted for each true label, on held-out or other data",
    "labels",
    confusion,
)
