"""Labelled texts: read from TSV, CSV, JSON lines, "label text" lines or folders; encoded and stored in a run.

What the settings leave open is inferred: the format from the file's name and its first lines, a header from its names,
the label column from its few distinct values. Errors name file and line.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

import numpy as np

from weft.data.buckets import Ragged, hold_out, save_columns
from weft.errors import WeftError, unknown_name
from weft.tasks.classify.config import ClassifyConfig, ClassifyDataConfig
from weft.tasks.classify.example import Example, grammar_examples, ordered_labels
from weft.tasks.fine_tuning import warn_new_tokens
from weft.tasks.plausibility import check_labelled
from weft.tasks.task import StoreData
from weft.text.arguments import short_repr
from weft.text.codec import Codec, build_codec
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
from weft.text.word_vectors import WordVectors, read_word_vectors
from weft.training.run import DATA_FOLDER

GRAMMAR_EXAMPLES = 5000
TRAIN_EXAMPLES, DEV_EXAMPLES = f"{DATA_FOLDER}/train.npz", f"{DATA_FOLDER}/dev.npz"
WORD_VECTORS = f"{DATA_FOLDER}/vectors.npz"

_Tokens = TypeVar("_Tokens", list[int], list[str])


class ExampleLayout(NamedTuple):
    """The columns and labels of the training data, so that other files are read in the same way."""

    text: str = ""  # names of the columns, if they have names
    label: str = ""
    labels: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        return {name for name in (self.text, self.label) if name}


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
        return Examples(_from_folders(str(source)), ExampleLayout(), "a folder for each label")
    documents = list(open_data(str(source)).documents())
    parts = [_from_document(document, config, like or ExampleLayout()) for document in documents]
    rows = [row for part in parts for row in part.rows]
    if not rows:
        raise WeftError(f"{source} has no examples", expected="texts with labels")
    return Examples(rows, *parts[0][1:])


def read_texts(source: str, column: int | str | None, like: ExampleLayout | None = None) -> Texts:
    """Reads texts without labels: the lines of a file or of `-`, or a column of a table.

    Without `column`, a table that has the text column of `like` is read by that column.
    """
    texts: list[str] = []
    notes: list[str] = []
    known = like.text if like else ""
    for document in open_data(source).documents() if source in DATASETS else open_documents(source):
        form = "auto" if column is not None else format_with_column(document, known) if known else None
        if form is not None:
            wanted = known if column is None else column
            table = read_table(document, form, "yes" if _is_name(wanted) else "auto", names=set())
            place = _find(table, wanted, "`column`")
            texts += [_cell(table, row, place) for row in table.rows]
            if column is None:
                notes.append(f"{document.location}: the texts are its column {known!r}, as in the training data")
        else:
            texts += [line for _, line in numbered_lines(document)]
            if looks_like_table(document):
                why = f"there is no column {known!r}, as in the training data" if known else "no column is given"
                notes.append(f"{document.location} is read as one text per line: {why}; `column` reads a column")
    return Texts(texts, notes)


def open_examples(
    source: ExampleSource,
    dev: ExampleSource | None,
    config: ClassifyConfig,
    vocabulary: Mapping[str, Any] | None = None,
) -> StoreData:
    """Reads and encodes examples to train on and to hold out; returns what stores them in a run.

    `vocabulary` has the tokens, labels and columns of a run that is fine-tuned.
    """
    like = None
    if vocabulary is not None:
        columns = vocabulary["columns"]
        like = ExampleLayout(columns["text"], columns["label"], tuple(vocabulary["labels"]))
    examples = read_labelled(source, config.data, like)
    rows = examples.rows
    if config.text.limit and config.text.limit < len(rows):
        rows = random.Random(config.train.seed).sample(rows, config.text.limit)
    labels = ordered_labels(row.label for row in rows) if like is None else like.labels
    check_labels(rows, labels)
    if len(labels) < 2:
        raise WeftError(f"all {len(rows):,} examples have the label {labels[0]!r}", expected="two labels or more")
    read = f"{rows[0].place} is read as the label {rows[0].label!r} of the text {short_repr(rows[0].text)}"
    check_labelled([row.label for row in rows], read, chosen=config.data.label_column != "")
    layout = examples.layout._replace(labels=labels)
    description = examples.description
    if dev is None:
        train, held = _split(rows, config)
    else:
        given = read_labelled(dev, config.data, layout)
        train, held = rows, given.rows
        check_labels(held, labels)
        description += f"; held out: {given.description}" if given.description != description else ""
    texts = [row.text for row in train]
    codec = build_codec(config.text, texts) if vocabulary is None else Codec.from_json(vocabulary)
    if vocabulary is not None:
        warn_new_tokens(Counter(token for text in texts for token in codec.unknown(text)))
    columns = {TRAIN_EXAMPLES: _encode(train, codec, labels), DEV_EXAMPLES: _encode(held, codec, labels)}
    long = sum(len(ids) > config.data.max_tokens for part in columns.values() for ids in part["text"])
    description += f"; {long:,} texts cut to {config.data.max_tokens:,} tokens" if long else ""
    vectors = _vectors(codec, config) if vocabulary is None else None

    def store(data: Path) -> Mapping[str, Any]:
        for name, part in columns.items():
            if part["text"]:
                texts = [cut_middle(ids, config.data.max_tokens) for ids in part["text"]]
                save_columns(
                    data.parent / name, {"text": Ragged.from_rows(texts), "label": Ragged.from_rows(part["label"])}
                )
        if vectors is not None:
            with (data.parent / WORD_VECTORS).open("wb") as file:
                np.savez(file, **vectors._asdict())
        counts = Counter(row.label for row in train)
        return {
            **codec.to_json(),
            "labels": {label: counts[label] for label in labels},
            "columns": {"text": layout.text, "label": layout.label},
            "description": description,
        }

    return store


def _split(rows: list[Example], config: ClassifyConfig) -> tuple[list[Example], list[Example]]:
    """Splits examples into training and held-out ones. A label that would only be held out stays in training."""
    train, held = hold_out([row.text for row in rows], config.text.holdout, config.train.seed)
    known = {rows[number].label for number in train}
    back = {rows[number].text for number in held if rows[number].label not in known}
    train += [number for number in held if rows[number].text in back]
    return [rows[number] for number in train], [rows[number] for number in held if rows[number].text not in back]


def check_labels(rows: Sequence[Example], labels: Sequence[str]) -> None:
    """Refuses examples with a label that the training data does not have."""
    for row in rows:
        if row.label not in labels:
            known = ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
            raise WeftError(
                f"{row.place} has the label {row.label!r}, which is not in the training data",
                expected=f"one of: {known}",
            )


def _encode(rows: Sequence[Example], codec: Codec, labels: Sequence[str]) -> dict[str, list[list[int]]]:
    places = {label: place for place, label in enumerate(labels)}
    texts = [codec.encode(row.text) for row in rows]
    for row, ids in zip(rows, texts, strict=True):
        if not ids:
            what = f"the text {row.text!r} has no tokens after normalization" if row.text else "the text is empty"
            raise WeftError(f"{row.place}: {what}", expected="a text for every label", hint="remove the example")
    return {"text": texts, "label": [[places[row.label]] for row in rows]}


def cut_middle(tokens: _Tokens, limit: int) -> _Tokens:
    """Keeps at most `limit` tokens: of a longer text half from its beginning and half from its end."""
    return tokens if len(tokens) <= limit else tokens[: (limit + 1) // 2] + tokens[len(tokens) - limit // 2 :]


def _vectors(codec: Codec, config: ClassifyConfig) -> WordVectors | None:
    if not config.model.word_vectors:
        return None
    found = read_word_vectors(config.model.word_vectors, codec.vocabulary)
    if found.values.shape[1] != config.model.embedding_dim:
        raise WeftError(
            f"model.embedding_dim is {config.model.embedding_dim}, and the vectors of {config.model.word_vectors} have "
            f"{found.values.shape[1]} dimensions",
            expected="the two to be equal",
            hint=f"`model.embedding_dim={found.values.shape[1]}`",
        )
    return found


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


def _from_folders(source: str) -> list[Example]:
    found = []
    for entry in entries(source):
        document = Document(*entry)
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
    text, label = _columns(table, config, like)
    found = []
    for row in table.rows:
        name = _cell(table, row, label).strip()
        if not name:
            raise WeftError(f"{location_of(table, row)}: the label is empty", expected="a label for every text")
        place = location_of(table, row)
        found.append(Example(_cell(table, row, text).strip(), _label(name, place), place))
    layout = ExampleLayout(table.names[text], table.names[label]) if table.names else ExampleLayout()
    description = f"read as {table.description}: text from {_called(table, text)}, label from {_called(table, label)}"
    return Examples(found, layout, description)


def _columns(table: Table, config: ClassifyDataConfig, like: ExampleLayout) -> tuple[int, int]:
    """The columns of text and label: as set, as in the training data, by a usual name, or by their values."""
    width = table.width
    if width < 2:
        raise WeftError(
            f"{table.location} has one column",
            expected="a text and its label in every row",
            hint="`data.format=lines`",
        )
    text = _find(table, config.text_column, "data.text_column") if config.text_column != "" else None
    label = _find(table, config.label_column, "data.label_column") if config.label_column != "" else None
    if text is not None and text == label:
        raise WeftError(f"text and label are both {_called(table, text)} of {table.location}", expected="two columns")
    text = _named(table, [like.text, *TEXT_NAMES], but=label) if text is None else text
    label = _named(table, [like.label, *LABEL_NAMES], but=text) if label is None else label
    free = [column for column in range(width) if column not in (text, label)]
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
    if text is None:
        text = max(free, key=lambda column: sum(map(len, columns[column])))
    return text, label


def _unlike_labels(values: list[str], labels: Sequence[str]) -> tuple[float, int, int]:
    """How unlike labels the values of a column are: unknown labels, many distinct ones, long ones."""
    known = set(labels)
    strange = sum(value.strip() not in known for value in values) if known else 0
    return strange, len(set(values)), sum(map(len, values))


def _named(table: Table, names: Sequence[str], *, but: int | None) -> int | None:
    lowered = [name.strip().lower() for name in table.names or ()]
    wanted = [name.lower() for name in names if name.lower() in lowered]
    return next((lowered.index(name) for name in wanted if lowered.index(name) != but), None)


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
    return isinstance(column, str) and column != "" and not column.isdecimal()


def _cell(table: Table, row: tuple[int, list[str | None]], column: int) -> str:
    value = row[1][column]
    if value is None:
        raise WeftError(
            f"{location_of(table, row)} has no {_called(table, column)}", expected="a text and its label in every row"
        )
    return value


def _called(table: Table, column: int) -> str:
    return f"column {table.names[column]!r}" if table.names else f"column {column + 1}"
