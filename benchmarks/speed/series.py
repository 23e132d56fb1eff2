"""Training windows a CPU second and backtests of an LSTM for series, beside neuralforecast's and Darts' RNNModel.

    python -m benchmarks.speed.series --neuralforecast VENV --darts VENV [--rounds 3]

All train an LSTM of the same size with a normal distribution, on batches of as many windows of the same monthly series,
on one thread. Theirs and ours take turns; ratios are medians over the rounds. A backtest has 5 cutoffs, a training
before the first one or at each, and forecasts by 100 sample paths. Ours draws as many windows in a training, for which
it trains two networks, on values and on logarithms. Writes benchmarks/records/series-speed.json and the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import weft
from benchmarks.quality.series_data import tourism
from tools.pages import write_pages
from tools.records import machine, stamp, write
from weft.tasks.forecast.model import SeriesRows
from weft.tasks.forecast.network import NetworkForm
from weft.tasks.forecast.network_fitting import EPOCH_BATCHES, NetworkFitting, stages_of
from weft.training.config import TrainConfig

NAME = "series-speed"
PEERS = Path(__file__).parents[1] / "peers"
LAGS, UNITS, BATCH, CUTOFFS, SERIES = 48, 64, 128, 5, 20
EPOCHS = 1  # of the first stage of a training of ours
MEASURED_EPOCHS = 4  # whose windows are counted
SETTINGS = {
    "model.kind": "recurrent", "model.cell": "lstm", "model.hidden_size": UNITS, "model.lags": LAGS,
    "model.distribution": "gaussian", "train.epochs": EPOCHS,
}  # fmt: skip


def long_series() -> tuple[list[np.ndarray], int, int]:
    """The longest monthly series, which are positive, the horizon and the season."""
    data = tourism("monthly")
    positive = [row for row in data.train if row.min() > 0]
    return sorted(positive, key=len, reverse=True)[:SERIES], data.horizon, data.season


def windows_of_a_training() -> int:
    """The windows that a training of ours draws, in all stages, for both networks."""
    stages = stages_of(2, 0, EPOCHS)
    return 2 * sum(stage.epochs for stage in stages) * EPOCH_BATCHES * BATCH


def ours() -> dict[str, float]:
    """Windows in a CPU second, and the CPU seconds of backtests."""
    series, horizon, season = long_series()
    form = NetworkForm(horizon, season, LAGS, cell="lstm", hidden_size=UNITS, distribution="gaussian")
    stages = stages_of(1, 0, 1 + MEASURED_EPOCHS)
    fitting = NetworkFitting("recurrent", form, SeriesRows(series), stages, TrainConfig(), BATCH)
    fitting.epoch()
    begin = time.process_time()
    for _ in range(MEASURED_EPOCHS):
        fitting.epoch()
    found = {"windows": MEASURED_EPOCHS * EPOCH_BATCHES * BATCH / (time.process_time() - begin)}
    with tempfile.TemporaryDirectory() as folder:
        model = weft.train_forecast(
            series, Path(folder) / "run", SETTINGS, horizon=horizon, season=season, progress=False
        )
        for name, refit in (("backtest", False), ("refit", True)):
            begin = time.process_time()
            model.backtest(windows=CUTOFFS, refit=refit)
            found[name] = time.process_time() - begin
    return found


def peer(environment: Path, program: str, *numbers: int) -> dict[str, float]:
    series, horizon, _ = long_series()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "series.npz"
        np.savez(source, values=np.concatenate(series), lengths=list(map(len, series)), horizon=horizon)
        command = [
            environment / "bin" / "python",
            "-W",
            "ignore",
            PEERS / program,
            source,
            LAGS,
            UNITS,
            BATCH,
            *numbers,
        ]
        done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def record(rounds: list[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Medians over the rounds, each of which has what was measured by package; a ratio above 1: ours is faster."""
    rows = []
    for package in [name for name in rounds[0] if name != "weft"]:
        for work in rounds[0][package]:
            both = [(one["weft"][work], one[package][work]) for one in rounds]
            ratio = median(own / their if work == "windows" else their / own for own, their in both)
            values = {"weft": median(own for own, _ in both), "other": median(their for _, their in both)}
            rows.append({"package": package, "work": work, **values, "ratio": ratio})
    parts = [
        "benchmarks/speed/series.py::ours",
        *(f"benchmarks/peers/lstm_{name}.py" for name in rounds[0] if name != "weft"),
    ]
    rounded = [
        {key: value if isinstance(value, str) else round(value, 3) for key, value in row.items()} for row in rows
    ]
    return {
        "command": "python -m benchmarks.speed.series",
        **machine(),
        **stamp(parts),
        "rounds": len(rounds),
        "rows": rounded,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neuralforecast", type=Path, required=True, metavar="VENV")
    parser.add_argument("--darts", type=Path, required=True, metavar="VENV")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds = []
    for _ in range(options.rounds):
        rounds.append({
            "weft": ours(),
            "neuralforecast": peer(options.neuralforecast, "lstm_neuralforecast.py", MEASURED_EPOCHS * EPOCH_BATCHES),
            "darts": peer(options.darts, "lstm_darts.py", windows_of_a_training(), CUTOFFS),
        })  # fmt: skip
        print(json.dumps(rounds[-1]), flush=True)
    write(NAME, record(rounds))
    write_pages()


if __name__ == "__main__":
    main()
