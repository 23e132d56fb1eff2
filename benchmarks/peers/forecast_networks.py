"""Forecasts of neuralforecast's networks, run by benchmarks/quality/series.py in the environment that has it.

    python forecast_networks.py SETS.npz OUT.npz SECONDS MODEL...

SETS.npz has `values` (all series, one after the other), `lengths`, `season` and `horizon`. A first training of a few
steps says how many steps take SECONDS of CPU time; the second one has as many, and its schedule of learning rates.
Networks read a week of hours, or two horizons, scaled by the median and spread of each window. OUT.npz gets, for each
model, quantiles (N, h, Q) at `levels`, and the CPU seconds of the second training and its forecasts.
"""

import logging
import sys
import time

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import DistributionLoss, MQLoss
from neuralforecast.models import LSTM, NHITS, DeepAR

TRIED_STEPS = 10
INTERVALS = (20, 40, 60, 80, 90, 95)
LEVELS = (0.5, *((50 + side * width / 2) / 100 for width in INTERVALS for side in (-1, 1)))


def create(name, season, horizon, steps):
    common = {
        "h": horizon,
        "input_size": 7 * season if season == 24 else 2 * horizon,
        "max_steps": steps,
        "scaler_type": "robust",
        "start_padding_enabled": True,
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
        "enable_checkpointing": False,
    }
    if name == "DeepAR":
        return DeepAR(loss=DistributionLoss("StudentT", level=list(INTERVALS), return_params=False), **common)
    return {"LSTM": LSTM, "NHITS": NHITS}[name](loss=MQLoss(level=list(INTERVALS)), **common)


def columns(name, found):
    """The columns of a forecast in the order of LEVELS."""
    names = {column.replace(".0", ""): column for column in found.columns}
    yield names[f"{name}-median"]
    for width in INTERVALS:
        for side in ("lo", "hi"):
            yield names[f"{name}-{side}-{width}"]


def forecast(name, table, season, horizon, steps):
    """The forecasts, the CPU seconds of the training, and those of both."""
    begin = time.process_time()
    model = NeuralForecast([create(name, season, horizon, steps)], freq=1)
    model.fit(table)
    trained = time.process_time()
    return model.predict(), trained - begin, time.process_time() - begin


def main():
    source, out, seconds, *names = sys.argv[1:]
    logging.disable(logging.INFO)
    with np.load(source) as file:
        season, horizon, lengths = int(file["season"]), int(file["horizon"]), file["lengths"]
        table = pd.DataFrame({
            "unique_id": np.repeat(np.arange(len(lengths)), lengths),
            "ds": np.concatenate([np.arange(length) for length in lengths]),
            "y": file["values"],
        })  # fmt: skip
    found = {"levels": np.sort(LEVELS)}
    for name in names:
        forecast(name, table, season, horizon, 1)  # what is loaded or compiled at the first use
        _, few, _ = forecast(name, table, season, horizon, 1)
        _, more, both = forecast(name, table, season, horizon, 1 + TRIED_STEPS)
        steps = int((float(seconds) - few - (both - more)) / max(more - few, 1e-3) * TRIED_STEPS)
        forecasts, _, took = forecast(name, table, season, horizon, max(steps, TRIED_STEPS))
        print(f"{name}: {max(steps, TRIED_STEPS)} steps", file=sys.stderr)
        forecasts = forecasts.reset_index().sort_values(["unique_id", "ds"])
        values = forecasts[list(columns(name, forecasts))].to_numpy(np.float64)
        found[name] = values.reshape(len(lengths), horizon, -1)[..., np.argsort(LEVELS)]
        found[f"{name} seconds"] = took
    np.savez(out, **found)


if __name__ == "__main__":
    main()
