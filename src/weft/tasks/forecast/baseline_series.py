"""Many series as one array, and their classical decomposition: what baselines start from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
RowIndices = np.ndarray[Any, np.dtype[np.int64]]


class PaddedSeries(NamedTuple):
    """N series, aligned at their first value."""

    values: Array  # (N, T), NaN where missing and after the end
    lengths: RowIndices  # (N), steps from the first value to the end, missing ones included

    @property
    def observed(self) -> Flags:
        return ~np.isnan(self.values)

    def subset(self, rows: RowIndices) -> PaddedSeries:
        """Some of the series, without the steps that none of them has."""
        lengths = self.lengths[rows]
        return PaddedSeries(self.values[rows, : max(1, lengths.max(initial=0))], lengths)


def pad_series(series: Sequence[Array]) -> PaddedSeries:
    """Series (T,) of any lengths as one array. Missing values at the start are dropped: nothing is known before."""
    trimmed = []
    for values in series:
        present = np.flatnonzero(~np.isnan(values))
        trimmed.append(np.asarray(values[present[0] :] if len(present) else values[:0], np.float64))
    lengths = np.array(list(map(len, trimmed)), np.int64)
    padded = np.full((len(series), max(1, lengths.max(initial=0))), np.nan)
    for row, values in zip(padded, trimmed, strict=True):
        row[: len(values)] = values
    return PaddedSeries(padded, lengths)


def interpolated(series: PaddedSeries) -> Array:
    """The values with missing ones between two others interpolated, and the last value repeated to the end: (N, T)."""
    filled: Array = series.values.copy()
    steps = np.arange(filled.shape[1])
    for row in filled[np.isnan(filled).any(1)]:
        present = ~np.isnan(row)
        if present.any():
            row[:] = np.interp(steps, steps[present], row[present])
    return filled


def moving_average(filled: Array, lengths: RowIndices, season: int) -> Array:
    """The centred mean over a season, (N, T); NaN where the season around a step is not complete.

    For an even number of steps the first and the last of `season + 1` count half.
    """
    half, even = season // 2, season % 2 == 0
    count, size = filled.shape
    average = np.full((count, size), np.nan)
    if size >= season + even:
        total = np.concatenate([np.zeros((count, 1)), filled.cumsum(1)], 1)
        sums = total[:, season:] - total[:, :-season]  # (N, T - m + 1)
        average[:, half : size - half] = ((sums[:, :-1] + sums[:, 1:]) / 2 if even else sums) / season
    average[np.arange(size) >= (lengths - half)[:, None]] = np.nan
    return average


def seasonal_indices(series: PaddedSeries, season: int, *, ratio: bool, seasons: int | None = None) -> Array:
    """The mean deviation of each step of a season from the moving average, (N, m), by classical decomposition.

    Args:
        series: At least two seasons each.
        season: m
        ratio: Ratios to the average, with mean 1, for positive values; otherwise differences, with mean 0.
        seasons: Only the first of them are used; None: all.
    """
    average = moving_average(interpolated(series), series.lengths, season)
    with np.errstate(all="ignore"):
        deviations = series.values / average if ratio else series.values - average
    if seasons is not None:
        deviations = deviations[:, : (seasons + 1) * season]
    count, size = deviations.shape
    whole = -(-size // season) * season
    deviations = np.concatenate([deviations, np.full((count, whole - size), np.nan)], 1).reshape(count, -1, season)
    usable = np.isfinite(deviations)
    numbers = usable.sum(1)
    neutral = 1.0 if ratio else 0.0
    sums = np.where(usable, deviations, 0).sum(1)
    indices: Array = np.divide(sums, numbers, out=np.full(sums.shape, neutral), where=numbers > 0)
    means = indices.mean(1, keepdims=True)
    if not ratio:
        indices -= means
        return indices
    ratios: Array = np.divide(indices, means, out=np.ones_like(indices), where=means > 0)
    return np.clip(ratios, 0.01, None)


def by_step(indices: Array, steps: int) -> Array:
    """Seasonal indices (N, m) repeated over time, (N, steps)."""
    return indices[:, np.arange(steps) % indices.shape[1]]


def fit_line(values: Array) -> tuple[Array, Array, Array]:
    """Intercept and slope of the least squares line through values (N, T) at times 1, 2, ..., and their mean."""
    weight = ~np.isnan(values) * 1.0
    time = np.arange(1.0, weight.shape[1] + 1)
    number = np.maximum(weight.sum(1), 1)
    filled = np.nan_to_num(values)
    mean, mean_time = filled.sum(1) / number, weight @ time / number
    deviations = (time - mean_time[:, None]) * weight
    variation = np.square(deviations).sum(1)
    slope = np.divide((deviations * filled).sum(1), variation, out=np.zeros(len(number)), where=variation > 0)
    return mean - slope * mean_time, slope, mean
