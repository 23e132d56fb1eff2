"""`weft eval`: how good a trained model is. Its options are those of all tasks' evaluations."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.commands import Parameter, as_command, in_precision, keyword, own_options, precision_option
from weft.errors import WeftError, warn
from weft.tasks import TASKS, get_commands, get_task, move_model
from weft.tasks.command import DEVICE, name_option, run_argument

LIKELIHOODS = ("cross_entropy", "perplexity")  # metrics that are numbers unless the model is broken
HELP = """Evaluate a model on data it was not trained on.

A language model: perplexity and bits per token. A classifier: accuracy, F1 and the confusion matrix. A tagger:
accuracy, and F1 of spans or of words. A translator: BLEU, chrF and exact matches. A fill-in-the-blank model, or any
model --against others: how well each predicts a hidden token, in one table.
"""


def make_evaluate() -> Any:
    """The command, with the options of every task."""
    options: dict[str, Parameter] = {}
    users: dict[str, list[str]] = {}  # of each option, the tasks that have it
    for task in TASKS:
        for name, option in own_options(get_commands(task).evaluate).items():
            options.setdefault(name, option)
            users.setdefault(name, []).append(task)

    def evaluate(run: Path, data: str | None, precision: str, device: str, json: bool, **given: Any) -> None:
        own = {name: (given[name], option.default) for name, option in options.items()}
        with in_precision(precision, device):
            _evaluate(run, data, device, json, own, users)

    parameters = [
        keyword("run", Annotated[Path, run_argument("A run directory.")], Parameter.empty),
        keyword(
            "data",
            Annotated[
                str | None,
                name_option("--data", "Data to evaluate on; without it the run's own held-out data."),
            ],
            None,
        ),
        *(_named(option, users[name]) for name, option in options.items()),
        precision_option(),
        keyword("device", Annotated[str, DEVICE], "cpu"),
        keyword("json", Annotated[bool, typer.Option("--json", help="Print JSON.")], False),
    ]
    return as_command(evaluate, "eval", HELP, parameters)


def _named(option: Parameter, tasks: list[str]) -> Parameter:
    """An option whose help says for which tasks it is."""
    kind, info = option.annotation.__origin__, option.annotation.__metadata__[0]
    help = f"({', '.join(tasks)}) {info.help}"
    names = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]  # as typer has them
    shown = typer.Option(*names, min=info.min, parser=info.parser, metavar=info.metavar, help=help)
    return option.replace(annotation=Annotated[kind, shown])


def _evaluate(
    path: Path,
    data: str | None,
    device: str,
    as_json: bool,
    given: dict[str, tuple[Any, Any]],
    users: dict[str, list[str]],
) -> None:
    from weft.tasks.predictor import not_finite
    from weft.training.run import open_run

    run = open_run(path)
    task = get_task(run.task)
    own = own_options(task.commands.evaluate)
    for name, (value, default) in given.items():
        if name not in own and value and value != default:
            able = [f"`weft train {user}`" for user in users[name]]
            raise WeftError(
                f"{path} is a run of the task {run.task!r}, which has no --{name}",
                expected=f"a run of {' or '.join(able)}",
            )
    model = task.load(run)
    move_model(model, device)
    report = task.commands.evaluate(model, data, **{name: given[name][0] for name in own})
    if any(math.isnan(report.record.get(name, 0.0)) for name in LIKELIHOODS):
        raise not_finite(run)
    for note in report.notes:
        warn(note)
    typer.echo(json.dumps(report.record, ensure_ascii=False) if as_json else "\n".join(report.lines))
