"""The tasks: one folder each, and one line in this table.

To add a task, add a folder with a `task.py` that has a Task object named TASK and a `command.py` that has a Commands
object named COMMANDS, and a line here. Nothing else needs to change for `weft train`, `weft eval` and `weft.load`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from weft.errors import WeftError, unknown_name

if TYPE_CHECKING:
    from weft.tasks.classify.predictor import ClassifyPredictor
    from weft.tasks.command import Commands
    from weft.tasks.fill.predictor import FillPredictor
    from weft.tasks.lm.predictor import LmPredictor
    from weft.tasks.tag.predictor import TagPredictor
    from weft.tasks.task import Task
    from weft.tasks.translate.predictor import TranslatePredictor

    Predictor: TypeAlias = LmPredictor | FillPredictor | ClassifyPredictor | TagPredictor | TranslatePredictor

PredictorKind = TypeVar("PredictorKind")

# The name of each task and its package. A task is imported when it is first used: `weft --help` needs no torch.
TASKS: dict[str, str] = {
    "lm": "weft.tasks.lm",
    "fill": "weft.tasks.fill",
    "ngram": "weft.tasks.ngram",
    "hmm": "weft.tasks.hmm",
    "classify": "weft.tasks.classify",
    "tag": "weft.tasks.tag",
    "translate": "weft.tasks.translate",
}


def get_task(name: str) -> Task[Any, Any, Any]:
    """The task of that name."""
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    task: Task[Any, Any, Any] = importlib.import_module(f"{TASKS[name]}.task").TASK
    return task


def get_commands(name: str) -> Commands:
    """What the command line needs to know of a task; does not import torch."""
    commands: Commands = importlib.import_module(f"{TASKS[name]}.command").COMMANDS
    return commands


def train(
    task: str,
    source: Any,
    out: str | Path,
    settings: Any = None,
    *,
    dev: Any = None,
    progress: bool = True,
) -> Predictor:
    """Trains a model to the end and loads it.

    Args:
        task: The name of a task: "lm", "fill", "ngram", "hmm", "classify", "tag" or "translate".
        source: What to train on: a path, the name of a data set, or the examples themselves.
        out: The run directory to create.
        settings: The task's settings, a dict of those that change, such as `{"train.epochs": 3}`, or a TOML file.
        dev: Held-out data; without it a part of the source is held out.
        progress: Whether to show progress, in a terminal, a notebook, or as lines on standard error.

    Raises:
        WeftError: If the task is unknown, `out` exists, or the data or a setting is not usable.
    """
    from weft.config import load_config

    found = get_task(task)
    if isinstance(settings, str | Path):
        settings = load_config(found.config_class, settings)
    predictor: Predictor = found.train(source, out, settings, dev=dev, progress=progress)
    return predictor


@overload
def load(path: str | Path) -> Predictor: ...
@overload
def load(path: str | Path, kind: type[PredictorKind]) -> PredictorKind: ...
def load(path: str | Path, kind: type[Any] | None = None) -> Any:
    """Loads the trained model of a run directory.

    Args:
        path: The run directory.
        kind: The predictor that is expected, such as `weft.LmPredictor`: type checkers then know what is returned.

    Returns:
        The predictor of the run's task: an LmPredictor (lm, ngram, hmm), FillPredictor, ClassifyPredictor,
        TagPredictor or TranslatePredictor.

    Raises:
        WeftError: If there is no run at the path, it is damaged, of another format, or of another kind.
    """
    from weft.training.run import open_run, reading_run

    run = open_run(path)
    task = _task_of(run.task, path)
    with reading_run(run):
        found = task.load(run)
    if kind is not None and not isinstance(found, kind):
        raise WeftError(f"{path} is a run of the task {run.task!r}", expected=f"one that loads as {kind.__name__}")
    return found


def load_for(path: str | Path, capability: str) -> Any:
    """Loads what serves a command (`generate`, `fill`, `tag`, ...) from a run directory; other runs are refused."""
    from weft.training.run import open_run, reading_run

    run = open_run(path)
    task = _task_of(run.task, path)
    if capability not in task.commands.capabilities:
        able = [f"`weft train {name}`" for name in TASKS if capability in get_commands(name).capabilities]
        raise WeftError(f"{path} is a run of the task {run.task!r}", expected=f"a run of {' or '.join(able)}")
    with reading_run(run):
        return task.load_for(capability, run)


def _task_of(name: str, path: str | Path) -> Task[Any, Any, Any]:
    if name not in TASKS:
        raise WeftError(f"{path} is a run of the task {name!r}", expected=f"one of: {', '.join(TASKS)}")
    return get_task(name)
