"""`weft tune`: a command for each task that searches for good settings."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.commands import as_command, option
from weft.cli.elsewhere import task_group
from weft.cli.train import chosen_settings, set_threads, setting_options
from weft.errors import WeftError
from weft.tasks import describe, get_task

if TYPE_CHECKING:
    from weft.metrics import Metric
    from weft.tuning import TrialResult, TuningResult

TUNE_HELP = """Search for good settings of a {task} model.

Trial 0 has the default settings; later ones are sampled from the task's search space, and those that fall behind are
stopped. The best trial is the run directory OUT/best. The same command continues the search.
"""


def make_tune() -> typer.Typer:
    """The group `weft tune`, with a command for each task."""
    return task_group("Search for good settings (needs weft[tune]).", _make_command)


def _make_command(name: str) -> Callable[..., None]:
    task = describe(name)
    flags = {flag: one for flag, one in task["flags"].items() if not one["setting"].startswith(("train.", "batch."))}
    own = setting_options(flags)

    def command(
        out: Path | None, data: str | None, sets: list[str] | None, threads: int | None, json_output: bool, **given: Any
    ) -> None:
        from weft.config import parse_assignments
        from weft.tuning import tune

        if out is None:
            raise WeftError("--out is missing", expected="a folder for the trials", hint="--out runs/tuned")
        if data is None:
            raise WeftError("--data is missing", expected="data to train on", hint=f"--data {get_task(name).sample}")
        chosen = chosen_settings(flags, {name: given.pop(name) for name in own})
        set_threads(threads)
        given["storage"] = given["storage"] or ""
        metric = get_task(name).metric
        found = tune(name, data, out, parse_assignments([*(sets or []), *chosen]), report=_shower(metric), **given)
        typer.echo(json.dumps(_record(found)) if json_output else "\n".join(_in_words(found, metric)))

    parameters = [
        option("--out", Path, "The folder of the study."),
        option("--data", str, task["data_help"]),
        option("--dev", str, task["dev_help"]),
        *own.values(),
        option("--minutes", float, "The time budget of this call.", 0.0, min=0),
        option("--trials", int, "Trials of the study, earlier ones included; 0: by the budget.", 0, min=0),
        option(
            "--storage", str, "A database for several machines, such as postgresql://...; without it a file in OUT."
        ),
        option("--threads", int, "Threads to use.", min=1),
        option("--set", list[str], "A setting that all trials have, as model.cell=gru.", name="sets"),
        option("--json", bool, "Print the result as JSON.", default=False, name="json_output"),
    ]
    return as_command(command, name, TUNE_HELP.format(task=name), parameters)


def _shower(metric: Metric) -> Callable[[TrialResult], None]:
    """Prints each trial as a line on standard error."""

    def show(trial: TrialResult) -> None:
        known = metric.name in trial.metrics
        score = f"{metric.show(trial.metrics[metric.name], '.4g')}, score {trial.score:.4g}" if known else "no score"
        print(f"trial {trial.number}: {trial.state}, {score}", file=sys.stderr, flush=True)

    return show


def _record(found: TuningResult) -> dict[str, Any]:
    best = found.best
    return {
        "trials": [
            {
                "number": one.number,
                "state": one.state,
                "score": None if math.isnan(one.score) else one.score,
                "metrics": dict(one.metrics),
            }
            for one in found.trials
        ],
        "best": {"number": best.number, "run": str(best.path) if best.path else None, "metrics": dict(best.metrics)},
        "settings": dict(best.settings),
        "tests": [test.to_dict() for test in found.tests],
        "picture": str(found.picture),
    }


def _in_words(found: TuningResult, metric: Metric) -> list[str]:
    best, states = found.best, [trial.state for trial in found.trials]
    lines = [
        f"{len(states)} trials: {states.count('complete')} complete, {states.count('pruned')} stopped early, "
        f"{states.count('failed')} failed; picture: {found.picture}",
        f"best: trial {best.number}, held-out {metric.show(best.metrics[metric.name], '.4g')}, "
        f"lowest score {best.score:.4g}" + (f", {best.path}" if best.path else ", a run on another machine"),
    ]
    lines += [
        f"  {name} = {value:.4g}" if isinstance(value, float) else f"  {name} = {value}"
        for name, value in best.settings.items()
    ]
    first = found.trials[0]
    if best.number == 0:
        return [*lines, "no trial is better than the default settings"]
    if first.number == 0 and metric.name in first.metrics:
        lines.append(f"defaults: held-out {metric.show(first.metrics[metric.name], '.4g')}, score {first.score:.4g}")
    for test in found.tests:
        lines.append(
            f"gain over the defaults: {test.metric} {test.difference:+.4f} "
            f"({'better' if test.better == 'second' else 'not better'}), 95% interval {test.low:+.4f} to "
            f"{test.high:+.4f}, on {test.examples:,} held-out examples (one is a {test.unit})"
        )
    if found.tests:
        lines.append("The best trial was chosen on these examples: on new ones expect somewhat less.")
    return lines
