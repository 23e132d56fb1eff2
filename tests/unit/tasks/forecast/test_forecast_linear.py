"""The linear map of forecasts against least squares written out, and what it may not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.tasks.forecast import linear
from weft.tasks.forecast.linear import (
    LARGEST_TARGET,
    FittedWindows,
    LinearForm,
    LinearMap,
    make_panel,
    seasonal_scales,
    standardized,
    sum_windows,
    windows_at,
)


def waves(count=5, length=40, season=4, seed=0):
    random = np.random.default_rng(seed)
    pattern = random.normal(size=season)
    return [
        random.uniform(1, 9) * (np.resize(pattern, length + row) + random.normal(0, 0.3, length + row))
        for row in range(count)
    ]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("width", [0, 2])
@pytest.mark.parametrize("held_out", [0, 1])
def test_sums_of_all_windows_give_the_ridge_regression(missing, width, held_out):
    series, random = waves(), np.random.default_rng(1)
    if missing:
        series[1][[5, 21]] = np.nan
    features, past, static = (
        [random.normal(size=(len(row) + 3, width)) for row in series] if width else None,
        [random.normal(size=(len(row), width)) for row in series] if width else None,
        [random.normal(size=width) for _ in series] if width else None,
    )
    form = LinearForm(3, 4, 6, features=width, past=width, static=width)
    panel = make_panel(series, form, features, past, static)
    strength = 0.01
    (found,) = LinearMap.solve(form, sum_windows(panel, 1)[held_out], [strength])
    windows = FittedWindows.of(panel, 1)
    weights = dict(zip(windows.places.tolist(), windows.weights(panel, 1), strict=True))
    for step in range(3):
        inputs, targets, shares = [], [], []
        for start, end in zip(panel.starts, panel.ends, strict=True):
            for place in range(start + form.least, end - 3 * held_out - 3 + 1):
                window = windows_at(panel, np.array([place]))
                if not np.isnan(window.targets[0, step]):
                    inputs.append(window.inputs(step)[0])
                    targets.append(window.targets[0, step])
                    shares.append(weights[place])
        x, y = np.array(inputs), np.array(targets).clip(-LARGEST_TARGET, LARGEST_TARGET)
        share = np.array(shares)
        products = x.T @ (share[:, None] * x)
        ridge = strength * np.trace(products) / x.shape[1]
        expected = np.linalg.solve(products + ridge * np.eye(x.shape[1]), x.T @ (share * y))
        np.testing.assert_allclose(found.weights[step], expected, rtol=1e-6, atol=1e-8)
        deviation = np.sqrt(np.average((y - x @ expected) ** 2, weights=share))
        assert found.deviations[step] == pytest.approx(deviation, rel=1e-6)


def test_scales_are_those_of_what_stands_before():
    row = np.random.default_rng(0).normal(size=12)
    scales = seasonal_scales(row, 4)
    for place in range(5, 13):
        differences = [abs(row[at] - row[at - 4]) for at in range(4, place)]
        assert scales[place] == pytest.approx(np.mean(differences))


@pytest.mark.parametrize("adaptation", [0.0, 0.2])
@pytest.mark.parametrize("log", [False, True])
def test_what_comes_after_a_window_changes_no_bit_of_its_forecast(log, adaptation):
    series = [np.exp(row / 10) for row in waves()]
    form = LinearForm(3, 4, 6, log)
    (fitted,) = LinearMap.solve(form, sum_windows(make_panel(series, form), 0)[0], [0.1])
    fitted = replace(fitted, adaptation=adaptation)
    changed = [np.concatenate([row[:30], 7 + row[30:] ** 2]) for row in series]
    found = []
    for rows in (series, changed):
        panel = make_panel(rows, form)
        found.append(fitted.forecast(panel, panel.starts + 30))
    assert (found[0][0] == found[1][0]).all()
    assert (found[0][1] == found[1][1]).all()


def test_past_covariates_are_read_as_they_were_known():
    form = LinearForm(3, 4, 6, past=1)
    row, other = waves(1, 30)[0], np.arange(30.0) ** 2
    other[20] = np.nan
    panel = make_panel([row], form, past=[other[:, None]])
    context = panel.context[panel.starts[0] :]
    scaled = standardized(other[:, None])[:, 0]
    assert context[12].tolist() == scaled[[11, 10, 7, 6]].tolist()  # the last two, and those of a season before
    assert context[21].tolist() == scaled[[19, 19, 16, 15]].tolist()  # what is missing is the last that was known
    changed = make_panel([row], form, past=[np.append(other[:12], 7 * other[12:])[:, None]])
    assert np.array_equal(context[:13], changed.context[panel.starts[0] :][:13])
    shorter = make_panel([row], form, past=[other[:25, None]])  # forecasts are fed back
    assert shorter.context[panel.ends[0]].tolist() == scaled[[24, 24, 24, 24]].tolist()


def test_a_constant_series_and_one_without_neighbours_are_continued():
    form = LinearForm(4, 4, 8)
    (fitted,) = LinearMap.solve(form, sum_windows(make_panel(waves(), form), 0)[0], [0.1])
    rows = [np.full(20, 3.0), np.array([5.0]), np.array([np.nan, 2.0, np.nan])]
    panel = make_panel(rows, form)
    means, _ = fitted.forecast(panel, panel.ends)
    assert np.isfinite(means).all()
    offset = fitted.weights[:, form.lags]  # of an input that is 0
    np.testing.assert_allclose(means[0], 3.0 + offset)
    np.testing.assert_allclose(means[1], 5.0 + offset)


def test_a_regular_series_is_learnt_exactly():
    series = [np.resize([1.0, 5.0, 2.0, 9.0], 40) + np.arange(40) * slope for slope in (0.5, 1.0, 2.0)]
    form = LinearForm(4, 4, 8)
    (fitted,) = LinearMap.solve(form, sum_windows(make_panel(series, form), 0)[0], [1e-9])
    panel = make_panel([row[:36] for row in series], form)
    means, _ = fitted.forecast(panel, panel.ends)
    np.testing.assert_allclose(means, [row[36:] for row in series], rtol=1e-4)


def test_a_map_adapts_to_a_series_that_follows_a_law_of_its_own():
    random = np.random.default_rng(0)
    series = [np.cumsum(random.normal(size=200)) for _ in range(6)]
    for at in range(2, 200):  # an oscillation among random walks
        series[5][at] = 1.2 * series[5][at - 1] - 0.9 * series[5][at - 2] + random.normal()
    form = LinearForm(2, 1, 4)
    (shared,) = LinearMap.solve(form, sum_windows(make_panel([row[:150] for row in series], form), 0)[0], [1e-3])
    errors = {}
    for adaptation in (0.0, 0.2):
        fitted, absolute = replace(shared, adaptation=adaptation), []
        for end in range(150, 198):
            panel = make_panel([row[:end] for row in series], form)
            means, _ = fitted.forecast(panel, panel.ends)
            absolute.append(np.abs(means - [row[end : end + 2] for row in series]).mean(1))
        errors[adaptation] = np.mean(absolute, 0)
    assert errors[0.2][5] < 0.8 * errors[0.0][5]
    assert errors[0.2][:5].mean() < 1.05 * errors[0.0][:5].mean()


def test_of_many_windows_of_a_series_some_are_enough(monkeypatch):
    form, row = LinearForm(2, 4, 6), waves(1, 300)[0]
    (shared,) = LinearMap.solve(form, sum_windows(make_panel(waves(4), form), 0)[0], [1e-3])
    panel, found = make_panel([row], form), []
    for limit in (1000, 100):
        monkeypatch.setattr(linear, "OWN_WINDOWS", limit)
        found.append(replace(shared, adaptation=2.0).forecast(panel, panel.ends)[0])
    assert (found[0] != found[1]).any()
    np.testing.assert_allclose(found[0], found[1], atol=0.2 * np.abs(row).max())
