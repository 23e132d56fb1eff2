"""Hyper-parameter search with Optuna: trials are ordinary training runs, and the best of them is kept.

Trial 0 has the default settings. The later ones are sampled by TPE (Bergstra et al. 2011) from the task's search space
(`search_space` of its settings); one whose evaluations are worse than the median of the others is stopped. All trials
are recorded in a study: a journal in the output folder, or a database that several machines share.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.config import auto_settings, dotted, load_config, to_dict
from weft.errors import WeftError, check_path
from weft.metrics import Metric
from weft.pictures import to_svg
from weft.pictures.figures import Curve, Curves
from weft.tasks import get_task
from weft.tasks.runs import PairedTest, paired_tests
from weft.training.environment import in_group
from weft.training.run import open_run
from weft.training.search_space import Choice, Range, SearchSpace, names_of, nearest
from weft.training.study import beating, import_optuna, open_study, process_lock, take_over, trial_folder

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

    from weft.tasks.task import Task

PICTURE, BEST = "study.svg", "best"
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}  # of trials that have ended
TRIAL_SECONDS = "trial_seconds"  # an attribute of the study
TRIALS_IN_BUDGET = 12  # the time of a trial is this part of the budget, if the number of trials is not given
SHORTEST = 0.5  # of the time of a trial: with less of the budget left, no trial is started
REPORTS = 8  # at so many points of its training a trial may be stopped


@dataclass(frozen=True)
class TrialResult:
    """One trial."""

    number: int  # its number in the study; 0 has the default settings
    state: str  # "complete", "pruned" or "failed"
    score: float  # the best held-out score, lower is better; NaN if there is none
    metrics: Mapping[str, float]  # all metrics of the best evaluation
    settings: Mapping[str, Any]  # the settings that were searched
    path: Path | None  # its run directory; None if it was deleted, or is on another machine


@dataclass(frozen=True)
class TuningResult:
    """What a search has found."""

    trials: tuple[TrialResult, ...]  # all trials of the study that have ended, by number
    best: TrialResult  # the trial with the best score
    # paired tests of the defaults and the best trial, one for each metric, where both runs are here
    tests: tuple[PairedTest, ...]
    picture: Path  # the file with the picture of the study


def tune(
    task: str,
    source: Any,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    dev: Any = None,
    minutes: float = 0.0,
    trials: int = 0,
    storage: str = "",
    report: Callable[[TrialResult], None] = lambda trial: None,
) -> TuningResult:
    """Searches for good settings of a task. Called again with the same `out` or `storage`, it continues.

    Args:
        task: The name of a task.
        source: What to train on, as in `weft.train`.
        out: The folder of the study: the trials' run directories, and `best`, a link to the best of them.
        settings: Settings that all trials have; they are not searched.
        dev: Held-out data; without it a part of the source is held out.
        minutes: The time budget, of this call. A running trial ends when it is used up.
        trials: The number of trials of the study, those of earlier calls included; 0: as many as fit into the budget.
        storage: The address of a database (`postgresql://...`), for several machines; empty: a journal in `out`.
        report: Called with each trial that has ended here.

    Raises:
        WeftError: If neither a budget nor a number of trials is given, Optuna is missing, or no trial succeeds.
    """
    optuna = import_optuna()
    out = check_path(out, "`out`")
    _check_arguments(task, minutes, trials)
    source, dev = (list(data) if isinstance(data, Iterator) else data for data in (source, dev))  # every trial reads it
    fixed = dict(settings or {})
    space = {key: way for key, way in search_space(task).items() if not any(name in fixed for name in names_of(key))}
    deadline = time.monotonic() + 60 * minutes if minutes else math.inf
    out.mkdir(parents=True, exist_ok=True)
    study = open_study(optuna, task, out, storage)
    share = seconds_of_trial(study, 60 * minutes / (trials or TRIALS_IN_BUDGET))
    defaults = _default_settings(get_task(task), source, dev, fixed, share / 60)
    flat = dotted(defaults)
    first = {key: nearest(way, flat[names_of(key)[0]]) for key, way in space.items()}
    study.enqueue_trial(first, skip_if_exists=True)
    with process_lock(out) as process:
        while True:
            take_over(optuna, study, out)
            optuna.storages.fail_stale_trials(study)  # of machines that are silent; they are repeated
            left = deadline - time.monotonic()
            if (trials and _begun(study) >= trials) or left < SHORTEST * share or left <= 0:
                break
            trial = study.ask()
            trial.set_user_attr("process", process)
            values = {key: _sample(trial, key, way) for key, way in space.items()}
            sampled = {name: value for key, value in values.items() for name in names_of(key)}
            seconds = min(share or math.inf, left)
            limit = {"train.minutes": seconds / 60} if "train" in defaults and seconds < math.inf else {}
            run_trial(optuna, study, trial, get_task(task), source, dev, out, {**limit, **fixed, **sampled})
            report(_trial_result(study.get_trials(deepcopy=False)[trial.number], out))
            _keep_best(study, out)
            draw_study(study, out / PICTURE, get_task(task).metric)
    return _result(study, out, get_task(task).metric)


def search_space(task: str) -> SearchSpace:
    """The settings of a task that are searched, and their ranges."""
    space: SearchSpace | None = getattr(get_task(task).config_class, "search_space", None)
    if space is None:
        raise WeftError(f"the settings of {task!r} have no search space", expected="a task that can be tuned")
    return space


def _check_arguments(task: str, minutes: float, trials: int) -> None:
    get_task(task)
    if in_group():
        raise WeftError(
            "a search inside torchrun",
            expected="processes of their own that share a study",
            hint="the same `weft tune` command with --storage on every machine",
        )
    if not minutes and not trials:
        raise WeftError("the search has no end", expected="a budget or a number of trials", hint="`minutes=30`")
    if minutes < 0 or trials < 0:
        raise WeftError(f"minutes={minutes:g}, trials={trials}", expected="0 or more")


def seconds_of_trial(study: Study, seconds: float) -> float:
    """The time of a trial, 0 for no limit: that of the first call, because only trials of equal time are comparable."""
    if TRIAL_SECONDS not in study.user_attrs:
        study.set_user_attr(TRIAL_SECONDS, seconds)
    return float(study.user_attrs[TRIAL_SECONDS])


def _begun(study: Study) -> int:
    """The number of trials that have ended or are running, failed ones not included."""
    return sum(trial.state.name in ("COMPLETE", "PRUNED", "RUNNING") for trial in study.get_trials(deepcopy=False))


def _default_settings(
    task: Task[Any, Any, Any], source: Any, dev: Any, fixed: Mapping[str, Any], minutes: float
) -> dict[str, Any]:
    """The default settings of a trial; where they are "auto", what the task chooses for this data and time."""
    config = load_config(task.config_class, None, fixed)
    if not auto_settings(config):
        return to_dict(config)
    limit = {"train.minutes": minutes} if minutes and "train.minutes" not in fixed else {}
    with tempfile.TemporaryDirectory() as folder:
        training = task.start(source, Path(folder) / "run", {**limit, **fixed}, dev=dev)
        if training.lock is not None:
            training.lock.release()
        return training.run.config


def _sample(trial: Trial, key: str, way: Range | Choice) -> Any:
    if isinstance(way, Choice):
        return trial.suggest_categorical(key, way.values)
    if isinstance(way.low, int):
        return trial.suggest_int(key, way.low, int(way.high), log=way.log)
    return trial.suggest_float(key, way.low, way.high, log=way.log)


def run_trial(
    optuna: Any, study: Study, trial: Trial, task: Any, source: Any, dev: Any, out: Path, settings: dict[str, Any]
) -> None:
    """Trains one run; tells the study how it ended."""
    folder, states = out / trial_folder(trial.number), optuna.trial.TrialState
    try:
        with beating(optuna, study, trial):
            training = task.start(source, folder, settings, dev=dev)
            pruned = train_trial(trial, training)
        trial.set_user_attr("metrics", training.trainer.progress.best_metrics)
    except optuna.exceptions.UpdateFinishedTrialError:
        # This process was silent for so long, or so the others thought, that one of them repeats the trial.
        shutil.rmtree(folder, ignore_errors=True)
        return
    except WeftError:
        study.tell(trial, state=states.FAIL)
        shutil.rmtree(folder, ignore_errors=True)
        if trial.number == 0:
            raise  # the defaults do not work either: a mistake in the data or in the settings
        return
    except BaseException:
        study.tell(trial, state=states.FAIL)
        study.enqueue_trial(trial.params)  # the next call repeats it
        shutil.rmtree(folder, ignore_errors=True)
        raise
    score = training.trainer.progress.best
    if pruned:
        shutil.rmtree(folder, ignore_errors=True)
        study.tell(trial, state=states.PRUNED)
    elif math.isfinite(score):
        study.tell(trial, score)
    else:
        study.tell(trial, state=states.FAIL)


def train_trial(trial: Trial, training: Any) -> bool:
    """Trains to the end, or until the study stops the trial. Returns whether it did."""
    reported = -1
    for step in training.steps():
        if step.evaluation is None:
            continue
        reached = min(REPORTS, int(REPORTS * step.number / max(1, step.total)))
        for point in range(reported + 1, reached + 1):
            trial.report(training.trainer.progress.best, point)
        if reached > reported and trial.number and trial.should_prune() and not step.end:
            return True
        reported = max(reported, reached)
    return False


def _keep_best(study: Study, out: Path) -> None:
    """Points the link `best` to the best run, if that is here."""
    done = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    if not done:
        return
    folder = trial_folder(min(done, key=lambda trial: (trial.value, trial.number)).number)
    if (out / folder).exists():
        link = out / f".{BEST}.partial"
        link.unlink(missing_ok=True)
        link.symlink_to(folder, target_is_directory=True)
        link.replace(out / BEST)


def _results(study: Study, out: Path) -> list[TrialResult]:
    return [_trial_result(trial, out) for trial in study.get_trials(deepcopy=False) if trial.state.name in STATES]


def _trial_result(trial: FrozenTrial, out: Path) -> TrialResult:
    """A trial that has ended, as the study knows it."""
    here = out / trial_folder(trial.number)
    return TrialResult(
        trial.number,
        STATES[trial.state.name],
        math.nan if trial.value is None else trial.value,
        trial.user_attrs.get("metrics", {}),
        {name: value for key, value in trial.params.items() for name in names_of(key)},
        here if here.exists() else None,
    )


def _result(study: Study, out: Path, metric: Metric) -> TuningResult:
    found = _results(study, out)
    complete = [trial for trial in found if trial.state == "complete"]
    if not complete:
        raise WeftError(
            f"none of {len(found)} trials was completed", expected="at least one", hint="more time: `minutes=60`"
        )
    best = min(complete, key=lambda trial: (trial.score, trial.number))
    default = next((trial for trial in complete if trial.number == 0), None)
    tests: tuple[PairedTest, ...] = ()
    if default is not None and default.path is not None and best.path is not None and best is not default:
        tests = paired_tests(open_run(default.path), open_run(best.path))
    return TuningResult(tuple(found), best, tests, draw_study(study, out / PICTURE, metric))


def draw_study(study: Study, path: Path, metric: Metric) -> Path:
    """Draws the score of every complete trial and the best so far; those that were stopped early say less."""
    trials = _results(study, path.parent)
    found = [trial for trial in trials if trial.state == "complete" and metric.name in trial.metrics]
    if not found:
        return path
    numbers = np.array([float(trial.number) for trial in found])
    values = np.array([trial.metrics[metric.name] for trial in found])
    scores = [trial.score for trial in found]
    leaders = [int(np.argmin(scores[: place + 1])) for place in range(len(found))]
    curves = (
        Curve("trial", numbers, values, int(np.argmin(scores))),
        Curve("best so far", numbers, values[leaders]),
    )
    title = f"{len(found)} of {len(trials)} trials, those not stopped early; trial 0 has the default settings"
    axis = f"held-out {metric.name}{', ' * bool(metric.unit)}{metric.unit}"
    path.write_text(to_svg(Curves(title, curves, "trial", axis)), encoding="utf-8")
    return path
