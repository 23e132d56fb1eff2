"""Conformal calibration of predictive quantiles on held-out windows.

Each quantile keeps its side of the median; its distance from the median is multiplied by a factor for each step of the
horizon, so that the share of held-out values on its side is its level. Quantiles never cross.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from weft.metrics.forecast import QUANTILE_LEVELS

Array = np.ndarray[Any, np.dtype[np.float64]]

MEDIAN = QUANTILE_LEVELS.index(0.5)
NORMAL_SCORES = np.array([NormalDist().inv_cdf(level) for level in QUANTILE_LEVELS])
POOLED = 200  # scores of neighbouring steps are pooled until there are as many
PRIOR_SCORES = 10.0  # scores that a factor of 1 is worth
LARGEST_FACTOR = 20.0


def normal_quantiles(means: Array, deviations: Array) -> Array:
    """The quantiles (..., Q) of normal distributions."""
    found: Array = means[..., None] + deviations[..., None] * NORMAL_SCORES
    return found


def ordered(quantiles: Array) -> Array:
    """Quantiles that do not cross: none is nearer to the median than those between them."""
    upper = np.maximum.accumulate(quantiles[..., MEDIAN:], -1)
    lower = np.minimum.accumulate(quantiles[..., MEDIAN::-1], -1)[..., ::-1]
    return np.concatenate([lower[..., :-1], upper], -1)


@dataclass(frozen=True)
class Calibration:
    """Factors (H, Q) of the distances from the median."""

    factors: Array

    @classmethod
    def none(cls, horizon: int) -> Calibration:
        return cls(np.ones((horizon, len(QUANTILE_LEVELS))))

    @classmethod
    def fit(cls, quantiles: Array, targets: Array) -> Calibration:
        """The factors that give each quantile its level on held-out windows.

        Args:
            quantiles: (N, H, Q)
            targets: (N, H), NaN where missing.
        """
        horizon = targets.shape[1]
        medians = quantiles[..., MEDIAN]
        factors = np.ones((horizon, len(QUANTILE_LEVELS)))
        for column, level in enumerate(QUANTILE_LEVELS):
            if column == MEDIAN:
                continue
            widths = quantiles[..., column] - medians
            with np.errstate(invalid="ignore", divide="ignore"):
                scores = np.where(widths != 0, (targets - medians) / widths, np.nan)
            for step in range(horizon):
                pooled = _pooled(scores, step)
                factors[step, column] = _factor(pooled, max(level, 1 - level))
        return cls(factors)

    def apply(self, quantiles: Array) -> Array:
        """The calibrated quantiles (N, H', Q) of windows; steps beyond the horizon have the factors of the last."""
        steps = np.minimum(np.arange(quantiles.shape[1]), len(self.factors) - 1)
        medians = quantiles[..., MEDIAN, None]
        return ordered(medians + self.factors[steps] * (quantiles - medians))


def _pooled(scores: Array, step: int) -> Array:
    """The scores of a step, and of as many steps on both sides of it as are needed to have enough."""
    for reach in range(scores.shape[1]):
        near = scores[:, max(0, step - reach) : step + reach + 1]
        near = near[~np.isnan(near)]
        if len(near) >= POOLED:
            break
    return near


def _factor(scores: Array, level: float) -> float:
    """The least factor that covers a share of scores, as conformal prediction counts; near 1 where they are few."""
    if not len(scores):
        return 1.0
    place = min(int(np.ceil((len(scores) + 1) * level)), len(scores)) - 1
    factor = float(np.partition(scores, place)[place].clip(0, LARGEST_FACTOR))
    return (len(scores) * factor + PRIOR_SCORES) / (len(scores) + PRIOR_SCORES)


def quantile_at(quantiles: Array, level: float) -> Array:
    """The quantiles (...) of any level between 0 and 1, from those of `QUANTILE_LEVELS` (..., Q).

    Between two levels it is interpolated over normal scores, beyond the outer ones extrapolated.

    >>> float(quantile_at(normal_quantiles(np.array(1.0), np.array(2.0)), 0.99).round(3))
    5.653
    """
    score = NormalDist().inv_cdf(level)
    right = int(np.searchsorted(NORMAL_SCORES, score).clip(1, len(QUANTILE_LEVELS) - 1))
    below, above = NORMAL_SCORES[right - 1], NORMAL_SCORES[right]
    share = (score - below) / (above - below)
    found: Array = quantiles[..., right - 1] + share * (quantiles[..., right] - quantiles[..., right - 1])
    return found
