"""Kills training at random moments, resumes it, and compares the result.

    python -m tests.long.kill_runs [KILLS] [NAME...]

Every task is trained once undisturbed: alone, as two members (after `--pretrain`, where the task has it) and by two
workers. Then the same training is killed (SIGKILL, all its processes) a random time after lines of metrics drawn
uniformly from all of them, and resumed each time, until it ends. All weights and states of training must be equal bit
for bit, and the metrics line for line. Only kills of a process that is still at work count.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from weft.text.grammars.english import ENGLISH
from weft.training.run import METRICS, load_tensors

WITHIN = 0.95  # of all lines of metrics
DELAY = 0.3  # seconds at most between a line of the metrics and the kill
SAVES = "train.save_seconds=0.2"
# Each takes 20 to 60 s.
CASES: dict[str, list[str]] = {
    "lm": ["text.limit=30000", "model.hidden_size=32", "train.epochs=40", "train.ema_decay=0.9", SAVES],
    "fill": ["text.limit=20000", "model.hidden_size=32", "model.embedding_dim=32", "train.epochs=40", SAVES],
    "classify": ["text.limit=1500", "model.hidden_size=16", "train.epochs=30", SAVES],
    "tag": ["model.hidden_size=16", "train.epochs=8", SAVES],
    "translate": ["text.limit=1500", "model.hidden_size=32", "train.epochs=9", SAVES],
    "hmm": ["text.limit=200000", "model.num_states=64", "train.iterations=60", "train.tolerance=0"],
    "forecast": ["model.horizon=6", "model.season=12"],
}
DATA = {"translate": "grammar-fr"}
COUNTED = ["text.limit=2000000", "model.order=6"]  # n-grams, which have one step
SHORT = {"lm": 12, "fill": 12, "classify": 12, "tag": 3, "translate": 3}  # epochs of each member, and of two workers
SENTENCES = 3000  # of the raw text of --pretrain
SERIES, VALUES = 600, 90  # of the table of forecast


@dataclass(frozen=True)
class Case:
    """A training: its task, its options, and the settings beside those of the task.

    Attributes:
        data: the data; "": those of the task in DATA.
        begins: stands in the line that describes the data.
    """

    task: str
    settings: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    delay: float = DELAY
    data: str = ""
    begins: str = "held out"


def cases(raw: Path, table: Path) -> dict[str, Case]:
    """All trainings by name; those with `--pretrain` read the file `raw`, the forecaster reads `table`."""
    named = {task: Case(task) for task in CASES} | {"ngram": Case("ngram", delay=5.0)}
    named["forecast"] = Case("forecast", delay=1.0, data=str(table), begins=" values (")
    for task, epochs in SHORT.items():
        shorter = (f"train.epochs={epochs}",)
        pretrain = ("--pretrain", str(raw)) if task in ("fill", "classify", "tag") else ()
        named[f"{task}, {'pretrain, ' if pretrain else ''}2 members"] = Case(
            task, shorter, ("--members", "2", *pretrain)
        )
        named[f"{task}, 2 workers"] = Case(task, shorter, ("--workers", "2"))
    return named


def write_series(path: Path) -> None:
    """A table of series with a season."""
    chance = random.Random(1)
    rows = [
        f"s{number},{step},{10 + step % 12 + chance.random():.3f}\n"
        for number in range(SERIES)
        for step in range(VALUES)
    ]
    path.write_text("".join(["unique_id,ds,y\n", *rows]), encoding="utf-8")


def command(case: Case, out: Path, *extra: str) -> list[str]:
    sets = [part for one in (*CASES.get(case.task, COUNTED), *case.settings) for part in ("--set", one)]
    data = ["--data", case.data or DATA.get(case.task, "grammar")]
    column = ["--column", "upos"] if case.task == "tag" else []
    own = [sys.executable, "-m", "weft", "train", case.task, "--out", str(out)]
    return [*own, *data, *column, *sets, *case.options, *extra]


def start(case: Case, out: Path, *extra: str) -> subprocess.Popen[str]:
    """Start training and wait for its first step: the line that describes the data comes right before it."""
    process = subprocess.Popen(
        command(case, out, *extra),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if case.begins in line:
            return process
    raise SystemExit(f"{out.name}: no training, exit code {process.wait()}")


def train(case: Case, out: Path) -> int:
    """Train undisturbed; returns the lines of the metrics."""
    _finish(out, start(case, out))
    return _lines(out)


def _finish(out: Path, process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{out.name}: exit code {process.returncode}\n{errors}")


def train_with_kills(case: Case, out: Path, kills: int, lines: int, chance: random.Random) -> list[int]:
    """Train, killed soon after random lines of the metrics; returns the lines that stood at each kill."""
    killed_after = []
    for target in sorted(chance.randrange(max(1, int(WITHIN * lines))) for _ in range(kills)):
        process = start(case, out, "--resume")
        while process.poll() is None and _lines(out) < target:
            time.sleep(0.01)
        time.sleep(chance.random() * case.delay)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed_after.append(_lines(out))
        process.communicate()
    _finish(out, start(case, out, "--resume"))
    return killed_after


def _runs(out: Path) -> list[Path]:
    """The run, and the language model that `--pretrain` trains before it."""
    return [run for run in (Path(f"{out}.lm"), out) if run.exists()]


def _lines(out: Path) -> int:
    """The lines of the metrics of all runs; there is one for every few steps."""
    files = [run / METRICS for run in _runs(out)]
    return sum(file.read_text().count("\n") for file in files if file.exists())


def differences(one: Path, other: Path) -> list[str]:
    """The names of what differs between two runs: in their weights, states of training and metrics."""
    found = []
    files = [{file.name for file in run.glob("*.safetensors")} for run in (one, other)]
    found += sorted(files[0] ^ files[1])
    for file in sorted(files[0] & files[1]):
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


def main(kills: int = 50, *names: str) -> int:
    chance, total, unequal = random.Random(time.time_ns()), 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "raw.txt").write_text(ENGLISH.text(SENTENCES, seed=1), encoding="utf-8")
        write_series(folder / "series.csv")
        named = cases(folder / "raw.txt", folder / "series.csv")
        for number, case in enumerate(names or named):
            out, again = folder / f"run{number}", folder / f"killed{number}"
            lines = train(named[case], out)
            share = (kills - total) // (len(names or named) - number)  # what one training missed falls to the others
            killed_after = train_with_kills(named[case], again, share, lines, chance)
            total += len(killed_after)
            wrong = [
                f"{one.name}: {what}"
                for one, other in zip(_runs(out), _runs(again), strict=True)
                for what in differences(one, other)
            ]
            unequal += [case] if wrong else []
            print(
                f"{case}: {lines} lines of metrics, {len(killed_after)} kills after lines "
                f"{', '.join(map(str, killed_after))}: {'equal' if not wrong else wrong[:5]}; {total} kills so far",
                flush=True,
            )
    print(f"{total} kills, " + (f"not equal: {'; '.join(unequal)}" if unequal else "every result equal bit for bit"))
    return 0 if total >= 0.9 * kills and not unequal else 1


if __name__ == "__main__":
    sys.exit(main(*(int(one) if one.isdigit() else one for one in sys.argv[1:])))
