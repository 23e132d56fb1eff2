"""Exponential smoothing in state space form (Hyndman et al. 2008), for thousands of series at once.

A model is named by its error, trend and season: N none, A additive, D additive and damped, M multiplicative. With
level l, trend b and season s, all of the previous step (s of the previous season), the forecast of the next value is

    mu = l + phi b + s   or   mu = (l + phi b) s

and an error e = y - mu corrects the states: l += phi b + alpha e, b = phi b + beta e, s += gamma e (the multiplicative
season: e / s for level and trend, e / (l + phi b) for the season). Additive and multiplicative errors have the same
recursion and differ in their likelihood and their intervals. A missing value corrects nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    seasonal_indices,
)

ETS_MODELS = (
    *("ANN", "AAN", "ADN", "MNN", "MAN", "MDN"),
    *("ANA", "AAA", "ADA", "MNA", "MAA", "MDA"),
    *("MNM", "MAM", "MDM"),
)
FIRST_SEASONS = 5  # of which the seasonal states at the start are the mean deviations
LOW_PHI, HIGH_PHI = 0.8, 0.98
TREND_PENALTY = 20.0  # of beta / alpha: a trend that follows each value forecasts badly, most of all in short series
START_POINTS = [  # alpha, beta / alpha, gamma / (1 - alpha), phi within its range
    (0.05, 0.05, 0.05, 0.8),
    (0.2, 0.05, 0.3, 0.8),
    (0.5, 0.1, 0.1, 0.8),
    (0.8, 0.1, 0.3, 0.8),
    (0.95, 0.5, 0.05, 0.8),
]


class States(NamedTuple):
    """Smoothing parameters and the states before the first value; R rows, C variants of each."""

    alpha: Array  # (R, C)
    beta: Array
    gamma: Array
    phi: Array
    level: Array
    trend: Array
    season: Array  # (m, R, C)


class SmoothingFit(NamedTuple):
    """One model, fitted to each of N series."""

    model: str
    states: States  # R = N, C = 1
    aicc: Array  # (N); infinite where the model does not apply
    sigma: Array  # (N), of the errors; relative to the forecast for multiplicative ones


def smooth(
    values: Array,
    observed: Array,
    states: States,
    *,
    steps: int,
    multiplicative: bool,
    trace: list[Array] | None = None,
) -> Array:
    """One-step forecasts of all steps; beyond the values, forecasts of the future.

    Args:
        values: (T, R), 0 where missing.
        observed: (T, R), 1 or 0.
        states: Parameters and initial states.
        steps: T and more.
        multiplicative: Whether the season is.
        trace: Gets the forecasts without the season of each step.

    Returns:
        (steps, R, C)
    """
    alpha, beta, gamma, phi = states.alpha, states.beta, states.gamma, states.phi
    level, trend, seasons = states.level.copy(), states.trend.copy(), states.season.copy()
    period = len(seasons)
    forecasts = np.empty((steps, *level.shape))
    damped, base, error, change = (np.empty_like(level) for _ in range(4))
    complete = np.array(observed.all(1))
    for step in range(steps):
        forecast = forecasts[step]
        np.multiply(trend, phi, out=damped)
        np.add(level, damped, out=base)
        if trace is not None:
            trace.append(base.copy())
        if period:
            season = seasons[step % period]
            (np.multiply if multiplicative else np.add)(base, season, out=forecast)
        else:
            forecast[:] = base
        if step >= len(values):
            level, base = base, level
            trend, damped = damped, trend
            continue
        np.subtract(values[step][:, None], forecast, out=error)
        if not complete[step]:
            error *= observed[step][:, None]
        if period and multiplicative:
            np.divide(error, base, out=change)
            change *= gamma
            np.divide(error, season, out=error)
            season += change
        elif period:
            np.multiply(error, gamma, out=change)
            season += change
        np.multiply(error, alpha, out=change)
        np.add(base, change, out=level)
        np.multiply(error, beta, out=change)
        np.add(damped, change, out=trend)
    return forecasts


class _Problems(NamedTuple):
    """R pairs of a series and a model with one kind of season; their parameters are (R, C, 6), without bounds."""

    values: Array  # (T, R), 0 where missing
    observed: Array  # (T, R), 1 or 0
    numbers: Array  # (R), observed values
    scale: Array  # (R), the mean absolute value
    indices: Array  # (m, R), seasonal states at the start; m = 0: none
    has_trend: Flags  # (R)
    damped: Flags
    relative: Flags  # multiplicative error
    multiplicative: bool  # season

    def subset(self, rows: RowIndices) -> _Problems:
        return _Problems(
            self.values[:, rows],
            self.observed[:, rows],
            self.numbers[rows],
            self.scale[rows],
            self.indices[:, rows],
            self.has_trend[rows],
            self.damped[rows],
            self.relative[rows],
            self.multiplicative,
        )

    def states(self, theta: Array) -> States:
        """alpha in (0, 1), beta in (0, alpha), gamma in (0, 1 - alpha), phi in its range; level and trend scaled."""
        portions = 1 / (1 + np.exp(-theta[..., :4]))
        alpha = 1e-4 + (1 - 2e-4) * portions[..., 0]
        has_trend, scale = self.has_trend[:, None], self.scale[:, None]
        return States(
            alpha,
            has_trend * alpha * portions[..., 1],
            (1 - alpha) * portions[..., 2],
            np.where(self.damped[:, None], LOW_PHI + (HIGH_PHI - LOW_PHI) * portions[..., 3], 1.0),
            theta[..., 4] * scale,
            has_trend * theta[..., 5] * scale,
            np.repeat(self.indices[..., None], theta.shape[1], -1),
        )

    def errors(self, theta: Array) -> tuple[Array, Array]:
        """Errors and one-step forecasts, (T, R, C) each; errors are relative to the forecast where the model's are."""
        forecasts = smooth(
            self.values, self.observed, self.states(theta), steps=len(self.values), multiplicative=self.multiplicative
        )
        errors = (self.values[..., None] - forecasts) * self.observed[..., None]
        if self.relative.any():
            forecasts[:, self.relative] = np.maximum(
                forecasts[:, self.relative], 1e-6 * self.scale[self.relative, None]
            )
            errors[:, self.relative] /= forecasts[:, self.relative]
        return errors, forecasts

    def residuals(self, theta: Array) -> Array:
        """What least squares minimizes, (R, C, T): errors over the scale.

        With relative errors the likelihood of a model is that of the errors times the geometric mean of the forecasts.
        A factor adds `TREND_PENALTY` times beta / alpha to the negative log-likelihood.
        """
        errors, forecasts = self.errors(theta)
        some = self.relative
        if some.any():
            logarithms = np.einsum("trc,tr->rc", np.log(forecasts[:, some]), self.observed[:, some])
            errors[:, some] *= np.exp(logarithms / self.numbers[some, None])
        portion = self.has_trend[:, None] / (1 + np.exp(-theta[..., 1]))  # beta / alpha
        errors *= np.exp(TREND_PENALTY * portion / self.numbers[:, None]) / self.scale[:, None]
        residuals: Array = errors.transpose(1, 2, 0)
        return residuals


def fit_smoothing(series: PaddedSeries, season: int, models: Sequence[str]) -> dict[str, SmoothingFit]:
    """Fits models by maximum likelihood: smoothing parameters, initial level and trend.

    Seasonal models apply to series of at least two seasons, multiplicative ones to positive values, and every model to
    series with at least two more values than it has parameters.
    """
    fits: dict[str, SmoothingFit] = {}
    for kind in ("N", "A", "M"):
        of_kind = [model for model in models if model[2] == kind]
        if of_kind:
            fits |= _fit_kind(series, season, of_kind)
    return fits


def _fit_kind(series: PaddedSeries, season: int, models: list[str]) -> dict[str, SmoothingFit]:
    """Models with the same kind of season: they run in the same recursions."""
    count, kind = len(series.values), models[0][2]
    numbers = series.observed.sum(1)
    has_trend, damped, relative = (
        np.array([model[index] in letters for model in models]) for index, letters in ((1, "AD"), (1, "D"), (0, "M"))
    )
    seasonal = kind != "N"
    parameters = 3 + 2 * has_trend + damped + seasonal * season  # with the initial states and the variance
    positive = np.where(series.observed, series.values, 1).min(1) > 0
    applies = (positive[:, None] | ~(relative | (kind == "M"))) & (numbers[:, None] > parameters + 1)  # (N, M)
    if seasonal:
        applies &= ((series.lengths >= 2 * season) & (season > 1))[:, None]
    level, mean, trend, indices = _initial_states(series, season, kind)
    scale = np.nansum(np.abs(series.values), 1) / np.maximum(numbers, 1)
    scale = np.where(scale > 0, scale, 1.0)

    theta = np.zeros((count, len(models), 6))
    aicc, sigma = np.full((count, len(models)), np.inf), np.zeros((count, len(models)))
    always = np.ones(len(models), bool)
    free = np.stack([always, has_trend, always & seasonal, damped, always, has_trend], 1)  # (M, 6)

    def problems(rows: RowIndices, columns: RowIndices) -> _Problems:
        some = series.subset(rows)
        return _Problems(
            np.nan_to_num(some.values).T.copy(),
            some.observed.T.astype(np.float64),
            numbers[rows].astype(np.float64),
            scale[rows],
            indices[rows].T,
            has_trend[columns],
            damped[columns],
            relative[columns],
            kind == "M",
        )

    pairs = np.argwhere(applies)
    pairs = pairs[np.argsort(series.lengths[pairs[:, 0]], kind="stable")]
    for begin in range(0, len(pairs), PROBLEMS_AT_ONCE):
        rows, columns = pairs[begin : begin + PROBLEMS_AT_ONCE].T
        batch = problems(rows, columns)
        starts = np.zeros((len(rows), len(START_POINTS), 6))
        starts[..., :4] = _logit(np.array(START_POINTS))
        starts[..., 4] = (np.where(has_trend[columns], level[rows], mean[rows]) / scale[rows])[:, None]
        starts[..., 5] = (trend[rows] / scale[rows])[:, None]
        found = least_squares(batch, starts, free[columns])
        theta[rows, columns] = found
        with np.errstate(all="ignore"):
            squares = np.square(batch.residuals(found[:, None])[:, 0]).sum(1)  # with the penalty
            errors = batch.errors(found[:, None])[0][..., 0]
            n, k = numbers[rows], parameters[columns]
            likelihood = n * np.log((squares + 1e-16 * n) * scale[rows] ** 2)
            aicc[rows, columns] = likelihood + 2 * k + 2 * k * (k + 1) / (n - k - 1)
            sigma[rows, columns] = np.sqrt(np.square(errors).sum(0) / (n - k))
    return {
        model: SmoothingFit(
            model,
            problems(np.arange(count), np.full(count, index)).states(theta[:, index, None]),
            np.where(np.isnan(aicc[:, index]), np.inf, aicc[:, index]),
            sigma[:, index],
        )
        for index, model in enumerate(models)
    }


def _logit(portion: Array) -> Array:
    logits: Array = np.log(portion / (1 - portion))
    return logits


def _initial_states(series: PaddedSeries, season: int, kind: str) -> tuple[Array, Array, Array, Array]:
    """Of the first values: start of a line through them, mean, slope of the line; and the seasonal states (N, m)."""
    adjusted, indices = series.values, np.empty((len(series.values), 0))
    if kind != "N":
        indices = seasonal_indices(series, season, ratio=kind == "M", seasons=FIRST_SEASONS)
        steps = by_step(indices, adjusted.shape[1])
        adjusted = adjusted / steps if kind == "M" else adjusted - steps
    intercept, slope, mean = fit_line(adjusted[:, : max(10, 2 * season if kind != "N" else 0)])
    return intercept, mean, slope, indices


def forecast_smoothing(series: PaddedSeries, fit: SmoothingFit, horizon: int) -> tuple[Array, Array]:
    """Mean and standard deviation of the next values, (N, h) each; NaN where the model does not apply."""
    size = series.values.shape[1]
    trace: list[Array] = []
    with np.errstate(all="ignore"):
        forecasts = smooth(
            np.nan_to_num(series.values).T,
            series.observed.T.astype(np.float64),
            fit.states,
            steps=size + horizon,
            multiplicative=fit.model[2] == "M",
            trace=trace,
        )[..., 0].T  # (N, T + h)
        steps = series.lengths[:, None] + np.arange(horizon)
        mean = np.take_along_axis(forecasts, steps, 1)
        base = np.take_along_axis(np.stack(trace)[..., 0].T, steps, 1)
        deviation = _standard_deviations(fit, mean, base)
    mean[~np.isfinite(fit.aicc)] = np.nan
    deviation[~np.isfinite(fit.aicc)] = np.nan
    return mean, deviation


def _standard_deviations(fit: SmoothingFit, mean: Array, base: Array) -> Array:
    """(N, h), by the formulas of Hyndman et al. (2008), chapter 6; with a multiplicative season an approximation.

    Args:
        fit: The model.
        mean: (N, h), forecasts.
        base: (N, h), forecasts without the season.
    """
    alpha, beta, gamma, phi = (part for part in fit.states[:4])  # (N, 1)
    season, horizon = len(fit.states.season), mean.shape[1]
    ahead = np.arange(1, horizon)  # j = 1 ... h - 1
    effect = alpha + beta * np.cumsum(phi**ahead, 1)  # (N, h - 1), of an error on the value j steps later
    variance = np.square(fit.sigma)[:, None]
    if fit.model[2] == "A":
        effect = effect + gamma * (ahead % season == 0)
    if fit.model[0] == "A":
        sums = np.concatenate([np.zeros_like(alpha), np.cumsum(np.square(effect), 1)], 1)
        additive: Array = np.sqrt(variance * (1 + sums))
        return additive
    center = base if fit.model[2] == "M" else mean
    theta = np.empty_like(mean)
    for step in range(horizon):
        earlier = np.square(effect[:, :step]) * theta[:, :step][:, ::-1]
        theta[:, step] = np.square(center[:, step]) + variance[:, 0] * earlier.sum(1)
    spread = (1 + variance) * theta
    if fit.model[2] == "M":
        spread *= (1 + np.square(gamma) * variance) ** (np.arange(horizon) // season)
    relative: Array = np.abs(mean / center) * np.sqrt(np.maximum(spread - np.square(center), 0))
    return relative
