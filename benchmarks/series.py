"""Forecasts of the baselines on the tourism and M4 sets: MASE, coverage of intervals, CPU time.

    python -m benchmarks.series [--sets tourism-monthly ...] [--held-out N] [--peers VENV]

`--held-out N` scores the horizon that ends N - 1 horizons before the end of the training part, and no test values: for
choices. `--peers` is an environment with statsforecast, whose models run on the same series.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.series_data import SETS, CompetitionSet
from weft.metrics.forecast import QUANTILE_LEVELS, ForecastScores, QuantileForecast, seasonal_scale
from weft.tasks.forecast.baselines import BASELINES, forecast_baselines

PEER_PROGRAM = Path(__file__).parent / "peers_programs" / "forecast_series.py"
PEERS = {
    "tourism-yearly": ("AutoETS", "Theta", "DynamicOptimizedTheta", "Holt"),
    "tourism-quarterly": ("AutoETS", "Theta", "DynamicOptimizedTheta", "HoltWinters"),
    "tourism-monthly": ("AutoETS", "Theta", "DynamicOptimizedTheta", "HoltWinters"),
    "m4-hourly": ("AutoETS", "Theta", "DynamicOptimizedTheta", "MSTL"),
}


def held_out(full: CompetitionSet, window: int) -> CompetitionSet:
    """A horizon of the training part as what is to be forecast; series too short for that are left out."""
    h, cut = full.horizon, full.horizon * window
    rows = [row for row, values in enumerate(full.train) if len(values) - cut > max(2 * full.season, 5)]
    train = [full.train[row] for row in rows]
    return replace(
        full,
        ids=tuple(full.ids[row] for row in rows),
        train=tuple(values[: len(values) - cut] for values in train),
        test=np.stack([values[len(values) - cut :][:h] for values in train]),
    )


def show(name: str, scores: dict[str, float], seconds: float) -> None:
    shown = "  ".join(f"{key} {scores[key]:.3f}" for key in ("mase", "coverage_80", "coverage_95"))
    print(f"  {name:28} {shown}  {seconds:7.2f} s", flush=True)


def score_baselines(data: CompetitionSet) -> None:
    scale = seasonal_scale(data.train, data.season)
    for name in BASELINES:
        begin = time.process_time()
        forecasts = forecast_baselines(data.train, data.horizon, data.season, [name])[name]
        seconds = time.process_time() - begin
        quantiles = forecasts.quantiles(QUANTILE_LEVELS)
        scored = QuantileForecast(forecasts.mean, quantiles, QUANTILE_LEVELS)
        show(name, ForecastScores.of(data.test, scored, scale, season=data.season).metrics(), seconds)


def score_peers(data: CompetitionSet, environment: Path, names: tuple[str, ...]) -> None:
    scale = seasonal_scale(data.train, data.season)
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "series.npz", Path(folder) / "forecasts.npz"
        lengths = list(map(len, data.train))
        np.savez(source, values=np.concatenate(data.train), lengths=lengths, season=data.season, horizon=data.horizon)
        python = environment / "bin" / "python"
        subprocess.run([str(python), "-W", "ignore", str(PEER_PROGRAM), str(source), str(out), *names], check=True)
        with np.load(out) as file:
            for name in names:
                mean, low80, high80, low95, high95 = file[name]
                errors = np.abs(mean - data.test).mean(1) / np.where(scale > 0, scale, np.nan)
                scores = {
                    "mase": float(np.nanmean(errors)),
                    "coverage_80": float(((low80 <= data.test) & (data.test <= high80)).mean()),
                    "coverage_95": float(((low95 <= data.test) & (data.test <= high95)).mean()),
                }
                show(f"statsforecast {name}"[:28], scores, float(file[f"{name} seconds"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--held-out", type=int, metavar="N")
    parser.add_argument("--peers", type=Path, metavar="VENV")
    options = parser.parse_args()
    for name in options.sets:
        data = SETS[name]()
        if options.held_out:
            data = held_out(data, options.held_out)
        print(f"{data.name}: {len(data.ids)} series, h {data.horizon}, m {data.season}")
        score_baselines(data)
        if options.peers:
            score_peers(data, options.peers, PEERS[name])


if __name__ == "__main__":
    main()
