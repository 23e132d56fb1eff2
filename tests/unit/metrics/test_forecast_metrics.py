"""Scores of forecasts against their formulas, written as loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.checks.metrics import check_metric
from weft.metrics.forecast import (
    DECILES,
    QUANTILE_LEVELS,
    ForecastScores,
    QuantileForecast,
    seasonal_scale,
    series_scores,
)

SEASON = 3


@pytest.fixture
def windows():
    """Histories, true values and forecasts of 5 series; missing values in three, one constant, one never observed."""
    random = np.random.default_rng(0)
    history = [random.normal(10, 3, 12) for _ in range(5)]
    history[1][[2, 5]] = np.nan
    history[2][:] = 7.0
    true = random.normal(10, 3, (5, 4))
    true[0, 2] = true[1, 0] = np.nan
    true[3] = np.nan
    mean = random.normal(10, 3, (5, 4))
    quantiles = np.sort(random.normal(10, 3, (5, 4, len(QUANTILE_LEVELS))), axis=-1)
    return history, true, QuantileForecast(mean, quantiles, QUANTILE_LEVELS)


def average(values):
    return sum(values) / len(values) if values else math.nan


def by_formula(history, true, mean, quantiles):
    """The scores of one series, from the definitions."""
    pairs = [(a, b) for a, b in zip(history[SEASON:], history[:-SEASON], strict=True) if not math.isnan(a + b)]
    scale = average([abs(a - b) for a, b in pairs])
    steps = [step for step in range(len(true)) if not math.isnan(true[step])]
    if not steps:
        return None
    by_level = [
        {round(level, 3): quantiles[step][index] for index, level in enumerate(QUANTILE_LEVELS)} for step in steps
    ]
    errors = [true[step] - mean[step] for step in steps]
    level = average([abs(true[step]) for step in steps])
    losses = []
    for step, predicted in zip(steps, by_level, strict=True):
        for q in DECILES:
            error = true[step] - predicted[q]
            losses.append(q * error if error >= 0 else (q - 1) * error)
    intervals = []
    for step, predicted in zip(steps, by_level, strict=True):
        low, high, y = predicted[0.025], predicted[0.975], true[step]
        intervals.append(
            high - low + (2 / 0.05 * (low - y) if y < low else 0) + (2 / 0.05 * (y - high) if y > high else 0)
        )
    scores = {
        "smape": average([abs(e) / (abs(true[s]) + abs(mean[s])) for e, s in zip(errors, steps, strict=True)]),
        "wape": average(list(map(abs, errors))) / level,
        "mse": average([e * e for e in errors]),
        "rmse": math.sqrt(average([e * e for e in errors])),
        "pinball": average(losses),
        "scaled_crps": 2 * average(losses) / level,
    }
    if scale:
        scores |= {"mase": average(list(map(abs, errors))) / scale, "msis": average(intervals) / scale}
    for percent, low, high in ((80, 0.1, 0.9), (95, 0.025, 0.975)):
        scores[f"coverage_{percent}"] = average(
            [p[low] <= true[s] <= p[high] for s, p in zip(steps, by_level, strict=True)]
        )
    return scores


def test_scores_are_those_of_the_formulas(windows):
    history, true, forecast = windows
    scores = series_scores(true, forecast, seasonal_scale(history, SEASON))
    for index in range(len(true)):
        expected = by_formula(history[index], true[index], forecast.mean[index], forecast.quantiles[index]) or {}
        for name, values in scores.items():
            assert values[index] == pytest.approx(expected.get(name, math.nan), rel=1e-9, nan_ok=True), (name, index)
        assert set(expected) <= set(scores)


def test_sums_over_parts(windows):
    history, true, forecast = windows
    scale = seasonal_scale(history, SEASON)

    def part(rows):
        some = QuantileForecast(forecast.mean[rows], forecast.quantiles[rows], QUANTILE_LEVELS)
        return ForecastScores.of(true[rows], some, scale[rows], season=SEASON)

    whole = part(slice(None))
    check_metric(whole, [part(slice(0, 2)), part(slice(2, 3)), part(slice(3, 5))])
    assert whole.signature() == "mase|m:3|series:3|steps:14"  # neither the constant series nor that without values
    assert whole.signature("smape") == "smape|series:4|steps:14"


def test_what_is_not_defined_is_nan_and_not_counted():
    history = [np.array([5.0]), np.full(4, np.nan)]
    forecast = QuantileForecast(np.zeros((2, 1)), np.zeros((2, 1, 9)), DECILES)
    scores = ForecastScores.of(np.zeros((2, 1)), forecast, seasonal_scale(history, 4), season=4)
    assert math.isnan(scores.score())
    assert math.isnan(scores.metrics()["wape"])
    assert scores.metrics()["smape"] == 0  # 0 forecast, 0 true
    assert "msis" not in scores.metrics()  # its quantiles are not there
    with pytest.raises(KeyError):
        forecast.quantile(0.25)
