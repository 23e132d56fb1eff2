"""Scores of forecasts at cutoffs: what evaluation and backtests compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from weft.data.column import IntArray
from weft.metrics.forecast import INTERVALS, QUANTILE_LEVELS, ForecastScores, QuantileForecast, seasonal_scale
from weft.tasks.forecast.linear import Array
from weft.tasks.forecast.model import SeriesRows, medians

Forecasters = Callable[[SeriesRows], Mapping[str, Array]]  # the quantiles (N, H, Q) after the ends of series, by name
METRIC_TITLES = {"scaled_crps": "scaled CRPS", "smape": "sMAPE"}  # of metrics that are not written in capitals


def score(quantiles: Array, targets: Array, history: SeriesRows, season: int) -> ForecastScores:
    """The scores of quantiles (N, H, Q) of targets (N, H), in units of the seasonal differences of what was before."""
    found = QuantileForecast(medians(quantiles), quantiles, QUANTILE_LEVELS)
    return ForecastScores.of(targets, found, seasonal_scale(history.targets, season), season=season)


def scores_at(
    forecast: Forecasters, rows: SeriesRows, cutoffs: IntArray, horizon: int, season: int
) -> dict[str, ForecastScores]:
    """The scores of forecasters at one cutoff of each series; series with nothing before or after it are left out."""
    lengths = np.array([len(row) for row in rows.targets])
    chosen = np.flatnonzero((cutoffs > 0) & (cutoffs < lengths))
    history = rows.at(chosen).until(cutoffs[chosen])
    targets = np.full((len(chosen), horizon), np.nan)
    for place, number in enumerate(chosen.tolist()):
        after = rows.targets[number][cutoffs[number] : cutoffs[number] + horizon]
        targets[place, : len(after)] = after
    return {name: score(part, targets, history, season) for name, part in forecast(history).items()}


def summed(parts: list[dict[str, ForecastScores]]) -> dict[str, ForecastScores]:
    """The scores of several windows together."""
    found = dict(parts[0])
    for part in parts[1:]:
        found = {name: own + part[name] for name, own in found.items()}
    return found


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are defined."""
    return {name: value for name, value in metrics.items() if np.isfinite(value)}


def lines_of(metrics: Mapping[str, float]) -> list[str]:
    """Metrics for people, one in each line."""
    names = [name for name in ("mase", "smape", "wape", "rmse", "scaled_crps", "msis") if name in metrics]
    lines = [f"{METRIC_TITLES.get(name, name.upper()):<14} {metrics[name]:.4f}" for name in names]
    for percent in INTERVALS:
        if f"coverage_{percent}" in metrics:
            lines.append(f"{f'coverage {percent} %':<14} {metrics[f'coverage_{percent}']:.3f}")
    return lines
