"""Reads labelled texts and texts without labels: TSV, CSV, JSON lines, "label text" lines or folders.

What the settings leave open is inferred: the format from the file's name and its first lines, a header from its names,
the label column from its few distinct values. Errors name file and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from weft.errors import WeftError, unknown_name
from weft.tasks.classify.config import ClassifyDataConfig
from weft.tasks.classify.example import Example, grammar_examples
from weft.text.corpus import Document, open_documents
from weft.text.datasets import DATASETS, open_data
from weft.text.sources import entries
from weft.text.tables import (
    LABEL_NAMES,
    TEXT_NAMES,
    Table,
    format_with_column,
    location_of,
    looks_like_table,
    numbered_lines,
    read_table,
)

GRAMMAR_EXAMPLES = 5000
FEWEST_LINES = 5  # of a file of "label text" lines; fewer may begin with a label by accident


class ExampleLayout(NamedTuple):
    """The columns and labels of the training data, so that other files are read in the same way."""

    text: str = ""  # names of the columns, if they have names; of several text columns, separated by commas
    label: str = ""
    labels: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        return {name for name in (*split_names(self.text), self.label) if name}


class Examples(NamedTuple):
    rows: list[Example]
    layout: ExampleLayout
    description: str  # how they were read, and the columns of text and label


class Texts(NamedTuple):
    rows: list[str]
    notes: list[str]  # how they were read, where that was not specified


ExampleSource = str | Path | Iterable[tuple[str, Any]]


def read_labelled(source: ExampleSource, config: ClassifyDataConfig, like: ExampleLayout | None = None) -> Examples:
    """Reads labelled examples.

    Args:
        source: A file, a folder with a folder for each label, `-`, "grammar", or (text, label) pairs.
        config: The format and the columns.
        like: The layout of the training data, for files that are used with it.
    """
    if not isinstance(source, str | Path):
        return Examples(_from_pairs(source), ExampleLayout(), "pairs")
    if str(source) == "grammar":
        return Examples(grammar_examples(GRAMMAR_EXAMPLES, seed=0), ExampleLayout(), "sentences of the grammar")
    if str(source) in DATASETS:
        raise WeftError(f"{source} is a text without labels", expected="texts with labels", hint="`source=grammar`")
    if Path(source).is_dir():
        return Examples(_from_folders(str(source), config.encoding), ExampleLayout(), "a folder for each label")
    documents = list(open_data(str(source), encoding=config.encoding).documents())
    parts = [_from_document(document, config, like or ExampleLayout()) for document in documents]
    rows = [row for part in parts for row in part.rows]
    if not rows:
        raise WeftError(f"{source} has no examples", expected="texts with labels")
    return Examples(rows, *parts[0][1:])


def read_texts(
    source: str, column: int | str | None, config: ClassifyDataConfig, like: ExampleLayout | None = None
) -> Texts:
    """Reads texts without labels: the lines of a file or of `-`, or columns of a table.

    Without `column`, a table that has the text column of `like`, or that reads as labelled texts, is read in that way.
    """
    texts: list[str] = []
    notes: list[str] = []
    like = like or ExampleLayout()
    known = like.text
    for document in open_data(source).documents() if source in DATASETS else open_documents(source, config.encoding):
        form = "auto" if column is not None else format_with_column(document, split_names(known)[0]) if known else None
        if form is not None:
            wanted = known if column is None else column
            table = read_table(document, form, "yes" if _is_name(wanted) else "auto", names=set())
            places = _find_all(table, wanted, "`column`")
            texts += [_joined(table, row, places) for row in table.rows]
            if column is None:
                notes.append(f"{document.location}: the texts are its column {known!r}, as in the training data")
        elif (labelled := _like_training_data(document, config, like)) is not None:
            texts += [row.text for row in labelled.rows]
            notes.append(f"{document.location}: {labelled.description}, as `weft eval` reads it")
        else:
            texts += [line for _, line in numbered_lines(document)]
            if looks_like_table(document):
                why = f"there is no column {known!r}, as in the training data" if known else "no column is given"
                notes.append(f"{document.location} is read as one text per line: {why}; `column` reads a column")
    return Texts(texts, notes)


def _like_training_data(document: Document, config: ClassifyDataConfig, like: ExampleLayout) -> Examples | None:
    """The examples of a file with the labels of the training data; None if it is no such file."""
    if not like.labels:
        return None
    try:
        found = _from_document(document, config, like)
    except WeftError:
        return None
    enough = looks_like_table(document) or len(found.rows) >= FEWEST_LINES
    return found if enough and all(row.label in like.labels for row in found.rows) else None


def _from_pairs(pairs: Iterable[tuple[str, Any]]) -> list[Example]:
    found = []
    if not isinstance(pairs, Iterable):
        raise WeftError(f"the examples are {pairs!r}", expected="a path, or a list of pairs of a text and its label")
    for number, pair in enumerate(pairs, start=1):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):
            raise WeftError(f"example {number} is {pair!r}", expected="a pair of a text and its label")
        if not isinstance(pair[1], str | int) or not str(pair[1]).strip():
            raise WeftError(f"example {number} has the label {pair[1]!r}", expected="a name or a whole number")
        found.append(Example(pair[0], _label(str(pair[1]), f"example {number}"), f"example {number}"))
    if not found:
        raise WeftError("there are no examples", expected="pairs of a text and its label")
    return found


def _label(name: str, place: str) -> str:
    """The label, which must fit in one column of one line."""
    if "\t" in name or name.splitlines() != [name]:
        raise WeftError(f"{place}: the label {name!r} contains a tab or a line break", expected="a label of one line")
    return name


def _from_folders(source: str, encoding: str) -> list[Example]:
    found = []
    for entry in entries(source):
        document = Document(*entry, encoding)
        label = PurePosixPath(document.name).parent.name
        if not label:
            raise WeftError(
                f"{document.location} is in no folder that names its label",
                expected="a folder for each label, with a file for each text, or one file with texts and labels",
            )
        found.append(Example("".join(document.lines()).strip(), _label(label, document.location), document.location))
    return found


def _from_document(document: Document, config: ClassifyDataConfig, like: ExampleLayout) -> Examples:
    named = _is_name(config.text_column) or _is_name(config.label_column)
    header = "yes" if named and config.header == "auto" else config.header
    table = read_table(document, config.format, header, names=like.names, values=set(like.labels))
    if not table.rows:
        raise WeftError(f"{document.location} has no examples", expected="texts with labels")
    texts, label = _columns(table, config, like)
    found = []
    for row in table.rows:
        name = _cell(table, row, label).strip()
        if config.label_separator:
            name = name.split(config.label_separator)[0].strip()
        if not name:
            raise WeftError(f"{location_of(table, row)}: the label is empty", expected="a label for every text")
        place = location_of(table, row)
        found.append(Example(_joined(table, row, texts), _label(name, place), place))
    layout = ExampleLayout()
    if table.names:
        layout = ExampleLayout(",".join(table.names[text] for text in texts), table.names[label])
    called = ", ".join(_called(table, text) for text in texts)
    description = f"read as {table.description}: text from {called}, label from {_called(table, label)}"
    return Examples(found, layout, description)


def _joined(table: Table, row: tuple[int, list[str | None]], columns: Sequence[int]) -> str:
    """The text of a row; of several columns, those that are not empty."""
    return " ".join(cell for column in columns if (cell := _cell(table, row, column).strip()))


def _columns(table: Table, config: ClassifyDataConfig, like: ExampleLayout) -> tuple[list[int], int]:
    """The columns of text and label: as set, as in the training data, by a usual name, or by their values."""
    width = table.width
    if width < 2:
        raise WeftError(
            f"{table.location} has one column",
            expected="a text and its label in every row",
            hint="`data.format=lines`",
        )
    texts = _find_all(table, config.text_column, "data.text_column") if config.text_column != "" else []
    label = _find_all(table, config.label_column, "data.label_column")[0] if config.label_column != "" else None
    if label in texts:
        raise WeftError(f"text and label are both {_called(table, label)} of {table.location}", expected="two columns")
    if not texts and like.text and table.names and set(split_names(like.text)) <= set(table.names):
        texts = [table.names.index(name) for name in split_names(like.text)]
    if not texts and (named := _named(table, TEXT_NAMES, but=label)) is not None:
        texts = [named]
    label = _named(table, [like.label, *LABEL_NAMES], but=texts) if label is None else label
    free = [column for column in range(width) if column != label and column not in texts]
    columns = {column: [str(cells[column]) for _, cells in table.rows] for column in free}
    if label is None:
        label = min(free, key=lambda column: _unlike_labels(columns[column], like.labels))
        different = len(set(columns[label]))
        if len(table.rows) >= 20 and different > len(table.rows) / 2 and not like.labels:
            raise WeftError(
                f"no column of {table.location} looks like labels: {_called(table, label)} has the fewest values, "
                f"{different:,} in {len(table.rows):,} rows",
                expected="a column of few distinct values",
                hint="`data.label_column=NAME`, if it is there, or another `data.format` (tsv, csv, jsonl, lines)",
            )
        free.remove(label)
    return texts or [max(free, key=lambda column: sum(map(len, columns[column])))], label


def _unlike_labels(values: list[str], labels: Sequence[str]) -> tuple[float, int, int]:
    """How unlike labels the values of a column are: unknown labels, many distinct ones, long ones."""
    known = set(labels)
    strange = sum(value.strip() not in known for value in values) if known else 0
    return strange, len(set(values)), sum(map(len, values))


def _named(table: Table, names: Sequence[str], *, but: int | Sequence[int] | None) -> int | None:
    taken = but if isinstance(but, Sequence) else [but]
    lowered = [name.strip().lower() for name in table.names or ()]
    wanted = [name.lower() for name in names if name.lower() in lowered]
    return next((lowered.index(name) for name in wanted if lowered.index(name) not in taken), None)


def split_names(columns: str) -> list[str]:
    """The names of columns that are given in one string, separated by commas."""
    return [name.strip() for name in columns.split(",")]


def _find_all(table: Table, columns: int | str, setting: str) -> list[int]:
    """The indices of one or more columns, by names or numbers from 1 that are separated by commas."""
    if not isinstance(columns, str) or columns in (table.names or ()):
        return [_find(table, columns, setting)]
    return [_find(table, name, setting) for name in split_names(columns)]


def _find(table: Table, column: int | str, setting: str) -> int:
    """The index of a column given by its name, or by its number from 1."""
    if not _is_name(column):
        if not 1 <= int(column) <= table.width:
            raise WeftError(
                f"{setting} is {column}, and {table.location} has {table.width} columns", expected="one of them"
            )
        return int(column) - 1
    if table.names is None:
        raise WeftError(
            f"{setting} is {column!r}, and the columns of {table.location} have no names", expected="a number from 1"
        )
    if column not in table.names:
        raise unknown_name(f"{table.location}: {setting}: column", str(column), table.names)
    return table.names.index(str(column))


def _is_name(column: int | str) -> bool:
    return isinstance(column, str) and any(name and not name.isdecimal() for name in split_names(column))


def _cell(table: Table, row: tuple[int, list[str | None]], column: int) -> str:
    value = row[1][column]
    if value is None:
        raise WeftError(
            f"{location_of(table, row)} has no {_called(table, column)}", expected="a text and its label in every row"
        )
    return value


def _called(table: Table, column: int) -> str:
    return f"column {table.names[column]!r}" if table.names else f"column {column + 1}"
