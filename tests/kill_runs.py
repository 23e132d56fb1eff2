"""Kills training at random moments, resumes it, and compares the result: `python -m tests.kill_runs [KILLS]`.

Every trained task is trained once undisturbed. Then the same training is killed (SIGKILL) again and again and resumed,
until it ends. The final weights and the optimizer's state must be equal bit for bit, and the metrics line for line.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weft.training.run import CHECKPOINT, METRICS, WEIGHTS, load_tensors

SHORT = ["train.save_seconds=0.05"]
CASES: dict[str, list[str]] = {
    "lm": ["text.limit=30000", "model.hidden_size=32", "train.epochs=3", "train.ema_decay=0.9", *SHORT],
    "fill": ["text.limit=20000", "model.hidden_size=32", "model.embedding_dim=32", "train.epochs=3", *SHORT],
    "classify": ["text.limit=1500", "model.hidden_size=16", "train.epochs=3", *SHORT],
    "tag": ["model.hidden_size=16", "train.epochs=2", *SHORT],
    "translate": ["text.limit=1500", "model.hidden_size=32", "train.epochs=3", *SHORT],
    "hmm": ["text.limit=40000", "model.num_states=24", "train.iterations=60", "train.tolerance=0"],
}
DATA = {"translate": "grammar-fr"}


def command(task: str, out: Path, *extra: str) -> list[str]:
    sets = [part for one in CASES[task] for part in ("--set", one)]
    data = ["--data", DATA.get(task, "grammar")]
    column = ["--column", "upos"] if task == "tag" else []
    return [sys.executable, "-m", "weft", "train", task, "--out", str(out), *data, *column, *sets, *extra]


def train(task: str, out: Path) -> float:
    """Train undisturbed; returns the seconds that it took."""
    began = time.perf_counter()
    subprocess.run(command(task, out), check=True, capture_output=True)
    return time.perf_counter() - began


def train_with_kills(task: str, out: Path, kills: int, seconds: float, chance: random.Random) -> int:
    """Train, killed up to `kills` times; returns how often it was."""
    done = 0
    while True:
        with subprocess.Popen(
            command(task, out, "--resume"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            try:
                limit = 2.0 + chance.random() * seconds if done < kills else None
                process.wait(limit)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                done += 1
                continue
            if process.returncode:
                raise SystemExit(f"{task}: exit code {process.returncode}\n{process.stderr.read()}")
            return done


def differences(one: Path, other: Path) -> list[str]:
    """The names of what differs between two runs."""
    found = []
    for file in (WEIGHTS, CHECKPOINT):
        (first, _), (second, _) = load_tensors(one / file), load_tensors(other / file)
        if first.keys() != second.keys():
            found.append(file)
        found += [
            f"{file} {name}" for name in first.keys() & second.keys() if not first[name].equal(second[name])
        ]  # fmt: skip
    lines = [_metrics(run) for run in (one, other)]
    return found + ([METRICS] if lines[0] != lines[1] else [])


def _metrics(run: Path) -> list[dict[str, object]]:
    """The lines of the metrics, without times."""
    records = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def main(kills: int = 50) -> int:
    chance, total = random.Random(time.time_ns()), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, task in enumerate(CASES):
            seconds = train(task, folder / task)
            share = kills // len(CASES) + (number < kills % len(CASES))
            done = train_with_kills(task, folder / f"{task}-killed", share, seconds, chance)
            total += done
            wrong = differences(folder / task, folder / f"{task}-killed")
            print(
                f"{task}: {seconds:.1f} s undisturbed, {done} kills: {'equal' if not wrong else wrong[:5]}", flush=True
            )
            if wrong:
                return 1
    print(f"{total} kills, every result equal bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
