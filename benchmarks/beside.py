"""A training by the command line, alone, beside a busy process, and two at once: `python -m benchmarks.beside`.

Steps a second of `weft train` on the embedded grammar, as it waits for work and as GNU's OpenMP would have it wait by
itself, in turn. Where two trainings share the cores, each of them can have half the steps of one alone.
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
WAITING = {"weft": {}, "OpenMP": {"GOMP_SPINCOUNT": "300000"}}  # its own default


def start(task: str, out: Path, seconds: float, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "weft", "train", task, "--data", TASKS[task], "--out", str(out)]
    for setting in (f"train.minutes={seconds / 60}", "train.epochs=1000", "train.evaluate_every=1000000"):
        command += ["--set", setting]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def steps_a_second(run: Path) -> float:
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return last["step"] / last["seconds"]


def measure(task: str, beside: str, seconds: float, environment: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / name for name in ("one", "other")[: 2 if beside == "another training" else 1]]
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if beside == "a busy process" else None
        trainings = [start(task, run, seconds, environment) for run in runs]
        codes = [training.wait() for training in trainings]
        if busy is not None:
            busy.kill()
        assert not any(codes), "a training failed"
        return statistics.mean(map(steps_a_second, runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for task in TASKS:
        for beside in ("nothing", "a busy process", "another training"):
            found: dict[str, list[float]] = {name: [] for name in WAITING}
            for _ in range(options.rounds):
                for name, environment in WAITING.items():
                    found[name].append(measure(task, beside, options.seconds, environment))
            medians = ", ".join(f"{name} {statistics.median(speeds):.1f}" for name, speeds in found.items())
            print(f"{task:10} beside {beside:17} steps/s: {medians}", flush=True)


if __name__ == "__main__":
    main()
