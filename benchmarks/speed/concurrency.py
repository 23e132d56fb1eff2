"""Training speed of `weft train` alone, next to a busy process, and of two training runs at once.

    python -m benchmarks.speed.concurrency

Measures steps per second on the embedded grammar, with the spin count that weft sets for idle OpenMP threads and with
the default of GNU OpenMP, alternating. Two runs that share the cores can reach half the speed of one alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TASKS = {"lm": "grammar", "translate": "grammar-fr"}
SPIN_COUNTS = {"weft": {}, "OpenMP": {"GOMP_SPINCOUNT": "300000"}}  # the default of GNU OpenMP


def start(task: str, out: Path, seconds: float, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "weft", "train", task, "--data", TASKS[task], "--out", str(out)]
    for setting in (f"train.minutes={seconds / 60}", "train.epochs=1000", "train.evaluate_every=1000000"):
        command += ["--set", setting]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def steps_per_second(run: Path) -> float:
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return last["step"] / last["seconds"]


def measure(task: str, load: str, seconds: float, environment: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / name for name in ("one", "other")[: 2 if load == "another training" else 1]]
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if load == "a busy process" else None
        trainings = [start(task, run, seconds, environment) for run in runs]
        codes = [training.wait() for training in trainings]
        if busy is not None:
            busy.kill()
        assert not any(codes), "a training failed"
        return statistics.mean(map(steps_per_second, runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for task in TASKS:
        for load in ("nothing", "a busy process", "another training"):
            found: dict[str, list[float]] = {name: [] for name in SPIN_COUNTS}
            for _ in range(options.rounds):
                for name, environment in SPIN_COUNTS.items():
                    found[name].append(measure(task, load, options.seconds, environment))
            medians = ", ".join(f"{name} {statistics.median(speeds):.1f}" for name, speeds in found.items())
            print(f"{task:10} next to {load:17} steps/s: {medians}", flush=True)


if __name__ == "__main__":
    main()
