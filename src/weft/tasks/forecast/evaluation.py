"""Scores of forecasts at cutoffs: what evaluation and backtests compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft.data.column import IntArray
from weft.metrics.forecast import (
    INTERVALS,
    MASE,
    QUANTILE_LEVELS,
    ForecastScores,
    QuantileForecast,
    seasonal_scale,
    series_scores,
)
from weft.metrics.paired import ExampleStatistics, ratio
from weft.tasks.forecast.linear import Array
from weft.tasks.forecast.model import SeriesRows, medians

Forecasters = Callable[[SeriesRows], Mapping[str, Array]]  # the quantiles (N, H, Q) after the ends of series, by name
COMPARED = (MASE.name, "scaled_crps")  # the scores of paired tests
METRIC_TITLES = {"scaled_crps": "scaled CRPS", "smape": "sMAPE"}  # of metrics that are not written in capitals


def score(quantiles: Array, targets: Array, history: SeriesRows, season: int) -> ForecastScores:
    """The scores of quantiles (N, H, Q) of targets (N, H), in units of the seasonal differences of what was before."""
    found = QuantileForecast(medians(quantiles), quantiles, QUANTILE_LEVELS)
    return ForecastScores.of(targets, found, seasonal_scale(history.targets, season), season=season)


class ForecastWindow(NamedTuple):
    """What is forecast at one cutoff of each series.

    Attributes:
        chosen: the numbers of the series (N,) that have something before and after it.
        history: these series before it.
        targets: (N, H) the values after it, NaN where missing.
    """

    chosen: IntArray
    history: SeriesRows
    targets: Array


def window_at(rows: SeriesRows, cutoffs: IntArray, horizon: int) -> ForecastWindow:
    """The window at one cutoff of each series."""
    lengths = np.array([len(row) for row in rows.targets])
    chosen = np.flatnonzero((cutoffs > 0) & (cutoffs < lengths))
    history = rows.at(chosen).until(cutoffs[chosen])
    targets = np.full((len(chosen), horizon), np.nan)
    for place, number in enumerate(chosen.tolist()):
        after = rows.targets[number][cutoffs[number] : cutoffs[number] + horizon]
        targets[place, : len(after)] = after
    return ForecastWindow(chosen, history, targets)


def scores_at(
    forecast: Forecasters, rows: SeriesRows, cutoffs: IntArray, horizon: int, season: int
) -> dict[str, ForecastScores]:
    """The scores of forecasters at one cutoff of each series; series with nothing before or after it are left out."""
    _, history, targets = window_at(rows, cutoffs, horizon)
    return {name: score(part, targets, history, season) for name, part in forecast(history).items()}


def statistics_at(
    forecast: Forecasters, rows: SeriesRows, cutoffs: Sequence[IntArray], horizon: int, season: int
) -> dict[str, tuple[ExampleStatistics, ...]]:
    """The scores of forecasters on each series over some cutoffs, for paired tests: of each what COMPARED names."""
    sums: dict[str, dict[str, Array]] = {}
    for starts in cutoffs:
        chosen, history, targets = window_at(rows, starts, horizon)
        scales = seasonal_scale(history.targets, season)
        for name, part in forecast(history).items():
            scores = series_scores(targets, QuantileForecast(medians(part), part, QUANTILE_LEVELS), scales)
            own = sums.setdefault(name, {metric: np.zeros((len(rows.targets), 2)) for metric in COMPARED})
            for metric in COMPARED:
                known = np.isfinite(scores[metric])
                own[metric][chosen] += np.stack([np.where(known, scores[metric], 0.0), known], 1)
    signature = f"m:{season}|h:{horizon}|windows:{len(cutoffs)}|series:{len(rows.targets)}"
    return {
        name: tuple(
            ExampleStatistics(metric, "series", f"{metric}|{signature}", values, ratio, higher_is_better=False)
            for metric, values in own.items()
        )
        for name, own in sums.items()
    }


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
