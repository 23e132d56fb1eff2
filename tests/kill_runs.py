"""Kills training at random moments, resumes it, and compares the result: `python -m tests.kill_runs [KILLS] [TASK]`.

Every trained task is trained once undisturbed. Then the same training is killed (SIGKILL) a random time after steps
drawn uniformly from all of them, and resumed each time, until it ends. Final weights and optimizer state must be
equal bit for bit, and the metrics line for line. Only kills between the first step and the last count.
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

WITHIN = 0.95  # of all steps
DELAY = 0.3  # seconds at most between a step of the metrics and the kill
SAVES = "train.save_seconds=0.2"
# Each takes 20 to 60 s.
CASES: dict[str, list[str]] = {
    "lm": ["text.limit=30000", "model.hidden_size=32", "train.epochs=40", "train.ema_decay=0.9", SAVES],
    "fill": ["text.limit=20000", "model.hidden_size=32", "model.embedding_dim=32", "train.epochs=40", SAVES],
    "classify": ["text.limit=1500", "model.hidden_size=16", "train.epochs=30", SAVES],
    "tag": ["model.hidden_size=16", "train.epochs=8", SAVES],
    "translate": ["text.limit=1500", "model.hidden_size=32", "train.epochs=9", SAVES],
    "hmm": ["text.limit=200000", "model.num_states=64", "train.iterations=60", "train.tolerance=0"],
}
DATA = {"translate": "grammar-fr"}


def command(task: str, out: Path, *extra: str) -> list[str]:
    sets = [part for one in CASES[task] for part in ("--set", one)]
    data = ["--data", DATA.get(task, "grammar")]
    column = ["--column", "upos"] if task == "tag" else []
    return [sys.executable, "-m", "weft", "train", task, "--out", str(out), *data, *column, *sets, *extra]


def start(task: str, out: Path, *extra: str) -> subprocess.Popen[str]:
    """Start training and wait for its first step: the line that describes the data comes right before it."""
    process = subprocess.Popen(
        command(task, out, *extra), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "held out" in line:
            return process
    raise SystemExit(f"{task}: no training, exit code {process.wait()}")


def train(task: str, out: Path) -> int:
    """Train undisturbed; returns the number of steps."""
    _finish(task, start(task, out))
    return int(load_tensors(out / CHECKPOINT).metadata["progress"]["step"])


def _finish(task: str, process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{task}: exit code {process.returncode}\n{errors}")


def train_with_kills(task: str, out: Path, kills: int, steps: int, chance: random.Random) -> list[int]:
    """Train, killed soon after random steps; returns the steps after which it was resumed, before the last one."""
    resumed_after = []
    for target in sorted(chance.randrange(int(WITHIN * steps)) for _ in range(kills)):
        process = start(task, out, "--resume")
        while process.poll() is None and _last_step(out) < target:
            time.sleep(0.01)
        time.sleep(chance.random() * DELAY)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        resumed_after.append(load_tensors(out / CHECKPOINT).metadata["progress"]["step"])
    _finish(task, start(task, out, "--resume"))
    return [step for step in resumed_after if step < steps]


def _last_step(run: Path) -> int:
    """The last step in the metrics, which have a line for every few steps."""
    lines = (run / METRICS).read_text().split("\n")[:-1] if (run / METRICS).exists() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0


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


def main(kills: int = 50, *tasks: str) -> int:
    chance, total = random.Random(time.time_ns()), 0
    cases = tasks or tuple(CASES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, task in enumerate(cases):
            steps = train(task, folder / task)
            share = (kills - total) // (len(cases) - number)  # what one task missed falls to the others
            resumed_after = train_with_kills(task, folder / f"{task}-killed", share, steps, chance)
            total += len(resumed_after)
            wrong = differences(folder / task, folder / f"{task}-killed")
            print(
                f"{task}: {steps} steps, {len(resumed_after)} kills, resumed after steps "
                f"{', '.join(map(str, resumed_after))}: {'equal' if not wrong else wrong[:5]}",
                flush=True,
            )
            if wrong:
                return 1
    print(f"{total} kills, every result equal bit for bit")
    return 0 if total >= 0.9 * kills else 1


if __name__ == "__main__":
    sys.exit(main(*(int(one) if one.isdigit() else one for one in sys.argv[1:])))
