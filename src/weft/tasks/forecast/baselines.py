"""The simple forecasters that everything else has to beat: naive ones, exponential smoothing, Theta.

All series are forecast at once (`forecast_baselines`). A missing value (NaN) changes no state. Where a model does not
apply to a series, its forecast is that of a simpler one: Holt-Winters needs two seasons (multiplicative: positive
values), else it is Holt's, then simple exponential smoothing; with fewer values than the parameters of a model and two
more, the last value is repeated. A constant series is continued with a standard deviation of 0; so is a single value. A
series without any value has NaN as its forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from weft.tasks.forecast.baseline_series import Array, PaddedSeries, pad_series
from weft.tasks.forecast.baseline_smoothing import ETS_MODELS, SmoothingFit, fit_smoothing, forecast_smoothing
from weft.tasks.forecast.baseline_theta import forecast_theta


class Forecasts(NamedTuple):
    """Normal distributions of the next h values of N series."""

    mean: Array  # (N, h)
    sigma: Array  # (N, h), standard deviations

    def quantiles(self, levels: Sequence[float]) -> Array:
        """(N, h, Q)"""
        scores = np.array(list(map(NormalDist().inv_cdf, levels)))
        quantiles: Array = self.mean[..., None] + self.sigma[..., None] * scores
        return quantiles

    def where_missing(self, other: Forecasts) -> Forecasts:
        """These forecasts, and the other ones for series for which these are not defined."""
        defined = (np.isfinite(self.mean) & np.isfinite(self.sigma)).all(1, keepdims=True)
        return Forecasts(np.where(defined, self.mean, other.mean), np.where(defined, self.sigma, other.sigma))

    def within(self, last: Forecasts, series: PaddedSeries) -> Forecasts:
        """These forecasts, kept from exploding: near the range of the values, and not much wider than a random walk."""
        values, observed = series.values, series.observed
        low, high = np.where(observed, values, np.inf).min(1), np.where(observed, values, -np.inf).max(1)
        reach = MOST_RANGES * (high - low)
        mean = np.clip(self.mean, (low - reach)[:, None], (high + reach)[:, None])
        widest = np.where(last.sigma > 0, MOST_SPREAD * last.sigma, np.inf)
        return Forecasts(np.where(np.isfinite(reach)[:, None], mean, self.mean), np.minimum(self.sigma, widest))


def naive(series: PaddedSeries, horizon: int, season: int = 1) -> Forecasts:
    """The last value."""
    return seasonal_naive(series, horizon, 1)


def seasonal_naive(series: PaddedSeries, horizon: int, season: int) -> Forecasts:
    """The last value at the same step of the season; the last value of all where there is none."""
    steps = np.arange(series.values.shape[1])
    last = np.where(series.observed, steps, -1).max(1)
    rows = np.arange(len(last))
    mean = np.empty((len(last), horizon))
    for ahead in range(horizon):
        same = (steps - series.lengths[:, None] - ahead) % season == 0
        chosen = np.where(series.observed & same, steps, -1).max(1)
        mean[:, ahead] = series.values[rows, np.where(chosen >= 0, chosen, last)]
    lag = np.where(series.lengths > season, season, 1)
    differences = np.full(series.values.shape, np.nan)
    for size in {1, season}:
        some = lag == size
        differences[some, size:] = series.values[some, size:] - series.values[some, :-size]
    waves = np.where(lag[:, None] > 1, np.arange(horizon) // season + 1, np.arange(horizon) + 1)
    return Forecasts(mean, _root_mean_square(differences)[:, None] * np.sqrt(waves))


def drift(series: PaddedSeries, horizon: int, season: int = 1) -> Forecasts:
    """The line through the first and the last value."""
    steps = np.arange(series.values.shape[1])
    last = np.maximum(np.where(series.observed, steps, 0).max(1), 0)
    rows = np.arange(len(last))
    slope = (series.values[rows, last] - series.values[:, 0]) / np.maximum(last, 1)
    ahead = series.lengths[:, None] - last[:, None] + np.arange(horizon)  # steps from the last value
    residuals = np.diff(series.values, axis=1) - slope[:, None]
    sigma = _root_mean_square(residuals)[:, None] * np.sqrt(ahead * (1 + ahead / np.maximum(last, 1)[:, None]))
    return Forecasts(series.values[rows, last][:, None] + slope[:, None] * ahead, sigma)


def _root_mean_square(differences: Array) -> Array:
    """Of what is not missing; 0 where everything is."""
    present = ~np.isnan(differences)
    squares = np.where(present, np.square(differences), 0).sum(1)
    root: Array = np.sqrt(squares / np.maximum(present.sum(1), 1))
    return root


NAIVE: dict[str, Callable[[PaddedSeries, int, int], Forecasts]] = {
    "naive": naive,
    "snaive": seasonal_naive,
    "drift": drift,
}
SMOOTHING = {  # models, and simpler ones where they do not apply; of several, the one with the lowest AICc
    "ses": (("ANN",),),
    "holt": (("AAN",), ("ANN",)),
    "damped": (("ADN",), ("ANN",)),
    "holt_winters": (("AAA",), ("AAN",), ("ANN",)),
    "holt_winters_multiplicative": (("MAM",), ("AAA",), ("AAN",), ("ANN",)),
    "ets": (ETS_MODELS,),
}
THETA = {"theta": False, "dynamic_theta": True}  # dynamic
MOST_RANGES = 3.0  # of the values, that a forecast may be beyond them
MOST_SPREAD = 4.0  # standard deviations of a random walk, which that of a forecast may reach
LAST_SEASONS = 8  # that smoothing and Theta read at least; older values say little about the next ones, and cost time
LAST_VALUES = {"smoothing": 192, "theta": 48}  # at least
BASELINES = (*NAIVE, *SMOOTHING, *THETA)


def forecast_baselines(
    series: Sequence[Array], horizon: int, season: int, names: Sequence[str] = BASELINES
) -> dict[str, Forecasts]:
    """Forecasts many series by several baselines; models of exponential smoothing are fitted once for all of them.

    Args:
        series: N arrays (T,) of any lengths; NaN: missing.
        horizon: h, the number of values to forecast.
        season: m, the steps of a season; 1: none.
        names: Some of `BASELINES`.

    Returns:
        A forecast for each name.

    >>> values = np.array([1.0, 2.0, 3.0, 2.0, 3.0, 4.0])
    >>> forecast_baselines([values], 3, 3, ["snaive"])["snaive"].mean
    array([[2., 3., 4.]])
    """
    padded = pad_series(series)
    last = naive(padded, horizon)
    recent = {
        name: pad_series([row[-max(LAST_SEASONS * season, least) :] for row in series])
        for name, least in LAST_VALUES.items()
    }
    models = {model for name in names for group in SMOOTHING.get(name, ()) for model in group}
    fits = fit_smoothing(recent["smoothing"], season, [model for model in ETS_MODELS if model in models])
    forecasts = {
        model: Forecasts(*forecast_smoothing(recent["smoothing"], fit, horizon)) for model, fit in fits.items()
    }
    found = {}
    for name in names:
        if name in NAIVE:
            found[name] = NAIVE[name](padded, horizon, season)
        elif name in THETA:
            own = Forecasts(*forecast_theta(recent["theta"], horizon, season, dynamic=THETA[name]))
            found[name] = own.where_missing(last).within(last, recent["theta"])
        else:
            choice = _selected(SMOOTHING[name][0], fits, forecasts)
            for simpler in SMOOTHING[name][1:]:
                choice = choice.where_missing(_selected(simpler, fits, forecasts))
            found[name] = choice.where_missing(last).within(last, recent["smoothing"])
    return found


def _selected(models: Sequence[str], fits: dict[str, SmoothingFit], forecasts: dict[str, Forecasts]) -> Forecasts:
    """The forecast of the model with the lowest AICc for each series."""
    chosen = np.stack([fits[model].aicc for model in models]).argmin(0)
    rows = np.arange(len(chosen))
    mean, sigma = (np.stack([forecasts[model][part] for model in models])[chosen, rows] for part in (0, 1))
    return Forecasts(mean, sigma)
