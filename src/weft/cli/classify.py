"""`weft classify` and `weft train classify`: the label of a text."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.output import output
from weft.cli.texts import given_texts
from weft.cli.train import ConfigFile, Json, Out, Resume, Sets, ShowConfig, run_training, train
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.metrics import Confusion
    from weft.tasks.classify.predictor import Classified, Classifying

Examples = Annotated[
    str | None,
    typer.Option(
        help="Texts with labels: TSV, CSV, JSON lines, 'label text' lines, also as .gz, a folder for each label, "
        "- for standard input, or grammar."
    ),
]
HeldOut = Annotated[str | None, typer.Option(help="Held-out texts with labels; without it some of --data, by chance.")]


@train.command(name="classify")
def train_classify(
    out: Out = None,
    data: Examples = None,
    dev: HeldOut = None,
    config: ConfigFile = None,
    sets: Sets = None,
    resume: Resume = False,
    json_output: Json = False,
    show_config: ShowConfig = False,
) -> None:
    """Train a classifier: it learns to tell the label of a text.

    The columns of text and label are inferred from the data, or set by --set data.text_column=NAME and
    data.label_column=NAME (or numbers, from 1).
    With --resume the same command can be given again and again: it goes on where it stopped.
    """
    from weft.tasks.classify.predictor import CLASSIFY

    run_training(CLASSIFY, out, data, dev, config, sets or [], resume, json_output, show_config)


def classify(
    run: Annotated[Path, typer.Argument(help="A run directory of `weft train classify`.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; - reads one text a line.")] = None,
    file: Annotated[
        str | None,
        typer.Option(help="A file with one text a line, or a table with the text column of the data trained on."),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="--file is TSV, CSV or JSON lines: the texts' column, by name or number from 1.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write there instead of to standard output.")] = None,
    probabilities: Annotated[
        bool, typer.Option(help="Show every label with its probability, as label=0.1234, each in a column.")
    ] = False,
    weights: Annotated[
        bool, typer.Option(help="Show how much each token counted, as token=0.123, all in a column.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print a JSON line for each text.")] = False,
) -> None:
    """Tell the label of each text: a line for each with label, probability and text, between tabs.

    What --probabilities and --weights show stands before the text. White space is written as one space in the text, and
    as \\u0020 in a token.

    A text that is empty, and any of which nothing is left as the model reads text, gets the labels' shares in the
    training data.
    """
    from weft.tasks import load_as
    from weft.tasks.classify.predictor import Classifying

    if (not texts) == (file is None):
        raise WeftError(
            "there is no text to classify" if not texts else "there are texts and a --file",
            expected="one of the two",
            hint='weft classify RUN "some text", or weft classify RUN --file texts.txt',
        )
    if column is not None and file is None:
        raise WeftError("there is a --column without a --file", expected="the file that has it")
    with output(out) as stream:  # first, so that a place that cannot be written is told of at once
        model = load_as(run, Classifying, "classify")
        given = _texts(model, texts or [], file, column)
        results = model.classify(given)
        _say_what_is_odd(model, results)
        for text, result in zip(given, results, strict=True):
            stream.write((_as_json if json_output else _in_words)(text, result, probabilities, weights) + "\n")


def _texts(model: Classifying, given: list[str], file: str | None, column: str | None) -> list[str]:
    from weft.tasks.classify.data import read_texts

    if file is None:
        return given_texts(given)
    found = read_texts(file, column, model.layout)
    for note in found.notes:
        _say(note)
    return found.rows


def _say_what_is_odd(model: Classifying, results: list[Classified]) -> None:
    long = [number for number, result in enumerate(results, start=1) if result.left_out]
    empty = [number for number, result in enumerate(results, start=1) if not result.tokens]
    if long:
        most = model.config.data.max_tokens
        _say(f"{_some(long)} had more than {most:,} tokens: only the first and last {most // 2:,} were read")
    if empty:
        _say(f"{_some(empty)} had nothing to read: the labels' shares in the training data are given")


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return f"text {shown}" if len(numbers) == 1 else f"texts {shown}{', ...' if len(numbers) > 5 else ''}"


def _as_json(text: str, result: Classified, probabilities: bool, weights: bool) -> str:
    record: dict[str, object] = {"text": text, "label": result.label, "probabilities": result.probabilities}
    if weights:
        record["weights"] = [[token, round(w, 6)] for token, w in zip(result.tokens, result.weights, strict=True)]
    return json.dumps(record, ensure_ascii=False)


def _in_words(text: str, result: Classified, probabilities: bool, weights: bool) -> str:
    cells = [result.label, f"{result.probability:.4f}"]
    if probabilities:
        cells += (f"{label}={value:.4f}" for label, value in result.probabilities.items())
    if weights:
        pairs = zip(result.tokens, result.weights, strict=True)
        cells.append(" ".join(f"{_without_space(token)}={weight:.3f}" for token, weight in pairs))
    cells.append(" ".join(text.split()))  # the text's own tabs and line ends would look like columns and rows
    return "\t".join(cells)


def _without_space(token: str) -> str:
    """A token that can stand in a list between spaces."""
    return re.sub(r"\s", lambda space: f"\\u{ord(space[0]):04x}", token)


def show_measure(model: Classifying, data: str | None, json_output: bool) -> None:
    """What `weft eval` prints for a classifier."""
    if data:
        examples = model.read(data)
        _say(f"{data}: {examples.about}")
        found = model.score(examples.rows)
    else:
        found = model.measure_held_out()
    if json_output:
        record = {
            "texts": found.count,
            "accuracy": found.accuracy,
            "macro_f1": found.macro_f1,
            "cross_entropy": found.cross_entropy,
            "labels": [score._asdict() for score in found.scores],
            "confusion": found.counts,
            "signature": found.signature(),
        }
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    typer.echo(f"accuracy       {found.accuracy:.4f}")
    typer.echo(f"macro F1       {found.macro_f1:.4f}")
    typer.echo(f"nats per text  {found.cross_entropy:.4f}")
    typer.echo(f"texts          {found.count:,}\n")
    wide = max(5, *(len(label) for label in found.labels))
    typer.echo(f"{'label':{wide}}  precision  recall      F1   texts")
    for score in found.scores:
        numbers = f"{score.precision:9.4f}  {score.recall:6.4f}  {score.f1:6.4f}  {score.support:6,}"
        typer.echo(f"{score.label:{wide}}  {numbers}")
    typer.echo("\n" + _confusion(found))


def _confusion(found: Confusion) -> str:
    """The labels down the side as they are, across the top as they were told."""
    wide = max(len("is \\ told"), *(len(label) for label in found.labels))
    table = [list(found.labels), *([f"{number:,}" for number in row] for row in found.counts)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for name, row in zip(["is \\ told", *found.labels], table, strict=True):
        cells = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([f"{name:{wide}}", *cells]))
    return "\n".join(lines)


def _say(message: str) -> None:
    print(f"weft: {message}", file=sys.stderr, flush=True)
