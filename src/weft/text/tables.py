"""Rows of cells, from a file of tab-separated, comma-separated, JSON or "label text" lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Set
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

from weft.errors import WeftError
from weft.text.corpus import Document

# What people call such columns; of several the first wins.
TEXT_NAMES = (
    "text", "sentence", "review", "content", "body", "comment",
    "message", "document", "tweet", "question", "text_a", "title",
)  # fmt: skip
LABEL_NAMES = (
    "label", "labels", "class", "category", "sentiment", "polarity",
    "target", "intent", "topic", "tag", "rating", "stars",
)  # fmt: skip

SUFFIXES = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
DELIMITERS = "\t;,"  # of CSV; a comma can stand in every text, the others hardly
PEEK = 50  # lines by which a format is told
FASTTEXT = "__label__"

csv.field_size_limit(1 << 30)  # a text may well be longer than the usual limit

Row = tuple[int, list[str | None]]  # the number of its first line, and its cells; None: the row has no such cell


class Table(NamedTuple):
    place: str
    names: tuple[str, ...] | None  # of the columns
    rows: list[Row]

    @property
    def width(self) -> int:
        return len(self.names) if self.names else len(self.rows[0][1])


def place_of(table: Table, row: Row) -> str:
    return f"{table.place}:{row[0]}"


def full_lines(document: Document) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without line ends; a line that comes in pieces is put together."""
    number, held = 1, ""
    for piece in document.lines():
        held += piece
        if piece.endswith("\n"):
            yield number, held[:-1]
            number, held = number + 1, ""
    if held:
        yield number, held


def read_table(document: Document, form: str, header: str, *, names: Set[str], values: Set[str] = frozenset()) -> Table:
    """The rows of a document. `form` and `header` may be "auto".

    `names` are those that a header is known to have, beside the usual ones, `values` cells that no header has.
    """
    table = FORMATS[_form(document, values) if form == "auto" else form](document)
    if table.names is not None or not table.rows:
        return table
    first = [cell or "" for cell in table.rows[0][1]]
    if header == "yes" or (header == "auto" and _is_header(first, table.rows[1:], names, values)):
        twice = next((name for name in first if first.count(name) > 1), None)
        if twice is not None:
            raise WeftError(
                f"{place_of(table, table.rows[0])}: two columns are called {twice!r}",
                expected="different names",
                hint="--set data.header=no, if these are no names",
            )
        return Table(table.place, tuple(first), table.rows[1:])
    return table


def _is_header(first: list[str], rest: list[Row], names: Set[str], values: Set[str]) -> bool:
    """Whether a first row names the columns: a usual name that is no value, or short cells above a column of labels."""
    cells = [cell.strip() for cell in first]
    if any(cell in values for cell in cells):
        return False
    columns = [{row[1][place] for row in rest} for place in range(len(cells))]
    usual = {*TEXT_NAMES, *LABEL_NAMES, *(name.lower() for name in names)}
    if any(cell.lower() in usual and first[place] not in columns[place] for place, cell in enumerate(cells)):
        return True
    if len(rest) < 10 or values or not all(re.fullmatch(r"[^\W\d]\w*([ .-]\w+){0,2}", cell) for cell in cells):
        return False
    # A few values that recur all the time, and what stands above them is none of them.
    return any(len(column) <= len(rest) / 5 and first[place] not in column for place, column in enumerate(columns))


def _form(document: Document, values: Set[str]) -> str:
    """The format of a document, by its name or else by its first lines."""
    path = PurePosixPath(document.name.lower())
    path = path.with_suffix("") if path.suffix == ".gz" else path
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    lines = _peek(document)
    if all(line.lstrip().startswith("{") for line in lines):
        return "jsonl"
    if all("\t" in line for line in lines):
        return "tsv"
    firsts = {line.split()[0] for line in lines}
    if firsts <= values or all(first.startswith(FASTTEXT) for first in firsts):
        return "lines"
    return "csv" if any(_has_labels(_divided(lines, delimiter)) for delimiter in DELIMITERS) else "lines"


def _peek(document: Document) -> list[str]:
    return list(islice((line for _, line in full_lines(document) if line.strip()), PEEK))


def _divided(lines: list[str], delimiter: str) -> list[list[str]]:
    """The cells of the lines if the delimiter cuts all of them into equally many, two or more; else none."""
    rows = list(csv.reader(lines, delimiter=delimiter))
    if len(lines) == PEEK:
        rows.pop()  # it may have been cut off
    widths = {len(cells) for cells in rows}
    return rows if len(widths) == 1 and widths != {1} else []


def _has_labels(rows: list[list[str]]) -> bool:
    """Whether a few values recur in one of the columns; the first row may be names."""
    different = [len(set(column[1:])) for column in zip(*rows, strict=True)]
    return any(1 < count <= max(2, len(rows) / 2) for count in different)


def _tsv(document: Document) -> Table:
    rows = ((number, line.split("\t")) for number, line in full_lines(document) if line.strip())
    return Table(document.place, None, _even(document.place, rows, "a text must have no tab in it"))


def _csv(document: Document) -> Table:
    lines = _peek(document)
    delimiter = next((one for one in DELIMITERS if _divided(lines, one)), ",")
    numbered = full_lines(document)
    reader = csv.reader((f"{line}\n" for _, line in numbered), delimiter=delimiter, strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        begin = 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield begin, cells
            begin = reader.line_num + 1

    try:
        return Table(
            document.place, None, _even(document.place, rows(), "a comma inside a text needs quotes around it")
        )
    except csv.Error as error:
        raise WeftError(
            f"{document.place}:{reader.line_num}: {error}",
            expected='CSV: a text with commas, quotes or line ends in "quotes", and quotes in it doubled',
            hint="--set data.format=tsv or lines, if it is none",
        ) from error


def _even(place: str, rows: Iterator[tuple[int, list[str]]], why: str) -> list[Row]:
    """The rows, all as wide as the first."""
    found: list[Row] = []
    for number, cells in rows:
        if found and len(cells) != len(found[0][1]):
            raise WeftError(
                f"{place}:{number} has {len(cells)} columns",
                expected=f"{len(found[0][1])}, as in line {found[0][0]}",
                hint=why,
            )
        found.append((number, [*cells]))
    return found


def _jsonl(document: Document) -> Table:
    objects = []
    for number, line in full_lines(document):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise WeftError(f"{document.place}:{number}: {error}", expected="a JSON object in every line") from error
        if not isinstance(value, dict):
            raise WeftError(
                f"{document.place}:{number} is a JSON {type(value).__name__}", expected="a JSON object in every line"
            )
        objects.append((number, value))
    names = tuple(dict.fromkeys(name for _, value in objects for name in value))
    return Table(
        document.place, names, [(number, [_plain(value.get(name)) for name in names]) for number, value in objects]
    )


def _plain(value: object) -> str | None:
    """A JSON value as a cell; what is neither text, number, true nor false is none."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def _lines(document: Document) -> Table:
    rows: list[Row] = []
    for number, line in full_lines(document):
        if line.strip():
            label, *text = line.strip().split(maxsplit=1)
            rows.append((number, [label.removeprefix(FASTTEXT), "".join(text)]))
    return Table(document.place, ("label", "text"), rows)


FORMATS: dict[str, Callable[[Document], Table]] = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl, "lines": _lines}
