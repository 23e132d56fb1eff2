"""`weft train`: a command for each task, made from the table of tasks; all of them run the same training."""

from __future__ import annotations

import inspect
import json
import os
import platform
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.cells import cell_options
from weft.cli.commands import as_command, option, option_of
from weft.cli.elsewhere import task_group
from weft.cli.messages import for_command_line
from weft.cli.workers import handling_signals, run_workers
from weft.errors import WeftError
from weft.tasks import TASKS, describe, get_task
from weft.training.environment import LostWorkerError, in_group, is_first, local_size, threads_of_worker

if TYPE_CHECKING:
    from weft.metrics import Metric
    from weft.tasks.task import Task, Training
    from weft.training.step import Step

INPUT_HELP = "What the files are: text, series or audio; without it their extension, then their content says."
RESUME = "With --resume the same command can be repeated: it continues from the last checkpoint."

WORKERS_HELP = (
    "Train with this many processes on this machine. The weights depend on their number unless train.slices is set; "
    "see docs/scale.md."
)


_ENCODER_OPTIONS = (
    option("--encoder", Path, "Start from the vocabulary and the layers of this run of `weft train lm`."),
    option("--pretrain", str, "Raw text: first train a language model of it, OUT.lm, as the encoder."),
)


def make_train() -> typer.Typer:
    """The group `weft train`, with a command for each task."""
    return task_group("Train a model on your data.", _make_command)


def _make_command(name: str) -> Callable[..., None]:
    task = describe(name)
    flags = setting_options(task["flags"])

    def command(sets: list[str] | None, threads: int | None, workers: int | None, **given: Any) -> None:
        began = time.perf_counter()
        if workers is not None and workers > 1 and not in_group():
            raise typer.Exit(run_workers(workers, threads))
        settings = chosen_settings(task["flags"], {name: given.pop(name) for name in flags})
        set_threads(threads)
        found = get_task(name)  # imports torch, which may take seconds
        run_training(found, sets=[*(sets or []), *settings], began=began, **given)

    parameters = [
        option("--out", Path, "The run directory to create, or to resume."),
        option("--data", str, task["data_help"]),
        option("--dev", str, task["dev_help"]),
        option("--input", str, INPUT_HELP),
        option("--from", Path, "Fine-tune this run: start from its settings, vocabulary and weights.", name="from_run"),
        *(_ENCODER_OPTIONS if task["encoder"] else ()),
        *flags.values(),
        option("--threads", int, "Threads of each worker; without it the cores, divided among the workers.", min=1),
        option("--workers", int, WORKERS_HELP, min=1),
        option("--config", Path, "A TOML file of settings."),
        option("--set", list[str], "One setting, as train.epochs=10; repeatable.", name="sets"),
        option("--resume", bool, "Resume the run in --out, if it exists.", default=False),
        option("--json", bool, "Print the result as JSON.", default=False, name="json_output"),
        option("--show-config", bool, "Print all settings as TOML and exit.", default=False),
    ]
    details = f"{task['details']} {RESUME}".strip()
    if name not in TASKS:
        commands = dict.fromkeys(f"weft {one['command']}" for one in task["operations"].values())
        details += f"\n\nCommands of its runs: {', '.join(commands)}."
    return as_command(command, name, f"{task['summary']}\n\n{details}", parameters)


def setting_options(flags: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    """The parameters of the options that stand for settings, by name."""
    found = [option_of(flag, {**one, "type": "boolean"} if "value" in one else one) for flag, one in flags.items()]
    return {one.name: one for one in found}


def chosen_settings(flags: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The settings, as `section.key=value`, that the given options stand for."""
    chosen = []
    for flag, schema in flags.items():
        value = given[flag.removeprefix("--").replace("-", "_")]
        if value is not None and value is not False:
            chosen.append(f"{schema['setting']}={json.dumps(schema.get('value', value), ensure_ascii=False)}")
    return chosen


def set_threads(number: int | None) -> None:
    """Uses this many threads; without a number, those of the machine, divided among its workers."""
    if number is None and in_group() and os.environ.get("OMP_NUM_THREADS", "1") == "1":
        number = threads_of_worker(local_size())  # torchrun sets 1, however many cores there are
    if number is not None:
        import torch

        torch.set_num_threads(number)  # the engine's threads too


def run_training(
    task: Task[Any, Any, Any],
    *,
    out: Path | None,
    data: str | None,
    dev: str | None,
    input: str | None,
    config: Path | None,
    sets: list[str],
    from_run: Path | None = None,
    encoder: Path | None = None,
    pretrain: str | None = None,
    resume: bool,
    json_output: bool,
    show_config: bool,
    began: float,
) -> None:
    """Starts or resumes a training run, shows its progress, and prints the result. A time limit counts from `began`."""
    from weft.config import as_config, load_config, to_dict, to_toml
    from weft.tasks.origin import base_settings, open_origin
    from weft.training.run import open_run

    loading = time.perf_counter() - began
    sets = [*_custom_cell(sets), *sets]
    if show_config:
        typer.echo(to_toml(load_config(task.config_class, config, sets)))
        return
    if pretrain is not None and in_group():
        raise WeftError(
            "--pretrain with several workers", expected="one process", hint="`weft train lm` first, then --encoder"
        )
    if out is not None and not is_first():
        follow_training(task, out)
        return
    if out is not None and resume and out.exists():
        run = open_run(out)
        settings = load_config(task.config_class, config, sets, base=run.config) if run.task == task.name else None
        training = task.resume(run, settings, source=data)
        _say(f"resuming {out} after step {training.trainer.progress.all_steps}")
    else:
        if out is None:
            raise WeftError("--out is missing", expected="a directory for the trained model", hint="--out runs/first")
        if data is None:
            raise WeftError("--data is missing", expected="data to train on", hint=f"--data {task.sample}")
        if resume:
            _say(f"{out} does not exist yet: starting it")
        if pretrain is not None:
            if encoder is not None or from_run is not None:
                raise WeftError("--pretrain is given with an encoder or a run to start from", expected="one of them")
            if data == "-":
                raise WeftError("--pretrain reads the data twice, and --data is standard input", expected="a file")
            encoder = _pretrain(task, pretrain, data, out, load_config(task.config_class, config, sets), resume=resume)
        origin = open_origin(task, from_run, encoder)
        base = None if origin is None else to_dict(as_config(task.config_class, base_settings(task, origin)))
        settings = load_config(task.config_class, config, sets, base=base)
        training = task.start(data, out, settings, dev=dev, from_run=from_run, encoder=encoder, input=input or "")
        if training.trainer.progress.all_steps:  # workers that were restarted
            _say(f"resuming {out} after step {training.trainer.progress.all_steps}")
        training.trainer.progress.seconds += loading
    _say(for_command_line(training.summary))
    last = train_with_progress(training)
    if last is None and training.trainer.progress.all_steps:
        reason = training.trainer.end_reason()
        _say(f"{out} has ended already ({reason}), after step {training.trainer.progress.all_steps}: nothing to do")
    result = summary(training, last)
    typer.echo(json.dumps(result) if json_output else _in_words(result, task.metric))
    for name, score in result.get("baselines", {}).items():
        _say(f"{name} on the same data: held-out {task.metric.show(score)}")
    _leave_workers()
    if last is not None and last.end == "interrupted":
        cells = cell_options(training.run.custom_cells.values())
        command = shlex.join(["weft", "train", task.name, "--out", str(out), *cells, "--resume"])
        typer.echo(f"To resume: {command}", err=True)
        raise typer.Exit(128 + signal.SIGINT)


def _pretrain(task: Task[Any, Any, Any], raw: str, data: str, out: Path, settings: Any, *, resume: bool) -> Path:
    """Trains the language model of --pretrain, or the rest of it. Returns its run directory."""
    from weft.tasks.pretraining import start_pretraining
    from weft.training.run import check_new

    check_new(out)
    training = start_pretraining(task, raw, data, out, settings, resume=resume)
    _say(f"{training.run.path}: {for_command_line(training.summary)}")
    last = train_with_progress(training)
    if last is not None and last.end == "interrupted":
        typer.echo("To resume: the same command with --resume", err=True)
        raise typer.Exit(128 + signal.SIGINT)
    _say(_in_words(summary(training, last), training.task.metric))
    return training.run.path


def follow_training(task: Task[Any, Any, Any], out: Path) -> None:
    """Trains as one of several workers that is not rank 0: without output, unless it cannot take part."""
    try:
        training = task.follow(out)
    except LostWorkerError:
        raise
    except WeftError as error:
        _say(f"weft: worker {os.environ['RANK']} on {platform.node()}: {error}")
        raise
    train_with_progress(training)
    _leave_workers()


def _leave_workers() -> None:
    from weft.training.distributed import current_workers

    current_workers().leave()


def _custom_cell(sets: list[str]) -> list[str]:
    """The setting that --cell stands for, unless `model.cell` is set."""
    from weft.cells import custom_cells

    names = list(custom_cells())
    if not names or any(one.partition("=")[0].strip() == "model.cell" for one in sets):
        return []
    if len(names) > 1:
        raise WeftError(f"--cell names {len(names)} cells", expected="one, or `model.cell=CLASS` beside them")
    return [f"model.cell={names[0]}"]


def train_with_progress(training: Training) -> Step | None:
    """Trains to the end, or to the end of the step in which Ctrl-C comes, and shows the progress."""
    from weft.training.progress import TrainingProgress

    last, shown = None, TrainingProgress(training.task.metric, training.trainer.phase.loss) if is_first() else None
    with handling_signals(training.trainer.stop, once=True), shown or nullcontext() as progress:
        for last in training.steps():
            if progress is not None:
                progress.step(last)
    return last


def summary(training: Training, last: Step | None) -> dict[str, Any]:
    """The result of a training run as plain data."""
    progress = training.trainer.progress
    return {
        "run": str(training.run.path),
        "end": (last and last.end) or training.trainer.end_reason(),
        "steps": progress.all_steps,
        "seconds": round(progress.all_seconds, 2),
        "best_step": progress.best_step if progress.best_metrics else None,
        f"held_out_{training.task.metric.name}": None,  # unless there is one:
        **{f"held_out_{name}": value for name, value in progress.best_metrics.items()},
        **({"baselines": baselines} if (baselines := training.trainer.phase.baselines()) else {}),
    }


def _in_words(result: dict[str, Any], metric: Metric) -> str:
    words = [f"{result['run']}: {result['end']} after {result['steps']} steps, {result['seconds']:.0f} s"]
    if result["best_step"] is not None:
        words.append(f"held-out {metric.show(result[f'held_out_{metric.name}'])} at step {result['best_step']}")
    return "; ".join(words)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
