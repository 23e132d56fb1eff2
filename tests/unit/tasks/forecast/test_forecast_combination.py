"""The weights of a combination, and the calibration of its quantiles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from weft.metrics.forecast import QUANTILE_LEVELS
from weft.tasks.forecast.calibration import MEDIAN, Calibration, normal_quantiles, ordered, quantile_at
from weft.tasks.forecast.combination import AVERAGE, FITTED, pinball


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
