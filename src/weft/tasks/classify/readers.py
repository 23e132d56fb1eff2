"""Reads labelled texts and texts without labels: TSV, CSV, JSON lines, "label text" lines or folders.

What the settings leave open is inferred: the format from the file's name and its first lines, a header from its names,
the label column from its few distinct values. Errors name file and line.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from weft.errors import WeftError, short_repr
from weft.tasks.classify.config import ClassifyDataConfig
from weft.text.columns import (
    ChosenColumns,
    Role,
    choose_columns,
    column_title,
    find_columns,
    is_blank,
    is_name,
    joined_cells,
    longest_column,
    split_names,
)
from weft.text.corpus import Document, open_documents
from weft.text.dataframes import cell_text, from_python, is_missing
from weft.text.datasets import DATASETS, open_data
from weft.text.grammars.english import ENGLISH
from weft.text.grammars.pcfg import Node
from weft.text.left_out import LeftOut
from weft.text.sources import entries
from weft.text.tables import (
    LABEL_NAMES,
    TEXT_NAMES,
    Row,
    Table,
    format_with_column,
    location_of,
    looks_like_table,
    numbered_lines,
    read_table,
)
from weft.text.tokenizers import Normalizer

GRAMMAR_EXAMPLES = 5000
FEWEST_LINES = 5  # of a file of "label text" lines; fewer may begin with a label by accident


class Example(NamedTuple):
    """A text, or a series, and its label."""

    value: Any
    label: str
    place: str  # file and line, for messages


def grammar_examples(sentences: int, seed: int) -> list[Example]:
    """Sentences of the embedded grammar, labelled by the grammatical number of their first subject.

    >>> [one[:2] for one in grammar_examples(2, seed=8)]
    [('the kings near a river sit in the bridge.', 'plural'), ('she finds some farmers in that river.', 'singular')]
    """
    rng = random.Random(seed)
    found = []
    for number in range(sentences):
        sentence = ENGLISH.sample(rng)
        clause = sentence.tree.children[0]
        assert isinstance(clause, Node)
        label = {"subject.sg": "singular", "subject.pl": "plural"}[clause.children[0].symbol]
        found.append(Example(sentence.text, label, f"grammar:{number + 1}"))
    return found


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
    description: str  # how they were read, the columns of text and label, and why these
    left_out: int = 0  # rows without a text or a label
    columns: str = ""  # the same without the reasons


class Texts(NamedTuple):
    rows: list[str]
    notes: list[str]  # how they were read, where that was not specified


# A path or a name; pairs of a text and its label; or a table: a DataFrame, a data set, a dict of columns, dicts.
ExampleSource = str | Path | Iterable[Any]


def read_labelled(
    source: ExampleSource,
    config: ClassifyDataConfig,
    like: ExampleLayout | None = None,
    normalizer: Normalizer | None = None,
) -> Examples:
    """Reads labelled examples. Rows without a text or a label are left out and reported.

    Args:
        source: A file, a folder with a folder for each label, `-`, "grammar", (text, label) pairs, or a table.
        config: The format and the columns.
        like: The layout of the training data, for files that are used with it.
        normalizer: How the model reads text: a text of which nothing is left is none.
    """
    reading = _Reading(config, like or ExampleLayout(), normalizer)
    if not isinstance(source, str | Path):
        reading.read_python(source)
    elif str(source) == "grammar":
        return Examples(grammar_examples(GRAMMAR_EXAMPLES, seed=0), ExampleLayout(), "sentences of the grammar")
    elif str(source) in DATASETS:
        raise WeftError(f"{source} is a text without labels", expected="texts with labels", hint="`source=grammar`")
    elif Path(source).is_dir():
        reading.read_folders(str(source))
    else:
        for document in open_data(str(source), encoding=config.encoding).documents():
            reading.read_document(document)
    return reading.result("the examples" if not isinstance(source, str | Path) else str(source))


def read_texts(
    source: str, column: int | str | None, config: ClassifyDataConfig, like: ExampleLayout | None = None
) -> Texts:
    """Reads texts without labels: the lines of a file or of `-`, or columns of a table; "" where a row has no text.

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
            table = read_table(document, form, "yes" if is_name(wanted) else "auto", names=set())
            places = find_columns(table, wanted, "`column`")
            texts += [joined_cells(row, places) for row in table.rows]
            if column is None:
                notes.append(f"{document.location}: the texts are its column {known!r}, as in the training data")
        elif (labelled := _like_training_data(document, config, like)) is not None:
            table, columns = labelled
            texts += [joined_cells(row, columns.text.places) for row in table.rows]
            notes.append(f"{document.location}: {columns.describe(table)}, as `weft eval` reads it")
        else:
            texts += [line for _, line in numbered_lines(document)]
            if looks_like_table(document):
                why = f"there is no column {known!r}, as in the training data" if known else "no column is given"
                notes.append(f"{document.location} is read as one text per line: {why}; `column` reads a column")
    return Texts(texts, notes)


def _like_training_data(
    document: Document, config: ClassifyDataConfig, like: ExampleLayout
) -> tuple[Table, _ExampleColumns] | None:
    """The table of a file with the labels of the training data; None if it is no such file."""
    if not like.labels:
        return None
    try:
        table = _labelled_table(document, config, like)
        columns = _columns(table, config, like)
    except WeftError:
        return None
    labels = [_label_cell(row, columns, config) for row in table.rows]
    enough = looks_like_table(document) or len(labels) >= FEWEST_LINES
    return (table, columns) if enough and all(label in like.labels for label in labels if label) else None


class _ExampleColumns(NamedTuple):
    text: ChosenColumns
    label: ChosenColumns

    def title(self, table: Table) -> str:
        return f"read as {table.description}: text from {self.text.title(table)}, label from {self.label.title(table)}"

    def describe(self, table: Table) -> str:
        text, label = self.text.describe(table), self.label.describe(table)
        return f"read as {table.description}: text from {text}, label from {label}"


class _Reading:
    """Examples while they are read from one or more tables, files or pairs."""

    def __init__(self, config: ClassifyDataConfig, like: ExampleLayout, normalizer: Normalizer | None) -> None:
        self.config, self.like, self.normalizer = config, like, normalizer
        self.rows: list[Example] = []
        self.left_out = LeftOut("data.strict", strict=config.strict)
        self.layout: ExampleLayout | None = None
        self.description = self.columns = ""

    def result(self, name: str) -> Examples:
        total = len(self.rows) + self.left_out.count
        if not total:
            raise WeftError(f"{name} has no examples", expected="texts with labels")
        columns = "`data.text_column=NAME` and `data.label_column=NAME`, if they are in other columns"
        left_out = self.left_out.report(total, columns if self.layout is not None else "")
        return Examples(self.rows, self.layout or ExampleLayout(), self.description, left_out, self.columns)

    def add(self, text: str, label: str, place: str) -> None:
        """An example, unless it lacks something."""
        if not text.strip():
            self.left_out.add(place, "text", expected="a text for every label", hint=_REMOVE)
        elif not label:
            self.left_out.add(place, "label", expected="a label for every text", hint=_REMOVE)
        elif self.normalizer is not None and not self.normalizer(text).strip():
            given = f"{place}: the text {text!r} has no tokens after normalization"
            self.left_out.add(
                place, "text after normalization", given=given, expected="a text for every label", hint=_REMOVE
            )
        else:
            self.rows.append(Example(text, _checked_label(label, place), place))

    def read_document(self, document: Document) -> None:
        self._read_table(_labelled_table(document, self.config, self.like))

    def read_python(self, source: Iterable[Any]) -> None:
        data = from_python(source, "the examples", "a path, or a list of pairs of a text and its label, or a DataFrame")
        if not isinstance(data, list):
            self._read_table(data.table())
            return
        self.description = "pairs"
        for number, pair in enumerate(data, start=1):
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise WeftError(f"example {number} is {short_repr(pair)}", expected="a pair of a text and its label")
            text, label = pair
            if not isinstance(text, str) and not is_missing(text):
                raise WeftError(f"example {number} is {short_repr(pair)}", expected="a pair of a text and its label")
            if not isinstance(label, str | Integral) and not is_missing(label):
                raise WeftError(f"example {number} has the label {label!r}", expected="a name or a whole number")
            self.add(cell_text(text) or "", (cell_text(label) or "").strip(), f"example {number}")

    def read_folders(self, source: str) -> None:
        self.description = "a folder for each label"
        for entry in entries(source):
            document = Document(*entry, self.config.encoding)
            label = PurePosixPath(document.name).parent.name
            if not label:
                raise WeftError(
                    f"{document.location} is in no folder that names its label",
                    expected="a folder for each label, with a file for each text, or one file with texts and labels",
                )
            self.add("".join(document.lines()).strip(), label, document.location)

    def _read_table(self, table: Table) -> None:
        if not table.rows:
            raise WeftError(f"{table.location} has no examples", expected="texts with labels")
        columns = _columns(table, self.config, self.like)
        for row in table.rows:
            if not is_blank(table, row):
                text = joined_cells(row, columns.text.places)
                self.add(text, _label_cell(row, columns, self.config), location_of(table, row))
        if self.layout is None:
            self.description, self.columns = columns.describe(table), columns.title(table)
            self.layout = ExampleLayout()
            if table.names:
                names = ",".join(table.names[place] for place in columns.text.places)
                self.layout = ExampleLayout(names, table.names[columns.label.places[0]])


_REMOVE = "remove the example, or `data.strict=false`"


def _labelled_table(document: Document, config: ClassifyDataConfig, like: ExampleLayout) -> Table:
    named = is_name(config.text_column) or is_name(config.label_column)
    header = "yes" if named and config.header == "auto" else config.header
    return read_table(document, config.format, header, names=like.names, values=set(like.labels))


def _label_cell(row: Row, columns: _ExampleColumns, config: ClassifyDataConfig) -> str:
    """The label of a row; "" if there is none."""
    name = joined_cells(row, columns.label.places)
    return name.split(config.label_separator)[0].strip() if config.label_separator else name


def _checked_label(name: str, place: str) -> str:
    """The label, which must fit in one column of one line."""
    if "\t" in name or name.splitlines() != [name]:
        raise WeftError(f"{place}: the label {name!r} contains a tab or a line break", expected="a label of one line")
    return name


def _columns(table: Table, config: ClassifyDataConfig, like: ExampleLayout) -> _ExampleColumns:
    """The columns of text and label: as set, as in the training data, by a usual name, or by their values."""
    if table.width < 2:
        raise WeftError(
            f"{table.location} has one column",
            expected="a text and its label in every row",
            hint="`data.format=lines`" if table.format != "columns" else "",
        )
    text, label = choose_columns(
        table,
        Role("text", config.text_column, "data.text_column", like.text, TEXT_NAMES),
        Role("label", config.label_column, "data.label_column", like.label, LABEL_NAMES),
    )
    free = [place for place in range(table.width) if text is None or place not in text.places]
    label = label or _label_by_values(table, like, free)
    return _ExampleColumns(text or longest_column(table, [place for place in free if place not in label.places]), label)


def _label_by_values(table: Table, like: ExampleLayout, free: Sequence[int]) -> ChosenColumns:
    """Of the columns that are free, the one that looks most like labels."""
    columns = {column: [(cells[column] or "").strip() for _, cells in table.rows] for column in free}
    label = min(free, key=lambda column: _unlike_labels(columns[column], like.labels))
    different = len(set(columns[label]) - {""})
    if len(table.rows) >= 20 and different > len(table.rows) / 2 and not like.labels:
        raise WeftError(
            f"no column of {table.location} looks like labels: {column_title(table, label)} has the fewest values, "
            f"{different:,} in {len(table.rows):,} rows",
            expected="a column of few distinct values",
            hint="`data.label_column=NAME`, if it is there, or another `data.format` (tsv, csv, jsonl, lines)",
        )
    if like.labels:
        return ChosenColumns([label], "the labels of the training data")
    reason = f"{different:,} distinct values; `data.label_column=NAME` selects another"
    return ChosenColumns([label], "the only other one" if len(free) == 1 else reason)


def _unlike_labels(values: list[str], labels: Sequence[str]) -> tuple[float, bool, int, int]:
    """How unlike labels the values of a column are: unknown labels, mostly empty, many distinct ones, long ones."""
    known = {*labels, ""}
    strange = sum(value not in known for value in values) if labels else 0
    return strange, values.count("") > len(values) / 2, len(set(values)), sum(map(len, values))
