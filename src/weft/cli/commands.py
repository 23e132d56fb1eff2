"""Makes the commands that use a trained model, `weft eval`, `weft tag`, ..., from the operations of the tasks."""

from __future__ import annotations

import inspect
import json as json_format
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from weft.cli.output import output
from weft.errors import WeftError, check_path, warn
from weft.tasks import TASKS, describe, load_for, tasks_with

if TYPE_CHECKING:
    from weft.tasks.operation import Operation
    from weft.tasks.predictor import TaskPredictor

Parameter = inspect.Parameter
# What `weft eval` reports of each kind of model; the help of other commands is that of their operation.
EVALUATE_HELP = """Evaluate a model on data it was not trained on.

A language model: perplexity and bits per token. A classifier: accuracy, F1 and the confusion matrix. A tagger:
accuracy, and F1 of spans or of words. A translator: BLEU, chrF and exact matches. A fill-in-the-blank model, or any
model --against others: how well each predicts a hidden token, in one table.
"""


def name_option(option: str, help: str) -> Any:
    """A typer option that takes a name or a source of data. An empty one is refused: a shell variable is not set."""
    return typer.Option(option, parser=lambda value: _not_empty(option, value), metavar="<str>", help=help)


def path_option(option: str, help: str) -> Any:
    """The same for a path."""
    return typer.Option(option, parser=lambda value: Path(_not_empty(option, value)), metavar="<path>", help=help)


def _not_empty(what: str, value: str | Path) -> str:
    check_path(value, what)
    return str(value)


def keyword(name: str, annotation: Any, default: Any) -> Parameter:
    """A keyword parameter of a generated command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def own_parameters(command: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a command as keywords, but for `**options`, in whose place others are put."""
    hints = get_type_hints(command, include_extras=True)
    return [
        keyword(one.name, hints[one.name], one.default)
        for one in inspect.signature(command).parameters.values()
        if one.kind is not Parameter.VAR_KEYWORD
    ]


def option(flag: str, kind: Any, help: str, default: Any = None, *, name: str = "", **limits: Any) -> Parameter:
    """The parameter of an option; without a name, that of its flag. An empty name or path is refused."""
    name = name or flag.removeprefix("--").replace("-", "_")
    if kind in (str, list[str]):
        info = name_option(flag, help)
    else:
        info = path_option(flag, help) if kind is Path else typer.Option(flag, help=help, **limits)
    return keyword(name, Annotated[kind | None if default is None else kind, info], default)


def option_of(flag: str, schema: Mapping[str, Any]) -> Parameter:
    """The parameter of an option with a JSON schema."""
    help, default = schema["description"], schema.get("default")
    help = f"{help[0].upper()}{help[1:]}" + ("" if help.endswith(".") else ".")
    kind = {"integer": int, "number": float, "boolean": bool, "array": list[str]}.get(schema["type"], str)
    if kind is bool:
        return option(flag, bool, help, default=default or False)
    limits: dict[str, Any] = {"min": schema.get("minimum"), "max": schema.get("maximum")}
    limits = limits if kind in (int, float) else {}
    return option(flag, kind, help, default or None if kind is list[str] else default, **limits)


def make_commands() -> list[Callable[..., None]]:
    """A command for each name of a command that the tasks' operations have."""
    names = dict.fromkeys(one["command"] for task in TASKS for one in describe(task)["operations"].values())
    return [make_command(name) for name in names]


def make_command(name: str) -> Callable[..., None]:
    """The typer command of the operations that have its name, with the options of all of them."""
    tasks = tasks_with(name)
    found = [(task, one) for task in tasks for one in describe(task)["operations"].values() if one["command"] == name]
    options: dict[str, Parameter] = {}
    users: dict[str, list[str]] = {}  # of each option, the tasks that have it
    for task, one in found:
        for key in one["options"]:
            users[key] = list(dict.fromkeys([*users.get(key, []), task]))
    for _, one in found:
        for key, schema in one["options"].items():
            if users[key] != tasks:
                schema = {**schema, "description": f"({', '.join(users[key])}) {schema['description']}"}
            options.setdefault(key, option_of(f"--{key.replace('_', '-')}", schema))
    inputs = found[0][1]["inputs"]
    lists = {key for _, one in found for key, schema in one["options"].items() if schema["type"] == "array"}

    def command(run: Path, precision: str, device: str, out: Path | None, json: bool, **given: Any) -> None:
        from weft.training.devices import find_device, mixed_precision

        texts, file = given.pop("texts", None) or (), given.pop("file", None)
        if inputs is not None:
            _check_input(texts, file, inputs)
        given |= {key: tuple(given[key] or ()) for key in lists}
        with output(out) as stream, mixed_precision(precision, find_device(device, "device")):
            # output first, so that an --out that cannot be written is reported at once
            predictor = load_for(run, name, device=device)
            operation = next(one for one in predictor.operations.values() if one.command == name)
            for key in options.keys() - operation.options.keys():
                if given[key] and given[key] != options[key].default:
                    raise _refused(run, predictor.run.task, operation.name, key, users[key])
            for piece in _pieces(predictor, operation, texts, file, given, as_json=json):
                stream.write(piece)
                if out is None:
                    stream.flush()

    of = "" if inputs is None else f" of {' or '.join(f'`weft train {task}`' for task in tasks)}"
    run = typer.Argument(
        parser=lambda value: Path(_not_empty("RUN", value)), metavar="RUN", help=f"A run directory{of}."
    )
    parameters = [keyword("run", Annotated[Path, run], Parameter.empty)]
    if inputs is not None:
        texts = (
            typer.Option(inputs["option"], help=inputs["help"])
            if inputs["option"]
            else typer.Argument(help=inputs["help"], show_default=False)
        )
        parameters += [
            keyword("texts", Annotated[list[str] | None, texts], None),
            option("--file", str, inputs["file"]),
        ]
    parameters += [
        *options.values(),
        option(
            "--precision", str, "Matrix products of recurrent layers: float32, or bf16 with float32 sums.", "float32"
        ),
        option("--out", Path, "Write to this file instead of standard output."),
        option("--device", str, "Where the model runs: cpu, cuda, cuda:1, mps, ...", "cpu"),
        option("--json", bool, "Write a line of JSON for each result.", default=False),
    ]
    return as_command(command, name, EVALUATE_HELP if name == "eval" else found[0][1]["help"], parameters)


def _pieces(
    predictor: TaskPredictor,
    operation: Operation,
    texts: Sequence[str],
    file: str | None,
    given: Mapping[str, Any],
    *,
    as_json: bool,
) -> Iterator[str]:
    """What a command writes."""
    inputs, write = None, None
    if operation.inputs is not None:
        inputs, notes, write = operation.read(predictor, texts, file, given)
        for note in (*notes, *predictor.notes(inputs, given)):
            warn(note)
    records = operation.results(predictor, inputs, given)
    if as_json:
        for record in records:
            yield json_format.dumps(operation.to_json(record, given), ensure_ascii=False) + "\n"
    elif write is not None:
        yield from write(list(records), given)
    else:
        for number, record in enumerate(records):
            yield from operation.to_text(record, number, given)


def _refused(run: Path, task: str, operation: str, option: str, users: Sequence[str]) -> WeftError:
    flag = f"--{option.replace('_', '-')}"
    if task in users:
        return WeftError(
            f"{run} is a run of the task {task!r} to {operation}, which has no {flag}", expected=f"no {flag}"
        )
    able = " or ".join(f"`weft train {user}`" for user in users)
    return WeftError(f"{run} is a run of the task {task!r}, which has no {flag}", expected=f"a run of {able}")


def as_command(
    command: Callable[..., None], name: str, help: str, parameters: Iterable[Parameter]
) -> Callable[..., None]:
    """The function with the name, help and parameters that typer reads."""
    parameters = list(parameters)
    command.__name__, command.__doc__ = name, help
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _check_input(texts: Sequence[str], file: str | None, inputs: Mapping[str, Any]) -> None:
    if texts and file is not None:
        raise WeftError("there are texts and a --file", expected="one of the two", hint=inputs["example"])
    if inputs["missing"] and not texts and file is None:
        raise WeftError(inputs["missing"], expected="texts, or a --file", hint=inputs["example"])
    if not inputs["option"] and len(texts) == 1 and os.path.isfile(texts[0]):  # noqa: PTH113  a text may be long
        warn(f"{texts[0]!r} is read as a text; --file {texts[0]} reads the file of that name")
