"""Forecasts of the tourism and M4 hourly sets and of electricity prices: scores and CPU time, ours and statsforecast's.

    python -m benchmarks.quality.series [--sets m4-hourly ...] [--models linear ...] \
        [--seeds 1 2] [--held-out N] [--peers VENV]

Each model is trained by `weft.train_forecast` on the values before the test part, which it then forecasts.
`--held-out N` scores the horizon that ends N - 1 horizons before the end of the training part, and no test values: for
choices. `--peers` is an environment with statsforecast, whose models run on the same series. Without `--held-out` the
figures go into benchmarks/records/series.json and into the page.

Electricity prices: the last 7 days of four markets, day by day, by a model that is trained on the days before, with
covariates that are known in advance and without.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import weft
from benchmarks.quality.rows import data as data_file
from benchmarks.quality.series_data import SETS, CompetitionSet
from tools.pages import write_pages
from tools.records import RECORDS, machine, read, stamp, write
from weft.metrics.forecast import DECILES, ForecastScores, QuantileForecast, seasonal_scale
from weft.tasks.forecast.config import MODEL_KINDS

PEER_PROGRAM = Path(__file__).parents[1] / "peers" / "forecast_series.py"
PEERS = {
    "tourism-yearly": ("SeasonalNaive", "AutoETS", "Theta", "DynamicOptimizedTheta"),
    "tourism-quarterly": ("SeasonalNaive", "AutoETS", "Theta", "DynamicOptimizedTheta"),
    "tourism-monthly": ("SeasonalNaive", "AutoETS", "Theta", "DynamicOptimizedTheta"),
    "m4-hourly": ("SeasonalNaive", "AutoETS", "Theta", "DynamicOptimizedTheta", "MSTL"),
}
LEVELS = ("20", "40", "60", "80", "90", "95")  # intervals that give the quantiles which are scored
SCORES = ("mase", "smape", "scaled_crps", "msis", "coverage_80", "coverage_95")
ELECTRICITY, DAYS, DAY = "electricity", 7, 24
COVARIATES = ("Exogenous1", "Exogenous2", *(f"day_{number}" for number in range(7)))


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


def quantiles(forecasts: Sequence[Any]) -> QuantileForecast:
    """What is scored, from the medians and intervals of forecasts of one channel."""
    median = np.stack([one.values[:, 0] for one in forecasts])
    by_level = {0.5: median}
    for percent in LEVELS:
        share = int(percent) / 100
        for side, level in enumerate(((1 - share) / 2, (1 + share) / 2)):
            by_level[round(level, 3)] = np.stack([one.intervals[percent][side][:, 0] for one in forecasts])
    levels = tuple(sorted(by_level))
    return QuantileForecast(median, np.stack([by_level[level] for level in levels], -1), levels)


def trained(data: CompetitionSet, kind: str, seed: int) -> dict[str, float]:
    """The scores of a model that is trained on a set, and the CPU seconds of its training and its forecasts."""
    settings = {"model.kind": kind, "train.seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        series = list(data.train)
        model = weft.train_forecast(
            series, Path(folder) / "run", settings, horizon=data.horizon, season=data.season, progress=False
        )
        found = quantiles(model.forecast(level=",".join(LEVELS)))
        seconds = time.process_time() - begin
    scores = ForecastScores.of(data.test, found, seasonal_scale(series, data.season), season=data.season).metrics()
    return {**{name: scores[name] for name in SCORES}, "seconds": seconds}


def peers(data: CompetitionSet, environment: Path, names: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """The scores of statsforecast's models, and the CPU seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "series.npz", Path(folder) / "forecasts.npz"
        lengths = list(map(len, data.train))
        for name in names:
            np.savez(
                source, values=np.concatenate(data.train), lengths=lengths, season=data.season, horizon=data.horizon
            )
            python = environment / "bin" / "python"
            subprocess.run([str(python), "-W", "ignore", str(PEER_PROGRAM), str(source), str(out), name], check=True)
            with np.load(out) as file:
                yield name, {**interval_scores(data, *file[name]), "seconds": float(file[f"{name} seconds"])}


def interval_scores(
    data: CompetitionSet, mean: Any, low80: Any, high80: Any, low95: Any, high95: Any
) -> dict[str, float]:
    """The scores of means and two intervals, (N, h) each: without quantiles there is no CRPS."""
    levels = (0.025, *DECILES, 0.975)
    inside = dict.fromkeys(DECILES, mean) | {0.1: low80, 0.9: high80, 0.025: low95, 0.975: high95}
    found = QuantileForecast(mean, np.stack([inside[level] for level in levels], -1), levels)
    scores = ForecastScores.of(data.test, found, seasonal_scale(data.train, data.season), season=data.season).metrics()
    return {name: scores[name] for name in SCORES if name != "scaled_crps"}


def electricity(kind: str, seed: int, *, covariates: bool) -> dict[str, float]:
    """The scores of forecasts of electricity prices, day by day, and CPU seconds."""
    with data_file("series", "small", "electricity_price_train.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = ["unique_id", "ds", "y", *(COVARIATES if covariates else ())]
    markets: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        markets.setdefault(row["unique_id"], []).append({name: row[name] for name in columns})
    settings = {"model.kind": kind, "train.seed": seed, "data.known": ",".join(COVARIATES) if covariates else ""}
    total: ForecastScores | None = None
    with tempfile.TemporaryDirectory() as folder:

        def table(days: int, future: int) -> Path:
            """The values before the last days, and the covariates of further hours."""
            path = Path(folder) / f"{days}-{future}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                for values in markets.values():
                    cutoff = len(values) - days * DAY
                    writer.writerows(values[:cutoff])
                    writer.writerows({**row, "y": ""} for row in values[cutoff : cutoff + future])
            return path

        begin = time.process_time()
        model = weft.train_forecast(
            str(table(DAYS, 0)), Path(folder) / "run", settings, horizon=DAY, season=DAY, progress=False
        )
        for days in range(DAYS, 0, -1):
            found = quantiles(model.forecast(str(table(days, DAY if covariates else 0)), level=",".join(LEVELS)))
            prices = [np.array([float(row["y"]) for row in values]) for values in markets.values()]
            history = [values[: len(values) - days * DAY] for values in prices]
            true = np.stack([values[len(values) - days * DAY :][:DAY] for values in prices])
            scores = ForecastScores.of(true, found, seasonal_scale(history, DAY), season=DAY)
            total = scores if total is None else total + scores
        seconds = time.process_time() - begin
    assert total is not None
    return {**{name: total.metrics()[name] for name in SCORES}, "seconds": seconds}


def show(name: str, scores: Mapping[str, float]) -> None:
    shown = "  ".join(f"{key} {scores[key]:.4f}" for key in SCORES if key in scores)
    print(f"  {name:28} {shown}  {scores['seconds']:.1f} s", flush=True)


def record(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """The record with a row, which replaces the one of the same set, model and seed."""
    key = ("set", "model", "seed")
    kept = [one for one in rows if [one[name] for name in key] != [row[name] for name in key]]
    order = [*SETS, ELECTRICITY]
    kept.append({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()})
    return {
        "command": "python -m benchmarks.quality.series",
        **machine(),
        "rows": sorted(kept, key=lambda one: order.index(one["set"])),
    }


def keep(name: str, model: str, seed: int, scores: Mapping[str, float], part: str) -> None:
    """Writes a row into the record."""
    earlier = read("series")["rows"] if (RECORDS / "series.json").exists() else []
    write("series", record(earlier, {"set": name, "model": model, "seed": seed, **scores, **stamp([part])}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, ELECTRICITY], default=[*SETS, ELECTRICITY])
    parser.add_argument("--models", nargs="*", choices=MODEL_KINDS, default=["linear", "baselines", "auto"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--held-out", type=int, metavar="N")
    parser.add_argument("--peers", type=Path, metavar="VENV")
    options = parser.parse_args()

    def report(name: str, model: str, seed: int, scores: Mapping[str, float], part: str) -> None:
        show(f"{model}, seed {seed}" if seed else model, scores)
        if not options.held_out:
            keep(name, model, seed, scores, part)

    for name in options.sets:
        print(name)
        if name == ELECTRICITY:
            for kind in options.models:
                for covariates in (False, True) if kind != "baselines" else (False,):
                    for seed in options.seeds:
                        scores = electricity(kind, seed, covariates=covariates)
                        model = f"{kind}, with covariates" if covariates else kind
                        report(name, model, seed, scores, "benchmarks/quality/series.py::electricity")
            continue
        data = held_out(SETS[name](), options.held_out) if options.held_out else SETS[name]()
        for kind in options.models:
            for seed in options.seeds:
                report(name, kind, seed, trained(data, kind, seed), "benchmarks/quality/series.py::trained")
        if options.peers:
            for model, scores in peers(data, options.peers, PEERS[name]):
                report(name, f"statsforecast {model}", 0, scores, "benchmarks/peers/forecast_series.py")
    if not options.held_out:
        write_pages()


if __name__ == "__main__":
    main()
