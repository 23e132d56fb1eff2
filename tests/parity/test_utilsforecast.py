"""Scores of forecasts equal those of utilsforecast; MSIS, which it does not have, is that of its formula in M4."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import weft
from weft.metrics.forecast import DECILES, QUANTILE_LEVELS, QuantileForecast, seasonal_scale, series_scores

losses = pytest.importorskip("utilsforecast.losses")

SEASON, HORIZON, TRAINED, COUNT = 4, 6, 40, 7


@pytest.fixture(scope="module")
def windows():
    """Histories, true values and forecasts of series of very different levels."""
    random = np.random.default_rng(0)
    levels = 10.0 ** np.arange(-2, COUNT - 2)
    history = [level * random.uniform(1, 3, TRAINED) for level in levels]
    true = levels[:, None] * random.uniform(1, 3, (COUNT, HORIZON))
    quantiles = np.sort(levels[:, None, None] * random.uniform(1, 3, (COUNT, HORIZON, len(QUANTILE_LEVELS))), -1)
    mean = quantiles[..., QUANTILE_LEVELS.index(0.5)]
    return history, true, QuantileForecast(mean, quantiles, QUANTILE_LEVELS)


@pytest.fixture(scope="module")
def table(windows):
    history, true, forecast = windows
    ids = np.repeat(np.arange(COUNT), HORIZON)
    columns = {"unique_id": ids, "ds": np.tile(np.arange(TRAINED, TRAINED + HORIZON), COUNT), "y": true.ravel()}
    columns["weft"] = forecast.mean.ravel()
    for index, level in enumerate(QUANTILE_LEVELS):
        columns[f"q{level}"] = forecast.quantiles[..., index].ravel()
    for percent, low, high in ((80, 0.1, 0.9), (95, 0.025, 0.975)):
        columns[f"weft-lo-{percent}"] = columns[f"q{low}"]
        columns[f"weft-hi-{percent}"] = columns[f"q{high}"]
    trained = {
        "unique_id": np.repeat(np.arange(COUNT), TRAINED),
        "ds": np.tile(np.arange(TRAINED), COUNT),
        "y": np.concatenate(history),
    }
    return pandas.DataFrame(columns), pandas.DataFrame(trained)


def test_scores_of_every_series(windows, table):
    history, true, forecast = windows
    frame, trained = table
    found = series_scores(true, forecast, seasonal_scale(history, SEASON))
    by_decile = {level: {"weft": f"q{level}"} for level in DECILES}
    expected = {
        "mase": losses.mase(frame, ["weft"], seasonality=SEASON, train_df=trained),
        "smape": losses.smape(frame, ["weft"]),
        "rmse": losses.rmse(frame, ["weft"]),
        "mse": losses.mse(frame, ["weft"]),
        "coverage_80": losses.coverage(frame, ["weft"], 80),
        "coverage_95": losses.coverage(frame, ["weft"], 95),
    }
    for name, scores in expected.items():
        np.testing.assert_allclose(found[name], scores["weft"], rtol=1e-6, err_msg=name)
    pinball = np.mean([losses.quantile_loss(frame, models, q=q)["weft"] for q, models in by_decile.items()], 0)
    np.testing.assert_allclose(found["pinball"], pinball, rtol=1e-6)
    several = {"weft": [f"q{level}" for level in DECILES]}
    crps = losses.scaled_crps(frame, several, quantiles=np.array(DECILES))["weft"]
    np.testing.assert_allclose(found["scaled_crps"], crps, rtol=1e-6)


def test_msis_by_the_formula_of_m4(windows):
    history, true, forecast = windows
    found = series_scores(true, forecast, seasonal_scale(history, SEASON))["msis"]
    low, high = forecast.quantile(0.025), forecast.quantile(0.975)
    for row, values in enumerate(history):
        total = 0.0
        for step in range(HORIZON):
            y, lower, upper = true[row, step], low[row, step], high[row, step]
            total += upper - lower + 2 / 0.05 * (lower - y) * (y < lower) + 2 / 0.05 * (y - upper) * (y > upper)
        scale = sum(abs(values[at] - values[at - SEASON]) for at in range(SEASON, TRAINED)) / (TRAINED - SEASON)
        assert found[row] == pytest.approx(total / HORIZON / scale, rel=1e-6)


def test_a_backtest_is_scored_as_it_comes(table, tmp_path):
    _, trained = table
    settings = {"model.kind": "baselines", "model.season": SEASON}
    model = weft.train_forecast(trained, tmp_path / "run", settings, horizon=HORIZON, progress=False)
    found = model.backtest(trained, windows=1, against="snaive")
    before = trained[trained["ds"] < TRAINED - HORIZON]
    scored = losses.mase(found.drop(columns="cutoff"), ["weft", "snaive"], seasonality=SEASON, train_df=before)
    own = model.backtest(windows=1, against="snaive")[0]
    for name in ("weft", "snaive"):
        assert scored[name].mean() == pytest.approx(own[name.replace("weft", "")].score(), rel=1e-6)
