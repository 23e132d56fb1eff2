"""The linear map of forecasts against least squares written out, and what it may not see."""

from __future__ import annotations

import numpy as np
import pytest

from weft.tasks.forecast.linear import (
    LARGEST_TARGET,
    LinearForm,
    LinearMap,
    make_panel,
    seasonal_scales,
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
    features = [random.normal(size=(len(row) + 3, width)) for row in series] if width else None
    form = LinearForm(3, 4, 6, features=width)
    panel = make_panel(series, form, features)
    strength = 0.01
    (found,) = LinearMap.solve(form, sum_windows(panel, 1)[held_out], [strength])
    for step in range(3):
        inputs, targets = [], []
        for start, end in zip(panel.starts, panel.ends, strict=True):
            for place in range(start + form.least, end - 3 * held_out - 3 + 1):
                window = windows_at(panel, np.array([place]))
                if not np.isnan(window.targets[0, step]):
                    inputs.append(window.inputs(step)[0])
                    targets.append(window.targets[0, step])
        x, y = np.array(inputs), np.array(targets).clip(-LARGEST_TARGET, LARGEST_TARGET)
        ridge = strength * np.trace(x.T @ x) / x.shape[1]
        expected = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)
        np.testing.assert_allclose(found.weights[step], expected, rtol=1e-6, atol=1e-8)
        assert found.deviations[step] == pytest.approx(np.sqrt(np.mean((y - x @ expected) ** 2)), rel=1e-6)


def test_scales_are_those_of_what_stands_before():
    row = np.random.default_rng(0).normal(size=12)
    scales = seasonal_scales(row, 4)
    for place in range(5, 13):
        differences = [abs(row[at] - row[at - 4]) for at in range(4, place)]
        assert scales[place] == pytest.approx(np.mean(differences))


@pytest.mark.parametrize("log", [False, True])
def test_what_comes_after_a_window_changes_no_bit_of_its_forecast(log):
    series = [np.exp(row / 10) for row in waves()]
    form = LinearForm(3, 4, 6, log)
    (fitted,) = LinearMap.solve(form, sum_windows(make_panel(series, form), 0)[0], [0.1])
    changed = [np.concatenate([row[:30], 7 + row[30:] ** 2]) for row in series]
    found = []
    for rows in (series, changed):
        panel = make_panel(rows, form)
        found.append(fitted.forecast(windows_at(panel, panel.starts + 30)))
    assert (found[0][0] == found[1][0]).all()
    assert (found[0][1] == found[1][1]).all()


def test_a_constant_series_and_one_without_neighbours_are_continued():
    form = LinearForm(4, 4, 8)
    (fitted,) = LinearMap.solve(form, sum_windows(make_panel(waves(), form), 0)[0], [0.1])
    rows = [np.full(20, 3.0), np.array([5.0]), np.array([np.nan, 2.0, np.nan])]
    panel = make_panel(rows, form)
    means, _ = fitted.forecast(windows_at(panel, panel.ends))
    assert np.isfinite(means).all()
    offset = fitted.weights[:, form.lags]  # of an input that is 0
    np.testing.assert_allclose(means[0], 3.0 + offset)
    np.testing.assert_allclose(means[1], 5.0 + offset)


def test_a_regular_series_is_learnt_exactly():
    series = [np.resize([1.0, 5.0, 2.0, 9.0], 40) + np.arange(40) * slope for slope in (0.5, 1.0, 2.0)]
    form = LinearForm(4, 4, 8)
    (fitted,) = LinearMap.solve(form, sum_windows(make_panel(series, form), 0)[0], [1e-9])
    panel = make_panel([row[:36] for row in series], form)
    means, _ = fitted.forecast(windows_at(panel, panel.ends))
    np.testing.assert_allclose(means, [row[36:] for row in series], rtol=1e-4)
