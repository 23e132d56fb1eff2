"""The commands of text classification: `weft train classify`, `weft classify`, and what `weft eval` reports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.errors import WeftError, warn
from weft.tasks.command import (
    STRICT,
    Commands,
    EvaluationReport,
    Output,
    TextHelp,
    TextInput,
    name_option,
    path_option,
)

if TYPE_CHECKING:
    from weft.metrics import Confusion
    from weft.tasks.classify.predictor import ClassifiedText, ClassifyPredictor


def classify(
    model: ClassifyPredictor,
    texts: Annotated[
        TextInput,
        TextHelp(
            "Texts; - reads one text per line.",
            "A file with one text per line, or a table with the text column of the training data.",
            missing="there is no text to classify",
            example='weft classify RUN "some text", or weft classify RUN --file texts.txt',
        ),
    ],
    *,
    column: Annotated[
        str | None,
        name_option("--column", "--file is TSV, CSV or JSON lines: the column of the texts, by name or number from 1."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option(help="Show every label with its probability, as label=0.1234, each in a column.")
    ] = False,
    weights: Annotated[
        bool, typer.Option(help="Show the weight of each token, as token=0.123, all in one column.")
    ] = False,
    json: bool = False,
) -> Output:
    """Predict the label of each text: one line each with label, probability and text, separated by tabs.

    Columns of --probabilities and --weights come before the text. White space is written as one space in the text, and
    as \\u0020 in a token.

    An empty line, or a row without a text, has an empty label. A text without any token, after normalization, gets the
    label frequencies of the training data.
    """
    if column is not None and texts.file is None:
        raise WeftError("there is a --column without a --file", expected="the file that has it")
    if texts.file is None:
        given = texts.lines()
    else:
        given, notes = model.read_texts(texts.file, column)
        for note in notes:
            warn(note)
    for note in model.notes(given):
        warn(note)
    for text, result in zip(given, model.classify(given), strict=True):
        shown = model.labels if probabilities else ()
        yield classified_record(text, result, weights) if json else _line(text, result, shown, weights) + "\n"


def classified_record(text: str, result: ClassifiedText, weights: bool) -> dict[str, Any]:
    """A result as `--json` writes it."""
    record: dict[str, Any] = {"text": text, "label": result.label or None, "probabilities": result.probabilities}
    if weights:
        pairs = zip(result.tokens, result.weights, strict=True)
        record["weights"] = [[token, round(weight, 6)] for token, weight in pairs]
    return record


def _line(text: str, result: ClassifiedText, labels: Sequence[str], weights: bool) -> str:
    """The cells of a line; those of a prediction are empty where there is no text."""
    cells = [result.label, f"{result.probability:.4f}" if result.label else ""]
    cells += (f"{label}={result.probabilities[label]:.4f}" if result.label else "" for label in labels)
    if weights:
        pairs = zip(result.tokens, result.weights, strict=True)
        cells.append(" ".join(f"{_escape_space(token)}={weight:.3f}" for token, weight in pairs))
    cells.append(" ".join(text.split()))  # tabs and line breaks of the text would look like columns and rows
    return "\t".join(cells)


def _escape_space(token: str) -> str:
    return re.sub(r"\s", lambda space: f"\\u{ord(space[0]):04x}", token)


def evaluate(
    model: ClassifyPredictor,
    data: str | None,
    *,
    against: Annotated[
        list[Path] | None,
        path_option("--against", "A run of the same labels to compare with, or nbsvm: the run's own baseline."),
    ] = None,
    strict: Annotated[bool, STRICT] = False,
) -> EvaluationReport:
    """Accuracy, F1 and the confusion matrix; with --against, accuracy beside other classifiers."""
    notes, left_out = [], {}
    if data is not None:
        examples = model.read(data, strict=strict)
        left_out = {"left_out": examples.left_out}
        notes.append(f"{data}: {examples.description}")
    if against:
        from weft.tasks.classify.compare import compare_classifiers

        report = compare_classifiers(model, [str(one) for one in against], None if data is None else examples.rows)
        return report._replace(record={**report.record, **left_out}, notes=notes)
    found = model.evaluate_held_out() if data is None else model.score(examples.rows)
    record = {
        "texts": found.count,
        **left_out,
        "accuracy": found.accuracy,
        "macro_f1": found.macro_f1,
        "cross_entropy": found.cross_entropy,
        "labels": [score._asdict() for score in found.scores],
        "confusion": found.counts,
        "signature": found.signature(),
    }
    wide = max(5, *(len(label) for label in found.labels))
    lines = [
        f"accuracy       {found.accuracy:.4f}",
        f"macro F1       {found.macro_f1:.4f}",
        f"cross-entropy  {found.cross_entropy:.4f} nats per text",
        f"texts          {found.count:,}",
        "",
        f"{'label':{wide}}  precision  recall      F1   texts",
    ]
    for score in found.scores:
        numbers = f"{score.precision:9.4f}  {score.recall:6.4f}  {score.f1:6.4f}  {score.support:6,}"
        lines.append(f"{score.label:{wide}}  {numbers}")
    return EvaluationReport(record, [*lines, "", *_confusion_table(found)], notes)


def _confusion_table(found: Confusion) -> list[str]:
    """True labels down the side, predicted ones across the top."""
    corner = "true \\ predicted"
    wide = max(len(corner), *(len(label) for label in found.labels))
    table = [list(found.labels), *([f"{number:,}" for number in row] for row in found.counts)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for name, row in zip([corner, *found.labels], table, strict=True):
        cells = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([f"{name:{wide}}", *cells]))
    return lines


def reading_options(
    *,
    encoding: Annotated[
        str | None, name_option("--encoding", "Encoding of the files, as latin-1; without it UTF-8.")
    ] = None,
    unlabelled: Annotated[
        str | None,
        name_option("--unlabelled", "Texts without labels: trained on with the labels of --teacher."),
    ] = None,
    teacher: Annotated[
        str | None, name_option("--teacher", "The run of a classifier of the same labels that labels --unlabelled.")
    ] = None,
    strict: Annotated[bool, STRICT] = False,
) -> list[str]:
    """The settings that the own options of `weft train classify` stand for."""
    given = {"encoding": encoding, "unlabelled": unlabelled, "teacher": teacher}
    settings = [f"data.{name}={value}" for name, value in given.items() if value is not None]
    return [*settings, *(["data.strict=true"] if strict else [])]


COMMANDS = Commands(
    summary="Train a text classifier: it predicts the label of a text.",
    details="The columns of text and label are detected, or set by --set data.text_column=NAME and "
    "data.label_column=NAME (or numbers, from 1). Several text columns, as title,body, are joined.",
    data="Texts with labels: TSV, CSV, JSON lines, 'label text' lines, also as .gz, a folder for each label, - for "
    "standard input, or grammar.",
    dev="Held-out texts with labels; without it a random part of --data is held out.",
    evaluate=evaluate,
    capabilities=("classify",),
    functions=(classify,),
    train_options=reading_options,
    takes_encoder=True,
)
