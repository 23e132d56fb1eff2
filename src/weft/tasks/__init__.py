"""What the command line calls, and Python may: train a model, load a run, use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from weft.errors import WeftError
from weft.tasks.chain_training import load_hmm, load_ngram
from weft.tasks.classify.predictor import load_classify
from weft.tasks.fill.predictor import load_fill
from weft.tasks.lm.predictor import load_language
from weft.tasks.tag.predictor import load_tag
from weft.tasks.translate.predictor import load_translate
from weft.training.run import Run, open_run

Kind = TypeVar("Kind")

# The task a run names in its config.json, and what loads it.
TASKS: dict[str, Callable[[Run], Any]] = {
    "lm": load_language,
    "fill": load_fill,
    "classify": load_classify,
    "tag": load_tag,
    "ngram": load_ngram,
    "hmm": load_hmm,
    "translate": load_translate,
}


def load(path: str | Path) -> Any:
    """The trained model in a run directory, ready for use: a Language, a Filling, as its task says."""
    run = open_run(path)
    if run.task not in TASKS:
        raise WeftError(f"{path} is a run of the task {run.task!r}", expected=f"one of: {', '.join(TASKS)}")
    return TASKS[run.task](run)


def load_as(path: str | Path, kind: type[Kind], task: str) -> Kind:
    """The same where only one kind of model will do; `task` is what trains it."""
    model = load(path)
    if not isinstance(model, kind):
        raise WeftError(f"{path} is a run of the task {model.run.task!r}", expected=f"a run of `weft train {task}`")
    return model
