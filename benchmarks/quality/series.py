"""Forecasts of the tourism and M4 hourly sets and of electricity prices: scores and CPU time, ours and those of others.

    python -m benchmarks.quality.series [--sets m4-hourly ...] [--models linear ...] [--seeds 1 2] [--held-out N]
        [--statsforecast VENV] [--neuralforecast VENV] [--peers AutoETS LSTM ...]

Each model is trained by `weft.train_forecast` on the values before the test part, which it then forecasts.
`--held-out N` scores the horizon that ends N - 1 horizons before the end of the training part, and no test values: for
choices. Of `auto` the errors of its forecasters alone are kept too. The figures go into benchmarks/records/series.json
and into the page.

`--statsforecast` and `--neuralforecast` are environments that have these packages; `--peers` are models of theirs, by
default all that are compared. Networks of neuralforecast train as many CPU seconds as `auto` of weft took on the set.

Electricity prices: the last 7 days of four markets, day by day, by a model that is trained on the days before, with
covariates that are known in advance and without.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import weft
from benchmarks.quality.rows import data as data_file
from benchmarks.quality.series_data import SETS, CompetitionSet
from tools.pages import write_pages
from tools.records import machine, read, stamp, write
from weft.metrics.forecast import DECILES, ForecastScores, QuantileForecast, seasonal_scale
from weft.tasks.forecast.config import MODEL_KINDS
from weft.tasks.forecast.model import SeriesRows, medians

PEER_PROGRAMS = Path(__file__).parents[1] / "peers"
STATSFORECAST = dict.fromkeys(SETS, ("SeasonalNaive", "AutoETS", "Theta", "DynamicOptimizedTheta"))
STATSFORECAST["m4-hourly"] += ("MSTL",)
NEURALFORECAST = ("LSTM", "NHITS", "DeepAR")
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


def trained(data: CompetitionSet, kind: str, seed: int) -> dict[str, Any]:
    """The scores of a model that is trained on a set, and the CPU seconds of its training and its forecasts.

    Of `auto` also "parts": MASE of each forecaster that it could combine, alone.
    """
    settings = {"model.kind": kind, "train.seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        series = list(data.train)
        model = weft.train_forecast(
            series, Path(folder) / "run", settings, horizon=data.horizon, season=data.season, progress=False
        )
        forecast = quantiles(model.forecast(level=",".join(LEVELS)))
        seconds = time.process_time() - begin
    scales = seasonal_scale(series, data.season)
    found = {**scores(data, forecast), "seconds": seconds}
    if kind == "auto":
        parts = model.model.parts(SeriesRows(series), list(model.model.weights))
        errors = {name: np.abs(medians(part) - data.test).mean(1) / scales for name, part in parts.items()}
        found["parts"] = {name: round(float(one[scales > 0].mean()), 4) for name, one in errors.items()}
    return found


def scores(data: CompetitionSet, forecast: QuantileForecast) -> dict[str, float]:
    scales = seasonal_scale(data.train, data.season)
    found = ForecastScores.of(data.test, forecast, scales, season=data.season).metrics()
    return {name: found[name] for name in SCORES}


def statsforecast(data: CompetitionSet, environment: Path, name: str) -> dict[str, float]:
    """The scores of a model of statsforecast, and its CPU seconds."""
    found = program(environment, "forecast_series.py", name, **arrays(data))
    intervals = scores(data, interval_quantiles(*found[name]))
    return {**without_crps(intervals), "seconds": float(found[f"{name} seconds"])}


def neuralforecast(data: CompetitionSet, environment: Path, name: str, seconds: float) -> dict[str, float]:
    """The scores of a network of neuralforecast that trains for some CPU seconds, and those that it took."""
    found = program(environment, "forecast_networks.py", f"{seconds:.1f}", name, **arrays(data))
    quantiles, levels = np.sort(found[name], -1), tuple(found["levels"].tolist())
    median = quantiles[..., levels.index(0.5)]
    return {**scores(data, QuantileForecast(median, quantiles, levels)), "seconds": float(found[f"{name} seconds"])}


def arrays(data: CompetitionSet) -> dict[str, Any]:
    """What programs of peers read."""
    lengths = list(map(len, data.train))
    return {
        "values": np.concatenate(data.train), "lengths": lengths, "season": data.season, "horizon": data.horizon
    }  # fmt: skip


def program(environment: Path, name: str, *arguments: str, **values: Any) -> dict[str, Any]:
    """Runs a program of a peer in its environment, with arrays in and arrays out."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, **values)
        command = [environment / "bin" / "python", "-W", "ignore", PEER_PROGRAMS / name, source, out, *arguments]
        subprocess.run(list(map(str, command)), check=True)
        with np.load(out) as file:
            return dict(file)


def interval_quantiles(mean: Any, low80: Any, high80: Any, low95: Any, high95: Any) -> QuantileForecast:
    """Means and two intervals (N, h) as quantiles: those between are not known, and there is no CRPS."""
    levels = (0.025, *DECILES, 0.975)
    inside = dict.fromkeys(DECILES, mean) | {0.1: low80, 0.9: high80, 0.025: low95, 0.975: high95}
    return QuantileForecast(mean, np.stack([inside[level] for level in levels], -1), levels)


def without_crps(found: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if name != "scaled_crps"}


def markets() -> dict[str, list[dict[str, str]]]:
    """The rows of electricity prices by market."""
    with data_file("series", "small", "electricity_price_train.csv").open(newline="", encoding="utf-8") as file:
        found: dict[str, list[dict[str, str]]] = {}
        for row in csv.DictReader(file):
            found.setdefault(row["unique_id"], []).append(row)
    return found


def day_by_day(forecasts: Callable[[int], QuantileForecast]) -> dict[str, float]:
    """The scores of forecasts of the last days of all markets, by how many days are left."""
    prices = [np.array([float(row["y"]) for row in rows]) for rows in markets().values()]
    total: ForecastScores | None = None
    for days in range(DAYS, 0, -1):
        cutoff = len(prices[0]) - days * DAY
        true = np.stack([values[cutoff : cutoff + DAY] for values in prices])
        scales = seasonal_scale([values[:cutoff] for values in prices], DAY)
        found = ForecastScores.of(true, forecasts(days), scales, season=DAY)
        total = found if total is None else total + found
    assert total is not None
    return {name: total.metrics()[name] for name in SCORES}


def electricity_by_arima(environment: Path) -> dict[str, float]:
    """The scores of statsforecast's AutoARIMA with covariates, and CPU seconds."""
    rows = markets().values()
    prices = np.array([[float(row["y"]) for row in own] for own in rows])
    # The last of the dummies of days is left out: together they are a constant.
    covariates = np.array([[[float(row[name]) for name in COVARIATES[:-1]] for row in own] for own in rows])
    found = program(
        environment, "forecast_covariates.py", values=prices, covariates=covariates, season=DAY, horizon=DAY,
        windows=DAYS,
    )  # fmt: skip
    intervals = day_by_day(lambda days: interval_quantiles(*found["forecasts"][:, DAYS - days]))
    return {**without_crps(intervals), "seconds": float(found["seconds"])}


def electricity(kind: str, seed: int, *, covariates: bool) -> dict[str, float]:
    """The scores of forecasts of electricity prices, day by day, and CPU seconds."""
    columns = ["unique_id", "ds", "y", *(COVARIATES if covariates else ())]
    settings = {"model.kind": kind, "train.seed": seed, "data.known": ",".join(COVARIATES) if covariates else ""}
    with tempfile.TemporaryDirectory() as folder:

        def table(days: int, future: int) -> str:
            """The values before the last days, and the covariates of further hours."""
            path = Path(folder) / f"{days}-{future}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns, extrasaction="ignore")
                writer.writeheader()
                for rows in markets().values():
                    cutoff = len(rows) - days * DAY
                    writer.writerows(rows[:cutoff])
                    writer.writerows({**row, "y": ""} for row in rows[cutoff : cutoff + future])
            return str(path)

        begin = time.process_time()
        run = Path(folder) / "run"
        model = weft.train_forecast(table(DAYS, 0), run, settings, horizon=DAY, season=DAY, progress=False)
        found = day_by_day(
            lambda days: quantiles(model.forecast(table(days, DAY if covariates else 0), level=",".join(LEVELS)))
        )
        return {**found, "seconds": time.process_time() - begin}


def show(name: str, found: Mapping[str, Any]) -> None:
    shown = "  ".join(f"{key} {found[key]:.4f}" for key in SCORES if key in found)
    print(f"  {name:28} {shown}  {found['seconds']:.1f} s", flush=True)


def record(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """The record with a row, which replaces the one of the same set, model, seed and held-out horizon."""
    key = ("set", "held_out", "model", "seed")
    kept = [one for one in rows if [one.get(name) for name in key] != [row.get(name) for name in key]]
    order = [*SETS, ELECTRICITY]
    kept.append({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()})
    return {
        "command": "python -m benchmarks.quality.series",
        **machine(),
        "rows": sorted(kept, key=lambda one: (order.index(one["set"]), one.get("held_out", 0))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, ELECTRICITY], default=[*SETS, ELECTRICITY])
    parser.add_argument("--models", nargs="*", choices=MODEL_KINDS, default=["linear", "baselines", "auto"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--held-out", type=int, metavar="N")
    parser.add_argument("--statsforecast", type=Path, metavar="VENV")
    parser.add_argument("--neuralforecast", type=Path, metavar="VENV")
    parser.add_argument("--peers", nargs="+", metavar="MODEL", help="of statsforecast and neuralforecast; default: all")
    options = parser.parse_args()

    def report(name: str, model: str, seed: int, found: Mapping[str, Any], part: str) -> None:
        show(f"{model}, seed {seed}" if seed else model, found)
        row = {"set": name, "model": model, "seed": seed, **found, **stamp([part])}
        if options.held_out:
            row["held_out"] = options.held_out
        write("series", record(read("series")["rows"], row))

    def wanted(names: Sequence[str]) -> list[str]:
        return [one for one in names if not options.peers or one in options.peers]

    for name in options.sets:
        print(name)
        if name == ELECTRICITY:
            for kind in options.models:
                for covariates in (False, True) if kind != "baselines" else (False,):
                    for seed in options.seeds:
                        found = electricity(kind, seed, covariates=covariates)
                        model = f"{kind}, with covariates" if covariates else kind
                        report(name, model, seed, found, "benchmarks/quality/series.py::electricity")
            if options.statsforecast:
                found, part = electricity_by_arima(options.statsforecast), "benchmarks/peers/forecast_covariates.py"
                report(name, "statsforecast AutoARIMA, with covariates", 0, found, part)
            continue
        data = held_out(SETS[name](), options.held_out) if options.held_out else SETS[name]()
        for kind in options.models:
            for seed in options.seeds:
                report(name, kind, seed, trained(data, kind, seed), "benchmarks/quality/series.py::trained")
        for peer in wanted(STATSFORECAST[name]) if options.statsforecast else ():
            found = statsforecast(data, options.statsforecast, peer)
            report(name, f"statsforecast {peer}", 0, found, "benchmarks/peers/forecast_series.py")
        for peer in wanted(NEURALFORECAST) if options.neuralforecast else ():
            rows = [one for one in read("series")["rows"] if (one["set"], one["model"]) == (name, "auto")]
            seconds = mean(one["seconds"] for one in rows if "held_out" not in one)
            found = neuralforecast(data, options.neuralforecast, peer, seconds)
            report(name, f"neuralforecast {peer}", 0, found, "benchmarks/peers/forecast_networks.py")
    write_pages()


if __name__ == "__main__":
    main()
