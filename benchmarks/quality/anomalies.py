"""Anomaly scores on three labelled files of NAB, and on anomalies that are put into other series.

    python -m benchmarks.quality.anomalies [--kinds linear hmm autoencoder] [--injected]

A forecaster is trained on the first 15 % of a file. The threshold is lowered as long as there are at most two alarms
for each labelled window, where alarms within an hour count once; a window is found if there is an alarm in it. Beside
it stands an offline score, which sees the whole file: how many deviations a value is away from the mean of its time of
the week. The labelled windows of a training part cannot be found by the forecaster: it is shown how many there are.
`--injected` counts the same for anomalies of six kinds that are put into other series. Writes
benchmarks/records/anomalies.json and the page.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import weft
from benchmarks.quality.rows import data
from tools.pages import write_pages
from tools.records import RECORDS, machine, read, stamp, write
from weft.tasks.forecast.anomalies import fit_linear_detector

Array = np.ndarray[Any, np.dtype[np.float64]]

NAME = "anomalies"
FILES = {
    "art_daily_jumpsup": "artificialWithAnomaly",
    "nyc_taxi": "realKnownCause",
    "machine_temperature_system_failure": "realKnownCause",
}
TRAINED, ALARMS_FOR_WINDOW, RATES = 0.15, 2, (0.001, 0.0001)
INJECTED = ("spike", "shift", "flat", "phase", "noise", "scale")
WINDOWS = 4  # anomalies that are put into a series


class Labelled(NamedTuple):
    """A series with labelled windows.

    Attributes:
        values: (T,)
        season: steps of a day.
        windows: their first and last steps.
    """

    values: Array
    season: int
    windows: list[tuple[int, int]]


def nab_file(name: str) -> tuple[Labelled, list[str]]:
    """A file of NAB, with the times of its steps. Where a clock was put back, the later of two values is taken."""
    labels = json.loads(data("series", "nab", "combined_windows.json").read_text(encoding="utf-8"))
    with gzip.open(data("series", "nab", f"{name}.csv.gz"), "rt", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    times = np.array([row[0] for row in rows], "M8[s]")
    step = times[1] - times[0]
    places = ((times - times[0]) // step).astype(int)
    values = np.full(places.max() + 1, np.nan)
    values[places] = [float(row[1]) for row in rows]
    windows = [
        tuple(int((np.datetime64(moment[:19]) - times[0]) // step) for moment in window)
        for window in labels[f"{FILES[name]}/{name}.csv"]
    ]
    season = int(np.timedelta64(86400, "s") // step)
    return Labelled(values, season, windows), [str(times[0] + place * step) for place in range(len(values))]  # type: ignore[arg-type]


def windows_found(scores: Array, windows: list[tuple[int, int]], first: int, apart: int) -> int:
    """The windows with an alarm, at the lowest threshold with at most two alarms for each window.

    Args:
        scores: (T,); NaN: none.
        windows: first and last steps.
        first: the step from which alarms count.
        apart: alarms that are at most so many steps apart count once.
    """
    order = [place for place in np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable") if place >= first]
    alarms: list[int] = []
    for place in order:
        if np.isnan(scores[place]):
            break
        further = sorted([*alarms, int(place)])
        if 1 + int((np.diff(further) > apart).sum()) > ALARMS_FOR_WINDOW * len(windows):
            break
        alarms = further
    return sum(any(begin <= place <= end for place in alarms) for begin, end in windows)


def offline_scores(values: Array, season: int) -> Array:
    """How many deviations each value is away from the mean of its time of the week, over the whole series."""
    week = 7 * season
    residuals = values - np.resize([np.nanmean(values[place::week]) for place in range(week)], len(values))
    found: Array = np.abs(residuals - np.nanmean(residuals)) / np.nanstd(residuals)
    return found


def scores_of_run(labelled: Labelled, times: list[str], kind: str, folder: Path) -> Array:
    """The scores of a run that was trained on the first part of a file."""
    trained = int(TRAINED * len(labelled.values))
    for name, last in (("train.csv", trained), ("whole.csv", len(times))):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("ds", "y"), *zip(times[:last], labelled.values[:last].tolist(), strict=True)])
    config = {"model.kind": kind}
    model = weft.train_forecast(folder / "train.csv", folder / "run", config, horizon=12, progress=False)
    scores: Array = model.anomalies(folder / "whole.csv")[0].scores
    return scores


def alarm_count(scores: Array, rate: float) -> int:
    above = np.nan_to_num(scores) >= -np.log10(rate)
    return int((above[1:] & ~above[:-1]).sum())


def series_without_labels() -> Iterator[tuple[str, Array, int]]:
    """Series of a choice: name, values, season."""
    with gzip.open(data("series", "small", "pollution.csv.gz"), "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:12_000]
    for column in ("TEMP", "PRES", "pm2.5"):
        yield column, np.array([float(row[column]) if row[column] != "NA" else np.nan for row in rows]), 24
    taxi, _ = nab_file("nyc_taxi")
    yield "taxi before its first label", taxi.values[: taxi.windows[0][0] - taxi.season], taxi.season


def with_anomalies(values: Array, season: int, kind: str, seed: int) -> Labelled:
    """A series with four anomalies of a kind after its training part."""
    random, values = np.random.default_rng((seed, INJECTED.index(kind))), values.copy()
    first = int(TRAINED * len(values))
    windows, room = [], (len(values) - first - 4 * season) // WINDOWS
    for number in range(WINDOWS):
        begin = first + season + number * room + int(random.integers(0, room - 2 * season))
        end = begin + {"spike": 2, "flat": season, "noise": season}.get(kind, 2 * season)
        week, part = values[begin - 7 * season : begin], values[begin:end].copy()
        deviation, change = np.nanstd(week), np.nanstd(np.diff(week))
        values[begin:end] = {
            "spike": part + random.choice([-1, 1]) * max(deviation, 4 * change),
            "shift": part + random.choice([-1, 1]) * deviation,
            "flat": np.full(len(part), values[begin - 1]),
            "phase": values[begin - season // 2 - season + np.arange(len(part)) % season],
            "noise": part + random.normal(0, 3 * change, len(part)),
            "scale": 0.3 * part + 0.7 * (np.nanmean(part) if np.isfinite(part).any() else np.nan),
        }[kind]
        windows.append((begin, end + season))
    return Labelled(values, season, windows)


def labelled_file(name: str, kind: str) -> dict[str, Any]:
    """The windows of a file that are found, and the alarms at fixed rates."""
    labelled, times = nab_file(name)
    with tempfile.TemporaryDirectory() as folder:
        scores = scores_of_run(labelled, times, kind, Path(folder))
    first = int(TRAINED * len(scores))

    def found(one: Array) -> int:
        return windows_found(one, labelled.windows, first, labelled.season // 24)

    return {
        "file": name,
        "kind": kind,
        "windows": len(labelled.windows),
        "in_training": sum(end < first for _, end in labelled.windows),
        "found": found(scores),
        "offline": found(offline_scores(labelled.values, labelled.season)),
        "alarms": {str(rate): alarm_count(scores[first:], rate) for rate in RATES},
        "values": len(scores) - first,
    }


def injected() -> list[dict[str, Any]]:
    """Of each kind of anomaly that is put into series, the windows that are found by the forecaster and offline."""
    found = {kind: {"kind": kind, "windows": 0, "found": 0, "offline": 0} for kind in INJECTED}
    for seed, (name, values, season) in enumerate(series_without_labels()):
        first = int(TRAINED * len(values))
        detector = fit_linear_detector(None, [values[:first]], season)
        spoiled = [with_anomalies(values, season, kind, seed) for kind in INJECTED]
        clean, *scores = (one.values for one in detector.score([values, *(one.values for one in spoiled)]))
        rate = alarm_count(clean[first:], RATES[0]) / (len(clean) - first)
        print(f"{name}: {1000 * rate:.2f} alarms in 1,000 values without these anomalies, at {RATES[0]}", flush=True)
        for kind, labelled, own in zip(INJECTED, spoiled, scores, strict=True):
            row = found[kind]
            row["windows"] += len(labelled.windows)
            row["found"] += windows_found(own, labelled.windows, first, season // 24)
            row["offline"] += windows_found(
                offline_scores(labelled.values, season), labelled.windows, first, season // 24
            )
    return list(found.values())


def record(earlier: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    """The record with what was measured, `files` or `injected`, in the place of what was there."""
    files = {(one["kind"], one["file"]): one for one in (*earlier.get("files", ()), *parts.get("files", ()))}
    kept = {"files": list(files.values()), "injected": parts.get("injected", earlier.get("injected", []))}
    return {"command": "python -m benchmarks.quality.anomalies", **machine(), **kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", default=["linear"], help="model.kind of the runs on the labelled files")
    parser.add_argument("--injected", action="store_true", help="anomalies that are put into series")
    options = parser.parse_args()
    path = RECORDS / f"{NAME}.json"
    for kind in options.kinds:
        for name in FILES:
            row = {**labelled_file(name, kind), **stamp(["benchmarks/quality/anomalies.py::labelled_file"])}
            print(", ".join(f"{key} {value}" for key, value in row.items() if key != "depends"), flush=True)
            write(NAME, record(read(NAME) if path.exists() else {}, files=[row]))
    if options.injected:
        mark = stamp(["benchmarks/quality/anomalies.py::injected"])
        write(NAME, record(read(NAME) if path.exists() else {}, injected=[{**row, **mark} for row in injected()]))
    write_pages()


if __name__ == "__main__":
    main()
