"""`weft train`: a model from text."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.tasks.lm.predictor import Language
    from weft.tasks.task import Task, Training
    from weft.training.trainer import Step

train = typer.Typer(help="Train a model on your text.", no_args_is_help=True, rich_markup_mode=None)

Out = Annotated[Path | None, typer.Option(help="The run directory to make, or to go on with.")]
Data = Annotated[
    str | None, typer.Option(help="Text: a file, a folder, .gz, .zip, - for standard input, or a name of `weft data`.")
]
Dev = Annotated[str | None, typer.Option(help="Held-out text; without it the end of --data is held out.")]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file of settings.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="One setting, as train.learning_rate=0.01; repeatable.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if it is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ShowConfig = Annotated[bool, typer.Option("--show-config", help="Print all settings as TOML and exit.")]


@train.command()
def lm(
    out: Out = None,
    data: Data = None,
    dev: Dev = None,
    config: ConfigFile = None,
    sets: Sets = None,
    resume: Resume = False,
    json_output: Json = False,
    show_config: ShowConfig = False,
) -> None:
    """Train a language model: it learns to foretell the next token, and so to write.

    With --resume the same command can be given again and again: it goes on where it stopped.
    """
    from weft.tasks.lm.predictor import LANGUAGE

    run_training(LANGUAGE, out, data, dev, config, sets or [], resume, json_output, show_config)


@train.command()
def fill(
    out: Out = None,
    data: Data = None,
    dev: Dev = None,
    config: ConfigFile = None,
    sets: Sets = None,
    resume: Resume = False,
    json_output: Json = False,
    show_config: ShowConfig = False,
) -> None:
    """Train a model that fills blanks: it learns to tell a token from what stands before it and after it.

    With --resume the same command can be given again and again: it goes on where it stopped.
    """
    from weft.tasks.fill.predictor import FILL

    run_training(FILL, out, data, dev, config, sets or [], resume, json_output, show_config)


@train.command()
def ngram(
    out: Out = None,
    data: Data = None,
    dev: Dev = None,
    config: ConfigFile = None,
    sets: Sets = None,
    json_output: Json = False,
    show_config: ShowConfig = False,
) -> None:
    """Count n-grams: a language model that remembers the last few tokens, and what others have to beat."""
    from weft.config import load_config, to_toml
    from weft.tasks.chain_training import train_ngram
    from weft.tasks.ngram.config import NgramConfig
    from weft.tasks.ngram.model import NGram

    settings = load_config(NgramConfig, config, sets or [])
    if show_config:
        typer.echo(to_toml(settings))
        return
    out, data = _required(out, data)
    began = time.perf_counter()
    language = train_ngram(data, out, settings, dev=dev)
    assert isinstance(language.model, NGram)
    _result(language, {"ngrams": len(language.model)}, began, json_output)


@train.command()
def hmm(
    out: Out = None,
    data: Data = None,
    dev: Dev = None,
    config: ConfigFile = None,
    sets: Sets = None,
    json_output: Json = False,
    show_config: ShowConfig = False,
) -> None:
    """Train a hidden Markov model by Baum-Welch: it tells a token from those before it, or from both sides."""
    from weft.config import load_config, to_toml
    from weft.tasks.chain_training import load_hmm, start_hmm
    from weft.tasks.hmm.config import HmmConfig

    settings = load_config(HmmConfig, config, sets or [])
    if show_config:
        typer.echo(to_toml(settings))
        return
    out, data = _required(out, data)
    began = printed = time.perf_counter()
    training = start_hmm(data, out, settings, dev=dev)
    steps, number, interrupted = training.steps(), 0, False

    def stop(signal_number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True

    # A flag, not the exception: that can be raised where nobody hears it, in a finalizer.
    previous = signal.signal(signal.SIGINT, stop)
    try:
        for step, best in steps:
            number += 1
            if interrupted:
                break
            now = time.perf_counter()
            if sys.stderr.isatty() or now - printed >= 10:
                printed = now
                nats = (-one.log_likelihood / training.train_tokens for one in (step, best))
                _say("step {}: {:.4f} nats a token, the best so far {:.4f}".format(step.number, *nats))
    finally:
        steps.close()
        signal.signal(signal.SIGINT, previous)
    _result(load_hmm(training.run), {"steps": number, "interrupted": interrupted}, began, json_output)
    if interrupted:
        raise typer.Exit(128 + signal.SIGINT)


def _required(out: Path | None, data: str | None, sample: str = "grammar") -> tuple[Path, str]:
    if out is None:
        raise WeftError("--out is missing", expected="where the trained model shall be", hint="--out runs/first")
    if data is None:
        raise WeftError("--data is missing", expected="text to train on", hint=f"--data {sample}")
    return out, data


def _result(language: Language, facts: dict[str, Any], began: float, json_output: bool) -> None:
    """Print how good a model is that needs no trainer."""
    from weft.tasks.task import DEV

    seconds = round(time.perf_counter() - began, 2)
    held_out = language.measure_held_out() if language.run.has(DEV) else None
    record = {"run": str(language.run.path), **facts, "seconds": seconds}
    record["held_out_nats"] = held_out.cross_entropy if held_out else None
    record["held_out_perplexity"] = held_out.perplexity if held_out else None
    if json_output:
        typer.echo(json.dumps(record))
        return
    words = ", ".join(f"{name} {value:,}" for name, value in facts.items() if not isinstance(value, bool))
    score = f"; held-out perplexity {held_out.perplexity:.3f}" if held_out else ""
    typer.echo(f"{record['run']}: {words}, {seconds:.1f} s{score}")


def run_training(
    task: Task[Any],
    out: Path | None,
    data: str | None,
    dev: str | None,
    config: Path | None,
    sets: list[str],
    resume: bool,
    json_output: bool,
    show_config: bool,
) -> None:
    from weft.config import load_config, to_toml
    from weft.tasks.task import resume_training, start_training
    from weft.training.run import open_run

    if show_config:
        typer.echo(to_toml(load_config(task.config, config, sets)))
        return
    if out is not None and resume and out.exists():
        run = open_run(out)
        if run.task != task.name:
            raise WeftError(f"{out} is a run of the task {run.task!r}", expected=f"a run of `weft train {task.name}`")
        settings = load_config(task.config, config, sets, base=run.config)
        training = resume_training(task, run, settings, source=data)
        _say(f"going on with {out} after step {training.trainer.progress.step}")
    else:
        out, data = _required(out, data, task.sample)
        settings = load_config(task.config, config, sets)
        if resume:
            _say(f"{out} is not there yet: starting it")
        training = start_training(task, data, out, settings, dev=dev)
    _say(describe(training))
    last = walk(training)
    result = summary(training, last)
    if json_output:
        typer.echo(json.dumps(result))
    else:
        typer.echo(_in_words(result, task.measure))
    if last is not None and last.end == "interrupted":
        typer.echo(f"To go on: weft train {task.name} --out {out} --resume", err=True)
        raise typer.Exit(128 + signal.SIGINT)


def describe(training: Training) -> str:
    """What is about to be trained on what, in one line."""
    return f"{training.about}, {sum(parameter.numel() for parameter in training.model.parameters()):,} weights"


def walk(training: Training) -> Step | None:
    """Train to the end, or to the end of the step in which Ctrl-C falls, with the progress shown."""
    from weft.cli.report import Report

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        training.trainer.stop()
        signal.signal(number, previous[signal.Signals(number)])  # a second one ends it at once

    last = None
    try:
        for number in previous:
            signal.signal(number, stop)
        with Report(training.task.measure, training.unit) as report:
            for last in training.trainer.run():
                report.step(last)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return last


def summary(training: Training, last: Step | None) -> dict[str, Any]:
    """The result of a training as plain data."""
    progress = training.trainer.progress
    return {
        "run": str(training.run.path),
        "end": last.end if last else "finished",
        "steps": progress.step,
        "seconds": round(progress.seconds, 2),
        "best_step": progress.best_step if progress.best_metrics else None,
        f"held_out_{training.task.measure}": None,  # unless there is one:
        **{f"held_out_{name}": value for name, value in progress.best_metrics.items()},
    }


def _in_words(result: dict[str, Any], measure: str) -> str:
    words = [f"{result['run']}: {result['end']} after {result['steps']} steps, {result['seconds']:.0f} s"]
    if result["best_step"] is not None:
        words.append(f"held-out {measure} {result[f'held_out_{measure}']:.3f} at step {result['best_step']}")
    return "; ".join(words)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
