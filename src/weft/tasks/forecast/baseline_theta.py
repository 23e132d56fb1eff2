"""The Theta method: half of the linear trend of a series, and exponential smoothing around it.

The standard method (Assimakopoulos and Nikolopoulos 2000) and the dynamic optimized one (Fiorucci et al. 2016), both in
the state space form of the latter. With level l, smoothing parameter alpha, intercept A and slope B of a line through
the values, the forecast of the next value, after t of them, is

    mu = l + (1 - 1 / theta) ((1 - alpha)^t A + (1 - (1 - alpha)^(t + 1)) B / alpha)

The standard method has theta = 2 and the line through all values; the dynamic one fits theta, and its line is that of
the values so far. Seasonal series are adjusted by classical decomposition before, and their forecasts after. A missing
value, and one of the future, counts as the forecast of it.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from weft.tasks.forecast.baseline_fitting import PROBLEMS_AT_ONCE, least_squares
from weft.tasks.forecast.baseline_series import (
    Array,
    Flags,
    PaddedSeries,
    RowIndices,
    by_step,
    fit_line,
    interpolated,
    seasonal_indices,
)

BURN_IN = 3  # first errors, which are not counted: the line through two values is exact
LOW_ALPHA, HIGH_ALPHA = 0.1, 0.99
SEASONAL_TEST = NormalDist().inv_cdf(0.95)


class _Problems(NamedTuple):
    """R series, adjusted for season; their parameters are (R, C, 3): alpha and theta without bounds, and the level."""

    values: Array  # (T, R)
    observed: Flags  # (T, R)
    scale: Array  # (R)
    intercept: Array  # (R), of the line through all values
    slope: Array
    dynamic: bool

    def subset(self, rows: RowIndices) -> _Problems:
        return _Problems(
            self.values[:, rows],
            self.observed[:, rows],
            self.scale[rows],
            self.intercept[rows],
            self.slope[rows],
            self.dynamic,
        )

    def parameters(self, points: Array) -> tuple[Array, Array, Array]:
        alpha = LOW_ALPHA + (HIGH_ALPHA - LOW_ALPHA) / (1 + np.exp(-points[..., 0]))
        theta = 1 + np.exp(np.minimum(points[..., 1], 20)) if self.dynamic else np.full_like(alpha, 2.0)
        return alpha, theta, points[..., 2] * self.scale[:, None]

    def forecasts(self, points: Array, steps: int) -> Array:
        """One-step forecasts of all steps, beyond the values those of the future: (steps, R, C)."""
        alpha, theta, level = self.parameters(points)
        weight = 1 - 1 / theta
        intercept, slope = (
            np.zeros_like(alpha) if self.dynamic else np.repeat(line[:, None], alpha.shape[1], 1)
            for line in (self.intercept, self.slope)
        )
        mean = np.zeros_like(alpha)
        power = np.ones_like(alpha)  # (1 - alpha)^t
        forecasts = np.empty((steps, *alpha.shape))
        for step in range(steps):
            next_power = power * (1 - alpha)
            forecast = level + weight * (power * intercept + (1 - next_power) / alpha * slope)
            if self.dynamic and step == 0:
                forecast = np.where(self.observed[0, :, None], self.values[0, :, None], forecast)
            forecasts[step] = forecast
            value = forecast
            if step < len(self.values):
                value = np.where(self.observed[step, :, None], self.values[step, :, None], forecast)
            level = alpha * value + (1 - alpha) * level
            power = next_power
            if self.dynamic:
                if step:
                    slope = ((step - 1) * slope + 6 * (value - mean) / (step + 1)) / (step + 2)
                mean = (step * mean + value) / (step + 1)
                intercept = mean - slope * (step + 2) / 2
        return forecasts

    def errors(self, points: Array) -> Array:
        """(T, R, C)"""
        errors = self.values[..., None] - self.forecasts(points, len(self.values))
        errors[~self.observed] = 0
        errors[:BURN_IN] = 0
        return errors

    def residuals(self, points: Array) -> Array:
        """What least squares minimizes, (R, C, T): errors over the scale."""
        residuals: Array = (self.errors(points) / self.scale[:, None]).transpose(1, 2, 0)
        return residuals


def forecast_theta(series: PaddedSeries, horizon: int, season: int, *, dynamic: bool) -> tuple[Array, Array]:
    """Mean and standard deviation of the next values, (N, h) each; NaN for series of fewer than 4 values.

    Args:
        series: N series.
        horizon: h
        season: m; series whose autocorrelation at m is significant and that have two seasons are adjusted.
        dynamic: Dynamic optimized Theta; otherwise the standard method.
    """
    count, size = series.values.shape
    seasons, ratio = _seasons(series, season, size + horizon)
    with np.errstate(all="ignore"):
        present = seasons[:, :size]
        adjusted = np.where(ratio[:, None], series.values / present, series.values - present)
    numbers = series.observed.sum(1)
    scale = np.nansum(np.abs(adjusted), 1) / np.maximum(numbers, 1)
    scale = np.where(scale > 0, scale, 1.0)
    mean, deviation = np.full((count, horizon), np.nan), np.full((count, horizon), np.nan)
    able = np.flatnonzero(numbers > BURN_IN)
    able = able[np.argsort(series.lengths[able], kind="stable")]
    for begin in range(0, len(able), PROBLEMS_AT_ONCE):
        rows = able[begin : begin + PROBLEMS_AT_ONCE]
        some = PaddedSeries(adjusted, series.lengths).subset(rows)
        intercept, slope, _ = fit_line(some.values)
        batch = _Problems(np.nan_to_num(some.values).T.copy(), some.observed.T, scale[rows], intercept, slope, dynamic)
        starts = np.zeros((len(rows), 4, 3))
        starts[..., 0] = [-2.0, 0.0, 0.0, 2.0]
        starts[..., 1] = [0.0, 0.0, 2.0, 0.0]  # theta = 2, of the third start 8.4
        starts[..., 2] = (some.values[:, 0] / scale[rows])[:, None] * [0.5, 0.5, 1.0, 1.0]
        free = np.ones((len(rows), 3), bool)
        free[:, 1] = dynamic
        points = least_squares(batch, starts, free)[:, None]
        forecasts = batch.forecasts(points, some.values.shape[1] + horizon)[..., 0].T
        mean[rows] = np.take_along_axis(forecasts, some.lengths[:, None] + np.arange(horizon), 1)
        sigma = np.sqrt(np.square(batch.errors(points)[..., 0]).sum(0) / np.maximum(numbers[rows] - BURN_IN - 2, 1))
        alpha = batch.parameters(points)[0]
        deviation[rows] = sigma[:, None] * np.sqrt(1 + np.arange(horizon) * np.square(alpha))
    steps = np.take_along_axis(seasons, series.lengths[:, None] + np.arange(horizon), 1)
    return np.where(ratio[:, None], mean * steps, mean + steps), np.where(ratio[:, None], deviation * steps, deviation)


def _seasons(series: PaddedSeries, season: int, steps: int) -> tuple[Array, Flags]:
    """The season of each step, (N, steps), and whether it is a ratio to the level: of series of positive values."""
    observed = series.observed
    ratio = (np.where(observed, series.values, 1).min(1) > 0) & (series.lengths > 0)
    seasons = np.where(ratio[:, None], 1.0, 0.0) * np.ones(steps)
    rows = np.flatnonzero((series.lengths >= 2 * season) & (season >= 4))
    if len(rows):
        rows = rows[_is_seasonal(series.subset(rows), season)]
    for kind in (True, False):
        some = rows[ratio[rows] == kind]
        if len(some):
            seasons[some] = by_step(seasonal_indices(series.subset(some), season, ratio=kind), steps)
    return seasons, ratio


def _is_seasonal(series: PaddedSeries, season: int) -> Flags:
    """Whether the autocorrelation at the season is above its 90 % bound, given those at smaller lags."""
    inside = np.arange(series.values.shape[1]) < series.lengths[:, None]
    values = interpolated(series)
    means = np.where(inside, values, 0).sum(1) / np.maximum(series.lengths, 1)
    centered = np.where(inside, values - means[:, None], 0)
    variance = np.square(centered).sum(1)
    products = np.stack([(centered[:, lag:] * centered[:, :-lag]).sum(1) for lag in range(1, season + 1)], 1)
    correlations = products / np.where(variance > 0, variance, 1)[:, None]
    bound = SEASONAL_TEST * np.sqrt((1 + 2 * np.square(correlations[:, :-1]).sum(1)) / np.maximum(series.lengths, 1))
    seasonal: Flags = np.abs(correlations[:, -1]) > bound
    return seasonal
