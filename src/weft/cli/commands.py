"""Makes the commands that use a trained model, `weft generate`, `weft tag`, ..., from the functions of the tasks."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from weft.cli.output import output
from weft.errors import WeftError
from weft.tasks import TASKS, get_commands, load_for
from weft.tasks.command import DEVICE, Output, TextHelp, TextInput, name_option, path_option, run_argument

Parameter = inspect.Parameter


def keyword(name: str, annotation: Any, default: Any) -> Parameter:
    """A keyword parameter of a generated command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def precision_option() -> Parameter:
    """The option of every command that runs a model, for `in_precision`."""
    help = "Matrix products of recurrent layers: float32, or bf16 with float32 sums."
    return keyword("precision", Annotated[str, name_option("--precision", help)], "float32")


def in_precision(name: str, device: str) -> AbstractContextManager[None]:
    """A context in which models run in this precision on a device."""
    from weft.training.devices import find_device, mixed_precision

    return mixed_precision(name, find_device(device, "device"))


def own_options(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The keyword parameters of a task's function that have a typer annotation: its own options."""
    hints = get_type_hints(function, globalns=_names(function), include_extras=True)
    return {
        name: keyword(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY and hasattr(hints[name], "__metadata__")
    }


def _names(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that annotations refer to; types of models are imported for type checkers only, and may be anything."""
    return _AnyName(function.__globals__)


class _AnyName(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        builtins = self["__builtins__"]
        found = builtins if isinstance(builtins, dict) else vars(builtins)
        return found.get(name, Any)


def runs_of(command: str) -> str:
    """The help of RUN: which tasks' runs a command takes."""
    tasks = [f"`weft train {name}`" for name in TASKS if command in get_commands(name).capabilities]
    return f"A run directory of {' or '.join(tasks)}."


def make_command(function: Callable[..., Output]) -> Callable[..., None]:
    """A typer command from a task's command function."""
    hints = get_type_hints(function, globalns=_names(function), include_extras=True)
    help = next(part for part in hints["texts"].__metadata__ if isinstance(part, TextHelp))
    texts_parameter = (
        typer.Option(help.option, help=help.texts)
        if help.option
        else typer.Argument(help=help.texts, show_default=False)
    )
    own = own_options(function)

    def command(**given: Any) -> None:
        run, texts, file, out = (given.pop(name) for name in ("run", "texts", "file", "out"))
        precision, device = given.pop("precision"), given.pop("device")
        texts_given = TextInput(tuple(texts or ()), file)
        _check_input(texts_given, help)
        with (
            output(out) as stream,
            in_precision(precision, device),
        ):  # output first, so that an --out that cannot be written is reported at once
            for piece in function(load_for(run, function.__name__, device=device), texts_given, **given):
                stream.write(piece if isinstance(piece, str) else json.dumps(piece, ensure_ascii=False) + "\n")
                if out is None:
                    stream.flush()

    parameters = [
        keyword("run", Annotated[Path, run_argument(runs_of(function.__name__))], Parameter.empty),
        keyword("texts", Annotated[list[str] | None, texts_parameter], None),
        keyword("file", Annotated[str | None, name_option("--file", help.file)], None),
        *own.values(),
        precision_option(),
        keyword(
            "out",
            Annotated[Path | None, path_option("--out", "Write to this file instead of standard output.")],
            None,
        ),
        keyword("device", Annotated[str, DEVICE], "cpu"),
        keyword("json", Annotated[bool, typer.Option("--json", help="Write one JSON line for each text.")], False),
    ]
    return as_command(command, function.__name__, inspect.getdoc(function) or "", parameters)


def as_command(
    command: Callable[..., None], name: str, help: str, parameters: Iterable[Parameter]
) -> Callable[..., None]:
    """The function with the name, help and parameters that typer reads."""
    parameters = list(parameters)
    command.__name__, command.__doc__ = name, help
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _check_input(texts: TextInput, help: TextHelp) -> None:
    if texts.given and texts.file is not None:
        raise WeftError("there are texts and a --file", expected="one of the two", hint=help.example)
    if help.missing and not texts.given and texts.file is None:
        raise WeftError(help.missing, expected="texts, or a --file", hint=help.example)
