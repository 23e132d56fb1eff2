"""The weights of a combination, and the calibration of its quantiles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import weft
from weft.metrics.forecast import QUANTILE_LEVELS, seasonal_scale
from weft.tasks.forecast.calibration import MEDIAN, Calibration, normal_quantiles, ordered, quantile_at
from weft.tasks.forecast.combination import AVERAGE, FITTED, independent_windows, pinball
from weft.tasks.forecast.model import SeriesRows, medians


def forecasts(seed=0, count=400, horizon=2):
    """Three forecasters of which the first two err in opposite directions, and the third is bad."""
    random = np.random.default_rng(seed)
    truth = random.normal(50, 5, (count, horizon))
    shared = random.normal(size=truth.shape)
    means = [truth + factor * shared + 0.5 * random.normal(size=truth.shape) for factor in (1, -1, 9)]
    return [normal_quantiles(mean, np.ones_like(mean)) for mean in means], truth


def test_weights_minimize_the_pinball_loss_over_the_simplex():
    parts, truth = forecasts()
    weights = AVERAGE.fit([torch.from_numpy(part) for part in parts], torch.from_numpy(truth))
    assert sum(weights) == pytest.approx(1)

    def loss(shares):
        joined = sum(share * part for share, part in zip(shares, parts, strict=True))
        return pinball(joined, truth)[..., FITTED].mean()

    grid = [(a / 50, b / 50, 1 - (a + b) / 50) for a, b in itertools.product(range(51), repeat=2) if a + b <= 50]
    assert loss(weights) <= min(map(loss, grid)) * 1.01
    joined = AVERAGE.join([torch.from_numpy(part) for part in parts], weights).numpy()
    np.testing.assert_allclose(joined, sum(share * part for share, part in zip(weights, parts, strict=True)))


def test_missing_targets_count_for_nothing():
    parts, truth = forecasts()
    hidden = truth.copy()
    hidden[::3] = np.nan
    spoiled = [part.copy() for part in parts]
    spoiled[1][::3] = 1e9
    fitted = [
        AVERAGE.fit([torch.from_numpy(part) for part in some], torch.from_numpy(hidden)) for some in (parts, spoiled)
    ]
    assert fitted[0] == fitted[1]


def test_forecasters_that_are_the_same_one_count_once():
    parts, truth = forecasts()
    first, second, bad = (torch.from_numpy(part) for part in parts)
    alone = AVERAGE.fit([first, second, bad], torch.from_numpy(truth))
    assert AVERAGE.fit([first, second, first, second, bad], torch.from_numpy(truth)) == [*alone[:2], 0, 0, alone[2]]


def test_windows_that_share_what_happens_at_their_time_are_worth_fewer():
    random, times = np.random.default_rng(0), np.repeat(np.arange(4), 100)
    truth = random.normal(size=(400, 3))
    errors = np.abs(random.normal(size=(400, 3, 5)))
    shared = 3 * random.random(size=(4, 1, 5))[times]  # by time and forecaster
    alone = independent_windows(truth[..., None] + errors, truth, times)
    together = independent_windows(truth[..., None] + errors + shared, truth, times)
    assert 200 < alone <= 400
    assert 0 < together < 20
    assert independent_windows(truth[..., None] + errors, truth) == 400
    truth[0] = np.nan
    assert independent_windows(truth[..., None] + errors, truth) == 399


LENGTH, LAST = 80, 4  # values of a series, and its horizons that the model does not know
LAWS = {  # the season, and a series
    "walk": (1, lambda random: np.cumsum(random.normal(size=LENGTH))),
    "trend": (1, lambda random: np.cumsum(random.normal(0.3, 1, LENGTH) + np.cumsum(random.normal(0, 0.1, LENGTH)))),
    "season": (
        4,
        lambda random: np.cumsum(random.normal(0.1, 0.5, LENGTH)) + np.resize(random.normal(0, 4, 4), LENGTH),
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_combination_is_not_worse_than_the_best_forecaster_on_windows_that_nothing_has_seen(law, tmp_path):
    (season, draw), horizon, random = LAWS[law], 4, np.random.default_rng(1)
    series = [200 + draw(random) + random.normal(0, 0.5, LENGTH) for _ in range(60)]
    known = [row[: -horizon * LAST] for row in series]
    model = weft.train_forecast(known, tmp_path / "run", horizon=horizon, season=season, progress=False).model
    scales = seasonal_scale(known, season)[:, None]
    errors: dict[str, float] = {}
    for ends in range(LAST, 0, -1):
        rows = SeriesRows([row[: -horizon * ends] for row in series])
        truth = np.stack([row[len(row) - horizon * ends :][:horizon] for row in series])
        for name, part in {"": model.quantiles(rows), **model.parts(rows, list(model.weights))}.items():
            errors[name] = errors.get(name, 0.0) + float(np.abs((medians(part) - truth) / scales).mean())
    assert errors.pop("") <= 1.01 * min(errors.values())


def test_calibrated_quantiles_have_their_level():
    random = np.random.default_rng(0)
    spread = np.array([0.5, 3.0])  # of the two steps, where 1 is predicted
    truth = random.normal(size=(4000, 2)) * spread
    quantiles = normal_quantiles(np.zeros_like(truth), np.ones_like(truth))
    calibration = Calibration.fit(quantiles[:2000], truth[:2000])
    found = calibration.apply(quantiles[2000:])
    for place, level in enumerate(QUANTILE_LEVELS):
        shares = (truth[2000:] <= found[..., place]).mean(0)
        np.testing.assert_allclose(shares, level, atol=0.04)
    assert (np.diff(found, axis=-1) >= 0).all()
    assert (found[..., MEDIAN] == quantiles[2000:, :, MEDIAN]).all()
    longer = calibration.apply(np.repeat(quantiles[2000:], 2, 1))
    assert (longer[:, 3] == longer[:, 1]).all()


def test_quantiles_never_cross_and_others_lie_between_them():
    quantiles = ordered(np.random.default_rng(0).normal(size=(7, 3, len(QUANTILE_LEVELS))))
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    between = quantile_at(quantiles, 0.85) - quantiles[..., QUANTILE_LEVELS.index(0.8)]
    assert (between >= -1e-12).all()
    np.testing.assert_allclose(quantile_at(quantiles, 0.9), quantiles[..., QUANTILE_LEVELS.index(0.9)])
    assert (quantile_at(quantiles, 0.995) >= quantiles[..., -1] - 1e-12).all()
