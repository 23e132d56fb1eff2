"""Classification of series: accuracy and CPU time of `weft.train_classify`, and of aeon's classifiers.

    python -m benchmarks.quality.series_classify [--sets BasicMotions ...] [--seeds 1 2] [--models weft ...]
        [--aeon VENV]

Trains on the training file with default settings and predicts the test file. `--aeon` is an environment that has aeon,
whose classifiers read the same series. Writes benchmarks/records/series-classification.json and the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import weft
from benchmarks.quality.rows import data
from tools.pages import write_pages
from tools.records import RECORDS, machine, read, stamp, write
from weft.series import SeriesColumns
from weft.series.examples import read_examples

NAME = "series-classification"
SETS = ("JapaneseVowels", "BasicMotions")
MODELS = ("weft", "MiniRocket", "1-NN DTW")
PEER_PROGRAM = Path(__file__).parents[1] / "peers" / "classify_series.py"


def file_of(name: str, part: str) -> Path:
    return data("series", "classification", f"{name}_{part}.ts.gz")


def trained(name: str, seed: int) -> dict[str, float]:
    """The accuracy of our classifier, and the CPU seconds of training and prediction."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        model = weft.train_classify(file_of(name, "TRAIN"), Path(folder) / "run", {"train.seed": seed}, progress=False)
        accuracy = model.evaluate(file_of(name, "TEST")).accuracy
        return {"accuracy": accuracy, "seconds": time.process_time() - begin}


def peer(name: str, environment: Path, model: str, seed: int) -> dict[str, float]:
    """The accuracy of a classifier of aeon, and its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        splits = Path(folder) / "splits.npz"
        arrays = {}
        for part in ("train", "test"):
            found = read_examples(file_of(name, part.upper()), SeriesColumns())
            arrays[f"{part} values"] = np.concatenate([one.target for one in found.series])
            arrays[f"{part} lengths"] = [len(one.target) for one in found.series]
            arrays[f"{part} labels"] = found.labels
        np.savez(splits, **arrays)
        command = [environment / "bin" / "python", "-W", "ignore", PEER_PROGRAM, splits, model, seed]
        out = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout
        found_scores: dict[str, float] = json.loads(out.splitlines()[-1])
        return found_scores


def record(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """The record with a row, which replaces the one of the same set, model and seed."""
    key = ("set", "model", "seed")
    kept = [one for one in rows if [one[name] for name in key] != [row[name] for name in key]]
    kept.append({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()})
    kept.sort(key=lambda one: (SETS.index(one["set"]), MODELS.index(one["model"]), one["seed"]))
    return {"command": "python -m benchmarks.quality.series_classify", **machine(), "rows": kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--aeon", type=Path, metavar="VENV")
    options = parser.parse_args()
    for name in options.sets:
        for model in options.models:
            for seed in options.seeds:
                if model == "weft":
                    found, part = trained(name, seed), "benchmarks/quality/series_classify.py::trained"
                elif options.aeon and (
                    model == "MiniRocket" or seed == options.seeds[0]
                ):  # nothing random in the other
                    found, part = peer(name, options.aeon, model, seed), "benchmarks/peers/classify_series.py"
                else:
                    continue
                print(f"{name}, {model}, seed {seed}: {found['accuracy']:.4f}, {found['seconds']:.1f} s", flush=True)
                rows = read(NAME)["rows"] if (RECORDS / f"{NAME}.json").exists() else []
                write(NAME, record(rows, {"set": name, "model": model, "seed": seed, **found, **stamp([part])}))
    write_pages()


if __name__ == "__main__":
    main()
