"""Runs side by side: a summary of each, training curves, settings that differ, and a paired test of their scores.

`weft runs`, `weft compare`, `weft plot`, the server and the search for settings all read runs by this module. It
imports no torch until a test loads two models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.config import dotted
from weft.errors import WeftError
from weft.metrics.paired import paired_bootstrap
from weft.results import Array, PlainResult
from weft.tasks import load
from weft.training.lock import is_locked
from weft.training.run import (
    CHECKPOINT,
    CONFIG,
    DATA_RECORD,
    METRICS,
    WEIGHTS,
    Run,
    decoding,
    open_run,
    read_json,
    read_metadata,
)

TRAINING = "train_"  # how the name of a training loss begins; the held-out one has the rest of the name


@dataclass(frozen=True, eq=False)
class RunSummary(PlainResult):
    """One run in a list of runs.

    Attributes:
        path: Its folder.
        task: The name of its task.
        data: What it was trained on, as it was given; None where that is not recorded.
        weights: The number of its weights, or None before the first are saved.
        date: When it was last changed, as seconds since 1970.
        step: The last step in its metrics.
        metric: The name of the task's held-out metric.
        best: The value of that metric at the best evaluation, or None.
        state: "training" (a process trains it now), "done", "stopped" (it can be resumed) or "started" (no step yet).
        held_out: The digest of its held-out data, None without any: scores of runs with the same one can be compared.
    """

    probe = "run"

    path: str
    task: str
    data: str | None
    weights: int | None
    date: float
    step: int
    metric: str
    best: float | None
    state: str
    held_out: str | None


def find_runs(folder: str | Path) -> list[Path]:
    """The run directories in a folder and below it, in order of their names.

    Raises:
        WeftError: There is no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise WeftError(f"{root} is not a folder", expected="a folder with runs", hint="weft runs runs")
    found = {path.parent for path in root.rglob(CONFIG) if not path.parent.name.startswith(".")}
    return sorted(path for path in found if found.isdisjoint(path.parents))  # not the parts of a run


def summarize_run(path: str | Path) -> RunSummary:
    """The summary of a run, from its small files and the header of its weights."""
    run = open_run(path)
    files = [run.path / name for name in (CONFIG, METRICS, WEIGHTS, CHECKPOINT) if run.has(name)]
    with decoding(run.path):
        records = run.metrics()
        best, metric = best_evaluation(records) or {}, run.metric.name if run.metric else ""
        source = read_json(run.path / DATA_RECORD).get("source") if run.has(DATA_RECORD) else None
        shapes = run.shapes() if run.has(WEIGHTS) or run.has(CHECKPOINT) else {}
        return RunSummary(
            path=str(path),
            task=run.task,
            data=source if isinstance(source, str) else None,
            weights=sum(map(math.prod, shapes.values())) if shapes else None,
            date=max(file.stat().st_mtime for file in files),
            step=records[-1]["step"] if records else 0,
            metric=metric,
            best=best.get(metric),
            state=_state(run),
            held_out=held_out_digest(run),
        )


def _state(run: Run) -> str:
    if is_locked(run.path):
        return "training"
    saved = read_metadata(run.path / CHECKPOINT) if run.has(CHECKPOINT) else {}
    progress = saved.get("progress", {})
    train = run.config.get("train", {})
    if not (progress.get("step") or progress.get("phase")) and run.has(CHECKPOINT):
        return "started"
    members = train.get("members", 1)
    if members > 1 and not progress.get("evaluated_together"):
        return "stopped"
    minutes = train.get("minutes", 0) / members
    late = minutes and progress.get("seconds", 0) + progress.get("reserve", 0) >= 60 * minutes
    planned = progress.get("planned_steps") or 0  # of a time limit
    late = late or 0 < planned <= progress["step"]
    patient = train.get("patience") and progress.get("bad", 0) >= train["patience"]
    rounds = train.get("epochs", train.get("restarts", 0))  # an HMM has restarts, n-grams are counted once
    return "done" if late or patient or progress.get("epoch", rounds) >= rounds else "stopped"


def best_evaluation(records: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """The metrics of the best held-out evaluation: the last that was marked as best, or the last one."""
    evaluated = [record for record in records if isinstance(record.get("evaluation"), dict)]
    marked = [record for record in evaluated if record.get("best")]
    chosen = (marked or evaluated)[-1:]
    return dict(chosen[0]["evaluation"]) if chosen else None


@dataclass(frozen=True, eq=False)
class MetricCurve(PlainResult):
    """A metric of a run over its steps.

    Attributes:
        path: The run.
        name: Its name: "train_cross_entropy", "grad_norm", "learning_rate", or a metric of the evaluations.
        steps: (N,).
        values: (N,).
        best: The number of the best point, where the evaluations mark one.
        label: What its values are, for an axis: "nats per token".
    """

    probe = "curve"

    path: str
    name: str
    steps: Array
    values: Array
    best: int | None
    label: str = ""

    def _fields(self) -> dict[str, Any]:
        return {name: value for name, value in super()._fields().items() if name != "label"}

    def records(self) -> Iterator[dict[str, Any]]:
        for place, (step, value) in enumerate(zip(self.steps.tolist(), self.values.tolist(), strict=True)):
            yield {"path": self.path, "metric": self.name, "step": step, "value": value, "best": place == self.best}


def metric_curves(path: str | Path) -> dict[str, MetricCurve]:
    """All curves of a run by their names, from metrics.jsonl."""
    run, found = open_run(path), dict[str, list[tuple[float, float, bool]]]()
    described = {metric.name: metric for metric in (run.metric, run.loss) if metric is not None}
    for record in run.metrics():
        step = float(record["step"])
        for name, value in record.items():
            if name in ("step", "epoch", "seconds", "best") or isinstance(value, bool):
                continue
            if isinstance(value, (int, float)):
                found.setdefault(name, []).append((step, float(value), False))
        for name, value in (record.get("evaluation") or {}).items():
            found.setdefault(name, []).append((step, float(value), bool(record.get("best"))))
    curves = {}
    for name, points in found.items():
        marked = [place for place, point in enumerate(points) if point[2]]
        steps, values = (np.array([point[at] for point in points]) for at in (0, 1))
        metric = described.get(name.removeprefix(TRAINING))
        label = name if metric is None else metric.label
        curves[name] = MetricCurve(str(path), name, steps, values, marked[-1] if marked else None, label)
    return curves


@dataclass(frozen=True, eq=False)
class PairedTest(PlainResult):
    """A paired bootstrap test of two runs on the same held-out examples.

    Attributes:
        first: The path of one run.
        second: The path of the other.
        examples: How many examples both were measured on.
        difference: The score of the second minus that of the first.
        low: The lower end of the 95% interval of the difference.
        high: The upper end.
        p_value: Two-sided: how often resampled examples turn the sign of the difference.
        unit: What one example is.
        metric: The name of the score: "cross_entropy", "accuracy", "f1", "bleu".
        better: "first" or "second" by the score, "neither" where the scores are equal.
    """

    probe = "paired"

    first: str
    second: str
    examples: int
    difference: float
    low: float
    high: float
    p_value: float
    unit: str
    metric: str
    better: str


@dataclass(frozen=True, eq=False)
class RunComparison(PlainResult):
    """Runs side by side.

    Attributes:
        paths: The runs.
        tasks: Their tasks.
        settings: For each setting of two or more runs that differs, its value in each run (None where it has none).
        scores: For each metric of the best evaluation its value in each run.
        tests: Of the first run against each other one, for each metric that both have on the same held-out examples.
        notes: Why a test is missing.
    """

    probe = "compare"

    paths: tuple[str, ...]
    tasks: tuple[str, ...]
    settings: dict[str, tuple[Any, ...]]
    scores: dict[str, tuple[float | None, ...]]
    tests: tuple[PairedTest, ...]
    notes: tuple[str, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        for kind, rows in (("setting", self.settings), ("score", self.scores)):
            for name, values in rows.items():
                for path, value in zip(self.paths, values, strict=True):
                    yield {"kind": kind, "name": name, "path": path, "value": value}


def compare_run_results(paths: Sequence[str | Path]) -> RunComparison:
    """Settings that differ, scores side by side, and paired bootstrap tests.

    Raises:
        WeftError: There are fewer than two runs.
    """
    if len(paths) < 2:
        raise WeftError(f"there are {len(paths)} runs to compare", expected="two or more", hint="weft compare A B")
    runs = [open_run(path) for path in paths]
    flat = [dotted(run.config) for run in runs]
    names = dict.fromkeys(name for one in flat for name in one)
    settings = {name: tuple(one.get(name) for one in flat) for name in names}
    common = {name for name in names if sum(name in one for one in flat) > 1}  # not those of one task alone
    settings = {name: values for name, values in settings.items() if name in common and len(set(map(str, values))) > 1}
    found = [best_evaluation(run.metrics()) or {} for run in runs]
    metrics = dict.fromkeys(name for one in found for name in one)
    scores = {name: tuple(one.get(name) for one in found) for name in metrics}
    tests: list[PairedTest] = []
    notes = []
    for run in runs[1:]:
        held_out = compare_held_out(runs[0], run)
        if held_out.reason:
            notes.append(f"no paired test of {runs[0].path} and {run.path}: {held_out.reason}")
        tests += held_out.tests
    return RunComparison(
        tuple(map(str, paths)), tuple(run.task for run in runs), settings, scores, tuple(tests), tuple(notes)
    )


class HeldOutComparison(NamedTuple):
    """The paired tests of two runs; where there are none, the reason."""

    tests: tuple[PairedTest, ...]
    reason: str


def compare_held_out(first: Run, second: Run) -> HeldOutComparison:
    """Measures two runs on their held-out examples, where these are the same."""
    one, other = (held_out_digest(run) for run in (first, second))
    if one is None or other is None:
        return HeldOutComparison((), "one of them has no held-out data")
    if one != other:
        remedy = "train both with the same --dev, or with the same data, seed and vocabulary"
        return HeldOutComparison((), f"their held-out data differs ({remedy})")
    tests = paired_tests(first, second)
    return HeldOutComparison(tests, "" if tests else "they have no metric of the same kind of example")


def held_out_digest(run: Run) -> str | None:
    """What tells the held-out data of a run: scores of runs with the same can be compared. None: it has none."""
    if not run.has(DATA_RECORD):
        return None
    files = read_json(run.path / DATA_RECORD).get("files", {})
    found = [digest for name, digest in files.items() if name.startswith("dev.")]
    horizon = run.config.get("model", {}).get("horizon")
    if not found and horizon:  # the last horizon of each series is held out
        found = [f"last {horizon}:", *(digest for name, digest in files.items() if name.startswith("train."))]
    return " ".join(found) or None


def paired_tests(first: Run, second: Run) -> tuple[PairedTest, ...]:
    """Measures two runs on their common held-out examples: a paired bootstrap test of each metric that both have."""
    one, other = ({each.metric: each for each in load(run.path).held_out_statistics()} for run in (first, second))
    tests = []
    for name, own in one.items():
        its = other.get(name)
        if its is None or own.signature != its.signature or len(own.sums) != len(its.sums) or not len(own.sums):
            continue
        found = paired_bootstrap(own, its)
        higher = "second" if own.higher_is_better else "first"
        lower = "first" if own.higher_is_better else "second"
        better = higher if found.difference > 0 else lower if found.difference < 0 else "neither"
        tests.append(PairedTest(str(first.path), str(second.path), len(own.sums), *found, own.unit, name, better))
    return tuple(tests)
