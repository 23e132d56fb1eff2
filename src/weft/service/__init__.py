"""What the command line and the server both call: train a model, load a run, use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.run import Run, open_run
from weft.service.language import Language, load_language

# The task a run names in its config.json, and what loads it.
TASKS: dict[str, Callable[[Run], Any]] = {
    "lm": load_language,
}


def load(path: str | Path) -> Language:
    """The trained model in a run directory, ready for use."""
    run = open_run(path)
    if run.task not in TASKS:
        raise WeftError(f"{path} is a run of the task {run.task!r}", expected=f"one of: {', '.join(TASKS)}")
    model: Language = TASKS[run.task](run)
    return model
