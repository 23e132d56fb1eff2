"""What comes after a cutoff changes no bit of what is forecast from it, with every kind of forecaster."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import load_file

import weft
from weft.tasks.forecast.config import MODEL_KINDS
from weft.tasks.forecast.data import rows_of
from weft.training.run import WEIGHTS

HORIZON, SEASON, LENGTH = 4, 6, 80
FORECASTERS = [kind for kind in MODEL_KINDS if kind != "autoencoder"]


def table(*, changed):
    """Positive series; `changed`: what the last horizon has is another thing, and not positive."""
    random = np.random.default_rng(0)
    frames = []
    for number in range(5):
        wave = 30 + 5 * np.sin(np.arange(LENGTH) * 2 * np.pi / SEASON) + random.normal(0, 1, LENGTH)
        wind = random.normal(size=LENGTH)
        if changed:
            wave[-HORIZON:], wind[-HORIZON:] = [-900.0, 0.0, np.nan, 8e7], 50.0
        days = pandas.date_range("2024-01-01", periods=LENGTH, freq="D")
        price = random.normal(size=LENGTH)
        frames.append(
            pandas.DataFrame({"unique_id": f"s{number}", "ds": days, "y": wave, "wind": wind, "price": price})
        )
    return pandas.concat(frames, ignore_index=True)


@pytest.mark.parametrize("kind", FORECASTERS)
def test_what_comes_after_the_cutoff_changes_no_bit(kind, tmp_path):
    settings = {"model.kind": kind, "model.season": SEASON, "model.horizon": HORIZON, "model.hidden_size": 8,
                "model.num_states": 2, "train.epochs": 1, "data.known": "price"}  # fmt: skip
    weights, forecasts = [], []
    for changed in (False, True):
        model = weft.train_forecast(table(changed=changed), tmp_path / str(changed), settings, progress=False)
        found = load_file(tmp_path / str(changed) / WEIGHTS)
        weights.append({name: tensor for name, tensor in found.items() if name.startswith("held.")})
        rows = rows_of(model.history, model.layout)
        cutoffs = [LENGTH - HORIZON] * 5
        forecasts.append([model.held_out.quantiles(rows.until(cutoffs)), model.model.quantiles(rows)])
        forecasts[-1].append(model.backtest(table(changed=changed), windows=1)["weft"].to_numpy())
    assert weights[0].keys() == weights[1].keys()
    assert weights[0]
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name
    assert np.array_equal(forecasts[0][0], forecasts[1][0])
    assert np.array_equal(forecasts[0][2], forecasts[1][2])
    assert not np.array_equal(forecasts[0][1], forecasts[1][1])  # the model of the run knows what comes after
