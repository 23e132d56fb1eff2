"""Intervals of forecasts on series of a known law, and forecasts of unusual series."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import weft
from weft.errors import WeftError

HORIZON, SEASON = 6, 4


def waves(count, length, noise, seed=0):
    """Seasonal series of all sizes around a random walk."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        pattern, walk = random.normal(0, 3, SEASON), np.cumsum(random.normal(0, 0.2, length))
        rows.append(random.uniform(1, 100) * (50 + np.resize(pattern, length) + walk + noise(random, length)))
    return rows


@pytest.mark.parametrize(
    ("kind", "noise"),
    [
        ("linear", lambda random, length: random.normal(0, 1, length)),
        ("baselines", lambda random, length: random.standard_t(3, length)),
    ],
    ids=["linear, normal", "baselines, heavy tails"],
)
def test_as_many_values_are_inside_intervals_as_they_say(kind, noise, tmp_path):
    rows = waves(100, 50, noise)
    model = weft.train_forecast(
        [row[:-HORIZON] for row in rows], tmp_path / "run", {"model.kind": kind},
        horizon=HORIZON, season=SEASON, progress=False,
    )  # fmt: skip
    found, true = model.forecast(level="50,80,95"), np.stack([row[-HORIZON:] for row in rows])
    for percent, slack in (("50", 0.07), ("80", 0.06), ("95", 0.03)):
        low, high = (np.stack([one.intervals[percent][side][:, 0] for one in found]) for side in (0, 1))
        assert ((low <= true) & (true <= high)).mean() == pytest.approx(int(percent) / 100, abs=slack)


def test_held_out_data_of_their_own_change_no_bit_of_the_model(tmp_path):
    rows = waves(8, 50, lambda random, length: random.normal(0, 1, length))
    table = pandas.DataFrame(
        {
            "unique_id": np.repeat(np.arange(8), 50),
            "ds": np.tile(pandas.date_range("2015-01-01", periods=50, freq="QS"), 8),
            "y": np.concatenate(rows),
        }
    )
    later = table["ds"] >= "2026-01-01"
    changed = table[later].assign(y=lambda frame: -7 * frame["y"] ** 2)
    found = []
    for name, dev in (("as they were", table[later]), ("changed", changed)):
        model = weft.train_forecast(table[~later], tmp_path / name, horizon=HORIZON, dev=dev, progress=False)
        found.append(model.forecast(table[~later]))
        assert np.isfinite(model.evaluate()["mase"])
    pandas.testing.assert_frame_equal(*found, check_exact=True)


def test_a_season_longer_than_the_series_is_refused(tmp_path):
    rows = [10 + np.arange(9.0) + size for size in range(3)]
    with pytest.raises(WeftError, match=r"a season is 24 steps, and the longest series has 9.*--season 1"):
        weft.train_forecast(rows, tmp_path / "run", horizon=2, season=24, progress=False)
    assert not (tmp_path / "run").exists()


def test_intermittent_demand_is_forecast_as_whole_numbers_that_are_not_negative(tmp_path):
    random = np.random.default_rng(0)
    rows = [np.where(random.random(80) < 0.2, random.poisson(4, 80) + 1.0, 0.0) for _ in range(8)]
    model = weft.train_forecast(rows, tmp_path / "run", horizon=7, season=7, progress=False)
    for one in model.forecast():
        low, high = one.intervals["95"]
        for values in (one.values, low, high):
            assert (values >= 0).all()
            assert (values == np.round(values)).all()
        assert low.max() == 0
        assert 0 < high.mean() < 20


def test_text_in_a_numeric_column_is_named_by_its_line(tmp_path):
    path = tmp_path / "sales.csv"
    path.write_text("ds,y\n2024-01-01,3\n2024-01-02,many\n2024-01-03,4\n2024-01-04,5\n")
    with pytest.raises(WeftError, match=r"sales\.csv:3: .*'many'"):
        weft.train_forecast(path, tmp_path / "run", {"data.target": "y"}, horizon=1)
    assert not (tmp_path / "run").exists()
