"""The confusion matrix of a classifier or a tagger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import WeftError
from weft.probes.parts import get_run
from weft.probes.result import Array, ProbeResult


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


def confusion(model: Any, source: Any = None) -> ConfusionMatrix:
    """The confusion matrix of a classifier's labels or a tagger's tags.

    Args:
        model: A loaded run of the classify or the tag task.
        source: Labelled data, as `weft eval` reads it; without it the run's own held-out examples.

    Raises:
        WeftError: The model predicts no labels, or there is no data.
    """
    run = get_run(model)
    if not hasattr(model, "confusion"):
        raise WeftError(
            f"{run.path} is a run of the task {run.task!r}: it has no labels to confuse",
            expected="a run of the classify or the tag task",
        )
    found = model.confusion(source)
    return ConfusionMatrix(found.labels, np.array(found.counts, dtype=np.float64), found.accuracy)
