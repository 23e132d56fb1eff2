"""What the command line needs to know of a task, without loading torch.

A task's `command.py` holds a `Commands` object and the functions it names. A command function takes a loaded
predictor, its texts, and its own options as keyword arguments with typer annotations. It yields what is to be written:
a string as it stands, or a dict as one JSON line. `weft.cli` makes the commands from these functions and adds what all
of them have: the run, the texts or --file, --out, --json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import typer

from weft.errors import check_path

Output = Iterator[str | dict[str, Any]]


def name_option(option: str, help: str) -> Any:
    """A typer option that takes a name or a source of data. An empty one is refused: a shell variable is not set."""
    return typer.Option(option, parser=lambda value: _not_empty(option, value), metavar="<str>", help=help)


def path_option(option: str, help: str) -> Any:
    """The same for a path."""
    return typer.Option(option, parser=lambda value: Path(_not_empty(option, value)), metavar="<path>", help=help)


def run_argument(help: str) -> Any:
    """The argument of a run directory."""
    return typer.Argument(parser=lambda value: Path(_not_empty("RUN", value)), metavar="RUN", help=help)


def _not_empty(what: str, value: str | Path) -> str:
    check_path(value, what)
    return str(value)


class TextHelp(NamedTuple):
    """Help for the texts of a command, in `Annotated[TextInput, TextHelp(...)]`."""

    texts: str
    file: str = "A file with one text per line; - for standard input."
    missing: str = ""  # the message where there is no text; empty: texts may be left out
    example: str = ""  # what to try then
    option: str = ""  # an option that takes the texts, such as --prompt, where they are no arguments


@dataclass(frozen=True)
class TextInput:
    """The texts that a command was given: on the command line (`-` stands for standard input), or a file."""

    given: tuple[str, ...] = ()
    file: str | None = None

    def lines(self) -> list[str]:
        """All texts; those of a file or of standard input one per line, blank lines included."""
        if self.file is not None:
            return read_lines(self.file)
        return [line for text in self.given for line in (read_lines("-") if text == "-" else [text])]


def read_lines(source: str) -> list[str]:
    """The lines of a file, or of standard input for `-`; none if it is empty. Errors name the line."""
    from weft.text.corpus import open_documents
    from weft.text.tables import numbered_lines

    return [line for document in open_documents(source) for _, line in numbered_lines(document)]


class EvaluationReport(NamedTuple):
    """The result of an evaluation: as plain data, and as the lines that people read."""

    record: dict[str, Any]
    lines: list[str]
    notes: Sequence[str] = ()  # how the data was read, what was repaired


def _no_options() -> list[str]:
    return []


class PlainOption(NamedTuple):
    """An option of `weft train` that stands for one setting."""

    kind: type
    setting: str
    help: str


STRICT = typer.Option("--strict", help="Refuse rows that lack something, which are left out and counted otherwise.")
DEVICE = typer.Option("--device", help="Where the model runs: cpu, cuda, cuda:1, mps, ...")  # of eval and use

PLAIN_OPTIONS = {
    "epochs": PlainOption(int, "train.epochs", "Passes over the training data."),
    "minutes": PlainOption(
        float, "train.minutes", "Time limit, reading the data included; training ends at --epochs or here."
    ),
    "batch_size": PlainOption(int, "batch.size", "Examples, or rows of text, per batch."),
    "learning_rate": PlainOption(float, "train.learning_rate", "Peak learning rate."),
    "seed": PlainOption(int, "train.seed", "Random seed."),
    "members": PlainOption(
        int, "train.members", "Train this many models with different seeds; their predictions are averaged."
    ),
    "device": PlainOption(str, "train.device", "Where to train: cpu, cuda, cuda:1, mps, ..."),
    "precision": PlainOption(str, "train.precision", "Matrix products: float32, or bf16 with float32 sums."),
}


@dataclass(frozen=True)
class Commands:
    """The commands of a task.

    Attributes:
        summary: One line: what `weft train` trains.
        details: What else its help says.
        data: Help of --data.
        dev: Help of --dev.
        evaluate: `evaluate(model, data, *, own options) -> EvaluationReport`, for `weft eval`. `data` is a source, or
            None for the run's own held-out data.
        capabilities: The commands that runs of this task serve.
        functions: The commands that this task defines.
        train_options: Own options of `weft train`, as a function from their values to `section.key=value` settings.
        plain_options: The names in PLAIN_OPTIONS that `weft train` takes for this task.
        takes_encoder: Whether its models can start from the layers of a language model.
    """

    summary: str
    data: str
    dev: str
    evaluate: Callable[..., EvaluationReport]
    capabilities: tuple[str, ...] = ()
    functions: tuple[Callable[..., Output], ...] = ()
    details: str = ""
    train_options: Callable[..., list[str]] = field(default=_no_options)
    plain_options: tuple[str, ...] = tuple(PLAIN_OPTIONS)
    takes_encoder: bool = False
