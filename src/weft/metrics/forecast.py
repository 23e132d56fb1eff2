"""Scores of forecasts: errors scaled so that series of different levels compare, and scores of predicted quantiles.

A score is computed for each series, and its value is the mean over the series where it is defined. Missing true values
(NaN) are left out. The definitions are those of utilsforecast, MSIS that of the M4 competition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.metrics.metric import Metric

MASE = Metric("mase", per="series")
DECILES = tuple(level / 10 for level in range(1, 10))  # of pinball loss and scaled CRPS
QUANTILE_LEVELS = (0.025, 0.05, *DECILES, 0.95, 0.975)  # quantiles of a forecast
INTERVALS = (80, 95)  # %, of coverage
MSIS_INTERVAL = 95

Array = np.ndarray[Any, np.dtype[np.float64]]


class QuantileForecast(NamedTuple):
    """What is scored. N series, h steps, Q quantiles."""

    mean: Array  # (N, h), the point forecast
    quantiles: Array  # (N, h, Q)
    levels: tuple[float, ...]  # (Q), ascending, with the deciles

    def quantile(self, level: float) -> Array:
        """(N, h)

        Raises:
            KeyError: the level was not predicted.
        """
        for index, own in enumerate(self.levels):
            if math.isclose(own, level, abs_tol=1e-9):
                return self.quantiles[..., index]
        raise KeyError(level)


def seasonal_scale(history: Sequence[Array], season: int) -> Array:
    """The mean absolute difference of values that are one season apart, the scale of MASE; NaN where there are none.

    Args:
        history: N series (T,), the values before the forecast; NaN: missing.
        season: m, the steps of a season; 1: none.

    >>> seasonal_scale([np.array([1.0, 2.0, 4.0, np.nan, 5.0])], 1)
    array([1.5])
    """
    scales = np.full(len(history), np.nan)
    for index, values in enumerate(history):
        differences = np.abs(values[season:] - values[:-season])
        present = ~np.isnan(differences)
        if present.any():
            scales[index] = differences[present].mean()
    return scales


def series_scores(true: Array, forecast: QuantileForecast, scale: Array) -> dict[str, Array]:
    """Every score of every series, (N,) each; NaN where a score is not defined.

    Args:
        true: (N, h); NaN: missing.
        forecast: The predicted values and quantiles.
        scale: (N,), from `seasonal_scale`. MASE and MSIS are defined where it is above 0.
    """
    observed = ~np.isnan(true)
    steps = observed.sum(1)
    absolute = np.abs(true - forecast.mean)
    size = np.abs(true) + np.abs(forecast.mean)
    relative = np.divide(absolute, size, out=np.zeros_like(absolute), where=size > 0)
    positive_scale = np.where(scale > 0, scale, np.nan)

    def mean(values: Array) -> Array:
        return _ratio(np.where(observed, values, 0).sum(1), steps)

    mse, level = mean(absolute**2), mean(np.abs(true))
    pinball = mean(np.mean([_pinball(true, forecast.quantile(level), level) for level in DECILES], axis=0))
    scores = {
        MASE.name: mean(absolute) / positive_scale,
        "smape": mean(relative),
        "wape": _ratio(mean(absolute), level),
        "rmse": np.sqrt(mse),
        "mse": mse,
        "pinball": pinball,
        "scaled_crps": _ratio(2 * pinball, level),
    }
    for percent in INTERVALS:
        tail = (1 - percent / 100) / 2
        try:
            low, high = forecast.quantile(tail), forecast.quantile(1 - tail)
        except KeyError:  # not predicted
            continue
        if percent == MSIS_INTERVAL:
            outside = np.maximum(low - true, 0) + np.maximum(true - high, 0)
            scores["msis"] = mean(high - low + outside / tail) / positive_scale
        scores[f"coverage_{percent}"] = mean(((low <= true) & (true <= high)).astype(np.float64))
    return scores


@dataclass(frozen=True)
class ForecastScores:
    """The sums of the scores of series, and the number of series where each is defined.

    >>> history, true = [np.array([1.0, 3.0, 2.0])], np.array([[2.0, 4.0]])
    >>> flat = QuantileForecast(np.full((1, 2), 2.0), np.full((1, 2, 9), 2.0), DECILES)
    >>> scores = ForecastScores.of(true, flat, seasonal_scale(history, 1), season=1)
    >>> round(scores.metrics()["mase"], 3), scores.signature()
    (0.667, 'mase|m:1|series:1|steps:2')
    """

    totals: dict[str, float]
    counts: dict[str, int]
    season: int
    steps: int  # observed values that were scored
    series: int

    @classmethod
    def of(cls, true: Array, forecast: QuantileForecast, scale: Array, *, season: int) -> ForecastScores:
        """Score N series; arguments as in `series_scores`, and the season that `scale` is of."""
        scores = series_scores(true, forecast, scale)
        return cls(
            {name: float(np.nansum(values)) for name, values in scores.items()},
            {name: int((~np.isnan(values)).sum()) for name, values in scores.items()},
            season,
            int((~np.isnan(true)).sum()),
            len(true),
        )

    def __add__(self, other: ForecastScores) -> ForecastScores:
        assert (self.season, self.totals.keys()) == (other.season, other.totals.keys()), "not the same scores"
        return ForecastScores(
            {name: total + other.totals[name] for name, total in self.totals.items()},
            {name: count + other.counts[name] for name, count in self.counts.items()},
            self.season,
            self.steps + other.steps,
            self.series + other.series,
        )

    def metrics(self) -> dict[str, float]:
        """The mean of each score over the series where it is defined; NaN if there are none."""
        return {
            name: total / self.counts[name] if self.counts[name] else math.nan for name, total in self.totals.items()
        }

    def score(self) -> float:
        return self.metrics()[MASE.name]

    def signature(self, metric: str = MASE.name) -> str:
        """What exactly was measured: the metric, its season, the series where it is defined, and all steps."""
        season = f"|m:{self.season}" if metric in (MASE.name, "msis") else ""
        return f"{metric}{season}|series:{self.counts[metric]}|steps:{self.steps}"


def _pinball(true: Array, predicted: Array, level: float) -> Array:
    difference = true - predicted
    loss: Array = np.maximum(level * difference, (level - 1) * difference)
    return loss


def _ratio(part: Array, whole: Array) -> Array:
    """NaN where the whole is 0."""
    ratio: Array = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return ratio
