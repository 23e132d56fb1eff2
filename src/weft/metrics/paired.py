"""Paired bootstrap test: do two models differ on the same examples, or is it the choice of the examples?

The sufficient statistics of each example are kept apart. A resample draws as many examples with replacement, the same
ones for both models, sums their statistics, and computes the score of each sum (Koehn 2004).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 10_000
RESAMPLE_CELLS = 1 << 21  # resamples x examples held at a time

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class ExampleStatistics:
    """A metric of a model as the statistics of each example, which add up."""

    metric: str  # its name, as evaluations have it: "cross_entropy", "accuracy", "f1", "bleu"
    unit: str  # what one example is: "text", "sentence"
    signature: str  # what exactly was measured. Statistics of the same examples with equal signatures are comparable
    sums: Array  # (N, K), the K statistics of each of N examples
    score: Callable[[Array], Array]  # sums of statistics (..., K) to scores (...)
    higher_is_better: bool = True  # whether a higher score is the better one


class BootstrapDifference(NamedTuple):
    """The score of the second model minus that of the first, its 95% interval, and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(
    first: ExampleStatistics, second: ExampleStatistics, *, resamples: int = RESAMPLES, seed: int = 0
) -> BootstrapDifference:
    """Resamples the examples of two models together.

    Returns:
        The difference of their scores. The p-value is twice the share of resamples in which the sign of the difference
        is turned or the difference is 0, at most 1.
    """
    assert (first.signature, len(first.sums)) == (second.signature, len(second.sums)), "not the same examples"
    both = np.concatenate([first.sums, second.sums], 1)  # (N, 2K)
    count, width = len(both), first.sums.shape[1]

    def difference(sums: Array) -> Array:
        return second.score(sums[..., width:]) - first.score(sums[..., :width])

    generator, found = np.random.default_rng(seed), []
    rows = max(1, RESAMPLE_CELLS // count)
    for begin in range(0, resamples, rows):
        drawn = generator.multinomial(count, np.full(count, 1 / count), size=min(rows, resamples - begin))
        found.append(difference(drawn.astype(np.float64) @ both))
    values = np.concatenate(found)
    low, high = np.quantile(values, [0.025, 0.975]).tolist()
    p_value = min(1.0, 2 * min(float((values <= 0).mean()), float((values >= 0).mean())))
    return BootstrapDifference(float(difference(both.sum(0))), low, high, p_value)


def ratio(sums: Array) -> Array:
    """A sum of values over a count: cross-entropy, accuracy.

    >>> ratio(np.array([3.0, 4.0])).item()
    0.75
    """
    return np.divide(sums[..., 0], sums[..., 1], out=np.zeros(sums.shape[:-1]), where=sums[..., 1] > 0)


def f1_score(sums: Array) -> Array:
    """F1 of the sums of (correct, predicted, true) items; 0 where there are none.

    >>> f1_score(np.array([2.0, 4.0, 4.0])).item()
    0.5
    """
    items = sums[..., 1] + sums[..., 2]
    return np.divide(2 * sums[..., 0], items, out=np.zeros(items.shape), where=items > 0)
