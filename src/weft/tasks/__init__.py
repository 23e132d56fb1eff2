"""The tasks: one folder each, and one line in this table.

To add a task, add a folder with a `task.py` that has a Task object named TASK and a `command.py` that has a Commands
object named COMMANDS, and a line here. Nothing else needs to change for `weft train`, `weft eval` and `weft.load`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import WeftError, unknown_name

if TYPE_CHECKING:
    from weft.tasks.command import Commands
    from weft.tasks.task import Task

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


def load(path: str | Path) -> Any:
    """Loads the trained model of a run directory.

    Returns:
        The predictor of the run's task: an LmPredictor, a TagPredictor, ...

    Raises:
        WeftError: If there is no run at the path, or it is damaged or of another format.
    """
    from weft.training.run import open_run, reading_run

    run = open_run(path)
    task = _task_of(run.task, path)
    with reading_run(run):
        return task.load(run)


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
