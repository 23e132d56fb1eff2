"""Baselines: recursions against loops over one series, missing values, series that are short or odd, intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from weft.tasks.forecast.baseline_series import fit_line, moving_average, pad_series, seasonal_indices
from weft.tasks.forecast.baseline_smoothing import ETS_MODELS, States, fit_smoothing, forecast_smoothing, smooth
from weft.tasks.forecast.baseline_theta import forecast_theta
from weft.tasks.forecast.baselines import BASELINES, Forecasts, forecast_baselines

SEASON, HORIZON = 4, 6


def seasonal_series(count=6, seed=0, size=48):
    """Positive series of different lengths with a season and a trend."""
    random = np.random.default_rng(seed)
    series = []
    for index in range(count):
        time = np.arange(size - 3 * index)
        level = 100 + time * random.normal(0, 0.5) + random.normal(0, 2, len(time)).cumsum()
        series.append(level * (1 + 0.2 * np.sin(2 * np.pi * time / SEASON)) + random.normal(0, 1, len(time)))
    return series


def one_step(values, states, steps, multiplicative):
    """The recursion of the module's docstring for one series; `states` are numbers and a list of seasons."""
    alpha, beta, gamma, phi, level, trend, seasons = states
    seasons, forecasts = list(seasons), []
    for step in range(steps):
        index = step % max(1, len(seasons))
        base = level + phi * trend
        season = seasons[index] if seasons else (1 if multiplicative else 0)
        mu = base * season if multiplicative else base + season
        forecasts.append(mu)
        error = values[step] - mu if step < len(values) and not math.isnan(values[step]) else 0
        if seasons:
            seasons[index] = season + gamma * (error / base if multiplicative else error)
        error = error / season if multiplicative else error
        level, trend = base + alpha * error, phi * trend + beta * error
    return forecasts


@pytest.mark.parametrize("kind", ["none", "additive", "multiplicative"])
def test_smoothing_is_the_recursion_with_missing_values(kind):
    random = np.random.default_rng(1)
    values = random.uniform(50, 100, (2, 15))
    values[0, [3, 4, 9]] = np.nan
    seasons = {"none": [], "additive": [3.0, -2.0, -1.0], "multiplicative": [1.2, 0.9, 0.9]}[kind]
    own = [(0.3, 0.1, 0.2, 0.9, 70.0, 1.0, seasons), (0.6, 0.05, 0.1, 1.0, 80.0, -1.0, seasons)]
    columns = [np.array([[part] for part in parts]) for parts in list(zip(*own, strict=True))[:6]]
    states = States(*columns, np.repeat(np.array(seasons)[:, None, None], 2, 1))
    found = smooth(
        np.nan_to_num(values).T,
        (~np.isnan(values)).T * 1.0,
        states,
        steps=20,
        multiplicative=kind == "multiplicative",
    )
    for row in range(2):
        np.testing.assert_allclose(found[:, row, 0], one_step(values[row], own[row], 20, kind == "multiplicative"))


def test_a_fit_is_not_worse_than_a_grid():
    values = seasonal_series(1)[0]
    series = pad_series([values])
    fit = fit_smoothing(series, 1, ["ANN"])["ANN"]

    def error(alpha, level):
        forecasts = one_step(values, (alpha, 0, 0, 1, level, 0, []), len(values), False)
        return np.square(values - forecasts).sum()

    own = error(fit.states.alpha.item(), fit.states.level.item())
    grid = [error(alpha, level) for alpha in np.linspace(0.02, 0.99, 40) for level in values[0] + np.arange(-20, 21, 2)]
    assert own <= min(grid) * (1 + 1e-4)
    n = len(values)
    assert fit.sigma[0] == pytest.approx(math.sqrt(own / (n - 3)))
    assert fit.aicc[0] == pytest.approx(n * math.log(own) + 6 + 24 / (n - 4))


@pytest.mark.parametrize("model", ["AAA", "ADN", "MAN", "MDA", "MAM"])
def test_standard_deviations_are_those_of_simulated_paths(model):
    series = pad_series(seasonal_series(1))
    fit = fit_smoothing(series, SEASON, [model])[model]
    mean, deviation = forecast_smoothing(series, fit, HORIZON)
    random = np.random.default_rng(0)
    states, paths = [part[..., 0, 0] for part in fit.states], 40_000
    values, multiplicative = series.values[0], model[2] == "M"
    alpha, beta, gamma, phi, level, trend, seasons = *map(float, states[:6]), list(states[6])
    futures = np.empty((paths, HORIZON))
    for step in range(len(values) + HORIZON):
        index, ahead = step % max(1, len(seasons)), step - len(values)
        base = level + phi * trend
        season = seasons[index] if seasons else 0
        mu = base * season if multiplicative else base + season
        if ahead < 0:
            error = values[step] - mu
        else:
            error = random.normal(0, fit.sigma[0], paths) * (mu if model[0] == "M" else 1)
            futures[:, ahead] = mu + error
        if seasons:
            seasons[index] = season + gamma * (error / base if multiplicative else error)
        error = error / season if multiplicative else error
        level, trend = base + alpha * error, phi * trend + beta * error
    np.testing.assert_allclose(futures.mean(0), mean[0], rtol=0.01)
    np.testing.assert_allclose(futures.std(0), deviation[0], rtol=0.03)


def test_theta_is_the_formula_of_one_series():
    """The standard method without a season: the forecast from the fitted level is the level and half of the slope."""
    values = np.array([3.0, 5.0, 4.0, 6.0, 7.0, 6.0, 8.0, 9.0, 8.0, 10.0])
    series = pad_series([values])
    intercept, slope, _ = (part.item() for part in fit_line(series.values))
    np.testing.assert_allclose([slope, intercept], np.polyfit(np.arange(1, 11), values, 1))
    mean, _ = forecast_theta(series, 3, 1, dynamic=False)

    def forecasts(alpha, level):
        found = []
        for step in range(13):
            mu = level + 0.5 * ((1 - alpha) ** step * intercept + (1 - (1 - alpha) ** (step + 1)) / alpha * slope)
            found.append(mu)
            level = alpha * (values[step] if step < 10 else mu) + (1 - alpha) * level
        return np.array(found)

    def error(point):
        return np.square(values - forecasts(*point)[:10])[3:].sum()

    best = min(((alpha, level) for alpha in np.linspace(0.1, 0.99, 45) for level in np.linspace(-5, 9, 71)), key=error)
    np.testing.assert_allclose(mean[0], forecasts(*best)[10:], atol=0.1)


def test_dynamic_theta_continues_a_line():
    mean, deviation = forecast_theta(pad_series([2.0 + 3.0 * np.arange(20)]), 4, 1, dynamic=True)
    np.testing.assert_allclose(mean[0], 2 + 3 * np.arange(20, 24), rtol=0.02)
    assert deviation[0, 0] < 0.5


def test_decomposition():
    time = np.arange(24)
    wave = np.array([3.0, -1.0, -4.0, 2.0])
    series = pad_series([10 + 2.0 * time + wave[time % 4], (10 + 2.0 * time) * (1 + wave[time % 4] / 10)])
    np.testing.assert_allclose(seasonal_indices(series.subset(np.array([0])), 4, ratio=False)[0], wave)
    np.testing.assert_allclose(seasonal_indices(series, 4, ratio=True)[1], 1 + wave / 10, rtol=0.02)
    average = moving_average(series.values, series.lengths, 4)
    expected = [(0.5 * v[0] + v[1] + v[2] + v[3] + 0.5 * v[4]) / 4 for v in (series.values[0, i:] for i in range(20))]
    np.testing.assert_allclose(average[0, 2:-2], expected)
    assert np.isnan(average[0, [0, 1, -2, -1]]).all()


def test_naive_forecasts():
    values = np.array([1.0, 5.0, 3.0, 2.0, np.nan, 7.0, 4.0, 3.0])
    found = forecast_baselines([values], 5, 4, ["naive", "snaive", "drift"])
    assert found["naive"].mean[0].tolist() == [3.0] * 5
    assert found["snaive"].mean[0].tolist() == [1.0, 7.0, 4.0, 3.0, 1.0]  # the missing value: that of a season before
    np.testing.assert_allclose(found["drift"].mean[0], 3 + 2 / 7 * np.arange(1, 6))
    np.testing.assert_allclose(found["naive"].sigma[0] / found["naive"].sigma[0, 0], np.sqrt(np.arange(1, 6)))
    np.testing.assert_allclose(found["snaive"].sigma[0], math.sqrt((4 + 1 + 1) / 3) * np.sqrt([1, 1, 1, 1, 2]))
    quantiles = found["naive"].quantiles((0.1, 0.5, 0.9))
    assert quantiles.shape == (1, 5, 3)
    np.testing.assert_allclose(quantiles[..., 1], found["naive"].mean)
    np.testing.assert_allclose(quantiles[..., 2] - quantiles[..., 0], 2 * 1.2815516 * found["naive"].sigma, rtol=1e-6)


def test_a_series_alone_and_among_others():
    series = seasonal_series()
    series[2][[5, 6, 20]] = np.nan
    together = forecast_baselines(series, HORIZON, SEASON)
    assert tuple(together) == BASELINES
    for row in (0, 2, 5):
        alone = forecast_baselines([series[row]], HORIZON, SEASON)
        for name in BASELINES:
            np.testing.assert_allclose(alone[name].mean[0], together[name].mean[row], rtol=1e-6, err_msg=name)
            np.testing.assert_allclose(alone[name].sigma[0], together[name].sigma[row], rtol=1e-6, err_msg=name)


def test_seasonal_models_forecast_a_season():
    series = seasonal_series()
    truth = [values[-HORIZON:] for values in series]
    found = forecast_baselines([values[:-HORIZON] for values in series], HORIZON, SEASON)
    errors = {name: np.abs(forecasts.mean - truth).mean() for name, forecasts in found.items()}
    for name in ("holt_winters", "holt_winters_multiplicative", "ets", "theta", "dynamic_theta"):
        assert errors[name] < 0.5 * errors["naive"], (name, errors)


ODD = {
    "constant": np.full(30, 7.0),
    "zeros": np.zeros(30),
    "one value": np.array([4.0]),
    "two values": np.array([4.0, 5.0]),
    "shorter than a season": np.array([4.0, 5.0, 6.0]),
    "shorter than two seasons": np.array([4.0, 5.0, 6.0, 5.0, 4.5, 5.5, 6.5]),
    "negative": -(np.arange(1.0, 31) ** 1.5),
    "large": 1e12 + np.arange(30.0) % 4,
    "intermittent": np.array([0.0, 0, 0, 3, 0, 0, 5, 0, 0, 0] * 3),
    "late": np.concatenate([np.full(10, np.nan), np.arange(20.0)]),
    "ended": np.concatenate([np.arange(20.0), np.full(5, np.nan)]),
}


@pytest.mark.parametrize("name", BASELINES)
def test_odd_series_have_finite_forecasts(name):
    found = forecast_baselines([*ODD.values(), np.full(9, np.nan)], HORIZON, SEASON, [name])[name]
    assert np.isnan(found.mean[-1]).all()  # nothing is known
    for row, case in enumerate(ODD):
        assert np.isfinite(found.mean[row]).all(), case
        assert (found.sigma[row] >= 0).all(), case
    for row, level in ((0, 7.0), (1, 0.0), (2, 4.0)):
        np.testing.assert_allclose(found.mean[row], level, atol=1e-6)
        np.testing.assert_allclose(found.sigma[row], 0, atol=1e-6)


def test_models_where_they_apply():
    series = pad_series([ODD["shorter than two seasons"], ODD["negative"], seasonal_series(1)[0]])
    fits = fit_smoothing(series, SEASON, ETS_MODELS)
    applies = {model: np.isfinite(fit.aicc).tolist() for model, fit in fits.items()}
    assert applies["ANN"] == [True, True, True]
    assert applies["AAA"] == [False, True, True]
    assert applies["MAM"] == [False, False, True]
    assert np.isnan(forecast_smoothing(series, fits["MAM"], 2)[0][:2]).all()


def test_forecasts_of_another_where_missing():
    some = Forecasts(np.array([[1.0, np.nan], [2.0, 2.0]]), np.ones((2, 2)))
    assert some.where_missing(Forecasts(np.zeros((2, 2)), np.zeros((2, 2)))).mean.tolist() == [[0, 0], [2, 2]]


def test_what_is_long_ago_does_not_count():
    random = np.random.default_rng(0)
    recent = 10 + np.resize([1.0, -2.0, 0.5, 0.5], 300) + random.normal(0, 0.3, 300)
    rows = [np.concatenate([np.resize(start, 100), recent]) for start in ([1.0], [50.0, 90.0])]
    found = forecast_baselines(rows, 4, 4, ["ets", "theta", "holt_winters"])
    for name, forecasts in found.items():
        np.testing.assert_array_equal(*forecasts.mean, err_msg=name)
        np.testing.assert_array_equal(*forecasts.sigma, err_msg=name)


def test_forecasts_do_not_explode():
    random = np.random.default_rng(0)
    rows = [np.exp(random.normal(0, 2, 40)) * np.resize([1e-6, 1.0, 50.0, 1.0], 40) for _ in range(20)]
    last = forecast_baselines(rows, 40, 4, ["naive"])["naive"]
    for name, found in forecast_baselines(rows, 40, 4, ["ets", "holt", "holt_winters_multiplicative", "theta"]).items():
        for row, values in enumerate(rows):
            assert np.abs(found.mean[row]).max() <= 4 * values.max(), name
        assert (found.sigma <= 4.0001 * last.sigma).all(), name
