"""The tasks: one folder each, and one line in this table; those of other packages are found by `elsewhere.py`.

To add a task, add a folder with a `task.py` that has a Task object named TASK, and a line here. Nothing else needs to
change for `weft train`, `weft eval` and `weft.load`.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from weft.errors import WeftError, WeftWarning, check_path, unknown_name

if TYPE_CHECKING:
    from weft.cells import Cell
    from weft.tasks.classify.predictor import ClassifyPredictor
    from weft.tasks.fill.predictor import FillPredictor
    from weft.tasks.forecast.predictor import ForecastPredictor
    from weft.tasks.lm.predictor import LmPredictor
    from weft.tasks.tag.predictor import TagPredictor
    from weft.tasks.task import RunKind, Task
    from weft.tasks.translate.predictor import TranslatePredictor
    from weft.training.run import Run

    Predictor: TypeAlias = (
        LmPredictor | FillPredictor | ClassifyPredictor | TagPredictor | TranslatePredictor | ForecastPredictor
    )

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
    "forecast": "weft.tasks.forecast",
}

DESCRIPTIONS = Path(__file__).with_name("descriptions.json")

# Runs that are made from other runs, by a command of their own: `weft mix`.
COMBINED: dict[str, str] = {"mix": "weft.tasks.mix"}


def get_task(name: str) -> Task[Any, Any, Any]:
    """The task of that name. Reports once which tasks of other packages are left out."""
    from weft.tasks.elsewhere import installed_tasks, load_task

    if name in installed_tasks():
        return load_task(name)
    if name not in TASKS:
        raise unknown_name("task", name, (*TASKS, *installed_tasks()))
    task: Task[Any, Any, Any] = importlib.import_module(f"{TASKS[name]}.task").TASK
    return task


def get_kind(name: str) -> RunKind[Any, Any]:
    """The task of that name, or what runs are that are made of others."""
    if name not in COMBINED:
        return get_task(name)
    kind: RunKind[Any, Any] = importlib.import_module(f"{COMBINED[name]}.task").TASK
    return kind


@cache
def describe(name: str) -> Mapping[str, Any]:
    """What the command line needs to know of a task. Of our own it is read from a file, without importing torch."""
    known: Mapping[str, Any] | None = built_in().get(name)
    if known is not None:
        return known
    from weft.tasks.operation import describe_task

    return describe_task(get_kind(name))


@cache
def built_in() -> dict[str, Any]:
    """The tasks of this package as `tools/describe_tasks.py` has written them."""
    found: dict[str, Any] = json.loads(DESCRIPTIONS.read_text(encoding="utf-8"))
    return found


def tasks_with(command: str) -> list[str]:
    """The names of the tasks whose runs serve a command; of other packages' tasks where none of weft's own does."""
    from weft.tasks.elsewhere import installed_tasks

    def serving(names: Iterable[str]) -> list[str]:
        return [name for name in names if command in commands_of(name)]

    return serving(TASKS) or serving(installed_tasks())


def commands_of(name: str) -> set[str]:
    """The commands that runs of a task serve. A task that cannot be imported is reported, and has none."""
    try:
        return {one["command"] for one in describe(name)["operations"].values()}
    except WeftError as error:
        warnings.warn(str(error), WeftWarning, stacklevel=3)
        return set()


def train(
    task: str,
    source: Any,
    out: str | Path,
    settings: Any = None,
    *,
    dev: Any = None,
    encoder: Run | str | Path | None = None,
    pretrain: Any = None,
    strict: bool = False,
    input: str = "",
    progress: bool = True,
) -> Predictor:
    """Trains a model to the end and loads it.

    Args:
        task: The name of a task: "lm", "fill", "ngram", "hmm", "classify", "tag", "translate" or "forecast".
        source: What to train on: a path, the name of a data set, or the examples themselves: a list, a generator, or a
            table such as a DataFrame.
        out: The run directory to create.
        settings: The task's settings, a dict of those that change, such as `{"train.epochs": 3}`, or a TOML file.
        dev: Held-out data; without it a part of the source is held out.
        encoder: A language model, a run of the task "lm", whose vocabulary, embedding and recurrent layers a
            classifier, tagger or filler starts from.
        pretrain: Raw text: a language model of it is trained first, in the directory `OUT.lm`, and is the encoder.
        strict: Refuse rows that lack something, such as a label, which are left out and reported otherwise.
        input: What the files are: "text", "series" or "audio"; empty: what their extension, then their content says.
        progress: Whether to show progress, in a terminal, a notebook, or as lines on standard error: first how the data
            was read, and what was chosen for it.

    Returns:
        The task's predictor with the best weights, as `weft.load` returns it.

    Raises:
        WeftError: If the task is unknown, `out` exists, or the data or a setting is not usable.
    """
    from weft.config import load_config
    from weft.tasks.config import with_strict
    from weft.training.run import check_new

    found = get_task(task)
    if isinstance(settings, str | Path):
        settings = load_config(found.config_class, settings)
    if strict:
        settings = with_strict(found.config_class, settings)
    if pretrain is not None:
        from weft.tasks.pretraining import start_pretraining

        if encoder is not None:
            raise WeftError("`encoder` and `pretrain` are both given", expected="one of the two")
        check_new(check_path(out, "`out`"))
        source = list(source) if isinstance(source, Iterator) else source  # it is read twice
        training = start_pretraining(found, pretrain, source, out, settings)
        training.complete(progress=progress)
        encoder = training.run
    predictor: Predictor = found.train(source, out, settings, dev=dev, encoder=encoder, input=input, progress=progress)
    return predictor


@overload
def load(path: str | Path, *, device: str = ..., cells: Iterable[type[Cell]] = ...) -> Predictor: ...
@overload
def load(
    path: str | Path, kind: type[PredictorKind], *, device: str = ..., cells: Iterable[type[Cell]] = ...
) -> PredictorKind: ...
def load(
    path: str | Path, kind: type[Any] | None = None, *, device: str = "cpu", cells: Iterable[type[Cell]] = ()
) -> Any:
    """Loads the trained model of a run directory.

    Args:
        path: The run directory.
        kind: The predictor that is expected, such as `weft.LmPredictor`: type checkers then know what is returned.
        device: Where the model runs: "cpu", "cuda", ...
        cells: Custom cells, for a run that was trained with one: a run never loads code by itself.

    Returns:
        The predictor of the run's task: an LmPredictor (lm, ngram, hmm, mix), FillPredictor, ClassifyPredictor,
        TagPredictor, TranslatePredictor or ForecastPredictor.

    Raises:
        WeftError: If there is no run at the path, it is damaged, of another format, or of another kind.
    """
    from weft.cells import using_cells
    from weft.training.run import open_run

    run = open_run(path)
    task = kind_of(run)
    with using_cells(cells):
        found = task.load(run)
    move_model(found, device)
    return check_predictor(found, run, kind)


@overload
def resume(
    path: str | Path | Run, settings: Any = ..., *, progress: bool = ..., cells: Iterable[type[Cell]] = ...
) -> Predictor: ...
@overload
def resume(
    path: str | Path | Run,
    settings: Any = ...,
    kind: type[PredictorKind] = ...,
    *,
    progress: bool = ...,
    cells: Iterable[type[Cell]] = ...,
) -> PredictorKind: ...
def resume(
    path: str | Path | Run,
    settings: Any = None,
    kind: type[Any] | None = None,
    *,
    progress: bool = True,
    cells: Iterable[type[Cell]] = (),
) -> Any:
    """Continues the training of a run from its last checkpoint to the end, and loads the model.

    A run that has ended is loaded as it is, unless the settings give it more to do: more epochs, more minutes.

    Args:
        path: The run directory.
        settings: Settings that change, such as `{"train.epochs": 30}`, all settings, or a TOML file. Only settings
            under `train.` may change.
        kind: The predictor that is expected, such as `weft.LmPredictor`: type checkers then know what is returned.
        progress: Whether to show progress, in a terminal, a notebook, or as lines on standard error.
        cells: Custom cells, for a run that was trained with one.

    Returns:
        The task's predictor with the best weights, as `weft.load` returns it.

    Raises:
        WeftError: If the run is damaged or is not trained, another process trains it, or a setting cannot change.

    Example:
        model = weft.resume("runs/mine", {"train.epochs": 30})
    """
    from weft.cells import using_cells
    from weft.config import load_config
    from weft.training.run import Run, open_run

    run = path if isinstance(path, Run) else open_run(path)
    if kind_of(run).name in COMBINED:
        raise WeftError(f"{run.path} is a mixture, which is not trained", expected="a run of `weft train`")
    task = get_task(run.task)
    if isinstance(settings, str | Path):
        settings = load_config(task.config_class, settings, base=run.config)
    with using_cells(cells):
        predictor = task.resume(run, settings).complete(progress=progress)
    return check_predictor(predictor, run, kind)


def check_predictor(predictor: Any, run: Run, kind: type[Any] | None) -> Any:
    """The predictor, unless it is of another kind than expected."""
    if kind is not None and not isinstance(predictor, kind):
        raise WeftError(f"{run.path} is a run of the task {run.task!r}", expected=f"one that loads as {kind.__name__}")
    return predictor


def load_for(path: str | Path | Run, capability: str, *, device: str = "cpu") -> Any:
    """Loads what serves a command from a run directory; runs of tasks without that command are refused.

    Args:
        path: The run directory.
        capability: The command: "generate", "fill", "classify", "tag", "translate", ...
        device: Where the model runs: "cpu", "cuda", ...

    Returns:
        The predictor.

    Raises:
        WeftError: If the run is not of a task that serves the command.
    """
    from weft.tasks.operation import operations
    from weft.training.run import Run, open_run

    run = path if isinstance(path, Run) else open_run(path)
    task = kind_of(run)
    every: Iterable[Any] = task.predictors
    kinds = [kind for kind in every if any(one.command == capability for one in operations(kind).values())]
    if not kinds:
        able = [f"`weft train {name}`" for name in tasks_with(capability)]
        raise WeftError(f"{run.path} is a run of the task {run.task!r}", expected=f"a run of {' or '.join(able)}")
    predictor: Any = task.load(run)
    if not isinstance(predictor, tuple(kinds)):  # another one with the same model
        predictor = kinds[0](run, predictor.model, predictor.text_field)
    move_model(predictor, device)
    return predictor


def move_model(predictor: Any, device: str) -> None:
    """Moves the model of a predictor to a device. Models are loaded on the CPU."""
    if device == "cpu":
        return
    from torch import nn

    from weft.training.devices import find_device

    target = find_device(device, "device")
    if not isinstance(predictor.model, nn.Module):
        raise WeftError(
            f"a model of the task {predictor.run.task!r} runs on the CPU", expected="no `device`, or `device=cpu`"
        )
    predictor.model.to(target)


def kind_of(run: Run) -> RunKind[Any, Any]:
    """The task of a run directory, or what it is made of."""
    from weft.tasks.elsewhere import installed_tasks

    known = (*TASKS, *COMBINED, *installed_tasks())
    if run.task not in known:
        package = f", which the package {run.package!r} has, as the run says" if run.package else ""
        raise WeftError(
            f"{run.path} is a run of the task {run.task!r}{package}", expected=f"one of: {', '.join(known)}"
        )
    return get_kind(run.task)
