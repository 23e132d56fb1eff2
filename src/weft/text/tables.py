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
    location: str
    format: str  # a name of FORMATS
    names: tuple[str, ...] | None  # of the columns
    rows: list[Row]

    @property
    def width(self) -> int:
        return len(self.names) if self.names else len(self.rows[0][1])

    @property
    def about(self) -> str:
        """How it was read, in words."""
        if self.format in ("jsonl", "lines"):  # their columns have names of themselves
            return _IN_WORDS[self.format]
        return f"{_IN_WORDS[self.format]}, {'names of columns in its first row' if self.names else 'no row of names'}"


_IN_WORDS = {
    "tsv": "tab-separated",
    "csv": "CSV",
    "jsonl": "JSON lines",
    "lines": "lines, a label and its text in each",
}


def location_of(table: Table, row: Row) -> str:
    return f"{table.location}:{row[0]}"


def numbered_lines(document: Document) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without line ends; a line that comes in pieces is put together."""
    number, held = 1, ""
    for piece in document.lines():
        held += piece
        if piece.endswith("\n"):
            yield number, held[:-1]
            number, held = number + 1, ""
    if held:
        yield number, held


def read_table(
    document: Document, format: str, header: str, *, names: Set[str], values: Set[str] = frozenset()
) -> Table:
    """The rows of a document. `format` and `header` may be "auto".

    `names` are those that a header is known to have, beside the usual ones, `values` cells that no header has.
    """
    table = FORMATS[_form(document, values) if format == "auto" else format](document)
    if table.names is not None or not table.rows:
        return table
    first = [cell or "" for cell in table.rows[0][1]]
    if header == "yes" or (header == "auto" and _is_header(first, table.rows[1:], names, values)):
        twice = next((name for name in first if first.count(name) > 1), None)
        if twice is not None:
            raise WeftError(
                f"{location_of(table, table.rows[0])}: two columns are called {twice!r}",
                expected="different names",
                hint="--set data.header=no, if these are no names",
            )
        return table._replace(names=tuple(first), rows=table.rows[1:])
    return table


def _is_header(first: list[str], rest: list[Row], names: Set[str], values: Set[str]) -> bool:
    """Whether a first row names the columns: a usual name that is no value, or short cells above a column of labels."""
    cells = [cell.strip() for cell in first]
    if any(cell in values for cell in cells):
        return False
    columns = [[row[1][index] or "" for row in rest] for index in range(len(cells))]
    usual = {*TEXT_NAMES, *LABEL_NAMES, *(name.lower() for name in names)}
    if any(cell.lower() in usual and first[index] not in columns[index] for index, cell in enumerate(cells)):
        return True
    if values or not rest or not all(re.fullmatch(r"[^\W\d]\w*([ .-]\w+){0,2}", cell) for cell in cells):
        return False
    labels = [column for cell, column in zip(first, columns, strict=True) if cell not in column]
    # A few values that recur all the time, and what stands above them is none of them.
    if len(rest) >= 10 and any(len(set(column)) <= len(rest) / 5 for column in labels):
        return True
    # Of fewer rows more is asked: single words, and texts that are longer than what stands above them.
    texts = any(
        sum(len(cell) > len(name) for cell in column) > len(rest) / 2
        for name, column in zip(cells, columns, strict=True)
    )
    few = any(1 < len(set(column)) <= max(2, len(rest) / 2) for column in labels)
    return texts and few and not any(" " in cell for cell in cells)


def format_by_suffix(document: Document) -> str | None:
    """The format that the end of a document's name tells, if it does."""
    path = PurePosixPath(document.name.lower())
    return SUFFIXES.get((path.with_suffix("") if path.suffix == ".gz" else path).suffix)


def _form(document: Document, values: Set[str]) -> str:
    """The format of a document, by its name or else by its first lines."""
    named = format_by_suffix(document)
    if named is not None:
        return named
    lines = _peek(document)
    if all(line.lstrip().startswith("{") for line in lines):
        return "jsonl"
    if all("\t" in line for line in lines):
        return "tsv"
    firsts = {line.split()[0] for line in lines}
    if firsts <= values or all(first.startswith(FASTTEXT) for first in firsts):
        return "lines"
    return "csv" if any(_is_csv(lines, delimiter, values) for delimiter in DELIMITERS) else "lines"


def format_with_column(document: Document, name: str) -> str | None:
    """The format in which a document is a table with a column of that name, if its first line says so."""
    line, named = next(iter(_peek(document)), ""), format_by_suffix(document)
    for format in (named,) if named else ("jsonl", "tsv", "csv"):
        for cells in _first_cells(line, format):
            if name in cells and (named or len(cells) > 1):
                return format
    return None


def looks_like_table(document: Document) -> bool:
    """Whether a document looks like more than lines of text: its name says so, or JSON or a tab in its first line."""
    line = next(iter(_peek(document)), "")
    return format_by_suffix(document) is not None or line.lstrip().startswith("{") or "\t" in line


def _first_cells(line: str, format: str) -> list[list[str]]:
    """The cells of a first line, in every way that the format may have cut it."""
    if format == "jsonl":
        try:
            return [list(json.loads(line))]
        except (ValueError, TypeError):
            return []
    return [
        cells
        for delimiter in ("\t" if format == "tsv" else DELIMITERS)
        for cells in csv.reader([line], delimiter=delimiter)
    ]


def _is_csv(lines: list[str], delimiter: str, values: Set[str]) -> bool:
    """Whether a delimiter cuts lines into cells, or only stands in texts behind a label.

    It cuts all of them into equally many cells, and one of these holds: quotes are round the cells; the delimiter is in
    a first word, which so is no label; one of the columns has nothing but known labels; or a few values recur in one of
    them, and the delimiter has no space after it, as it has in texts, or these values are fewer than the first words.
    """
    rows = _divided(lines, delimiter)
    if not rows:
        return False
    if _quoted(lines, delimiter) or any(delimiter in line.split()[0] for line in lines):
        return True
    columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
    if values and any(len(column) > 1 or column[0] in values for column in columns if set(column[1:]) <= values):
        return True
    candidates = [part for column in columns for part in (column, column[1:])]  # the first row may be names
    few = [part for part in candidates if 1 < len(set(part)) <= max(2, len(rows) / 2)]
    firsts = [line.split()[0] for line in lines]
    if few and not any(f"{delimiter} " in line for line in lines):
        return any(map(_recur, few)) or not _recur(firsts)
    return any(len(set(part)) < len(set(firsts[1:])) for part in few)


def _recur(values: list[str]) -> bool:
    return 1 < len(set(values)) < len(values)


def _quoted(lines: list[str], delimiter: str) -> bool:
    """Whether quotes are round cells: they keep a delimiter from cutting, or there are some in every row."""
    try:
        rows = list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    begins = sum(f'{delimiter}"' in f"{delimiter}{line}" for line in lines)
    return begins > 0 and (
        begins >= len(rows) or sum(line.count(delimiter) for line in lines) > sum(len(row) - 1 for row in rows)
    )


def _peek(document: Document) -> list[str]:
    return list(islice((line for _, line in numbered_lines(document) if line.strip()), PEEK))


def _divided(lines: list[str], delimiter: str) -> list[list[str]]:
    """The cells of the lines if the delimiter cuts all of them into equally many, two or more; else none."""
    rows = list(csv.reader(lines, delimiter=delimiter))
    if len(lines) == PEEK:
        rows.pop()  # it may have been cut off
    widths = {len(cells) for cells in rows}
    return rows if len(widths) == 1 and widths != {1} else []


def _tsv(document: Document) -> Table:
    rows = ((number, line.split("\t")) for number, line in numbered_lines(document) if line.strip())
    return Table(document.location, "tsv", None, _even(document.location, rows, "a text must have no tab in it"))


def _csv(document: Document) -> Table:
    lines = _peek(document)
    delimiter = next((one for one in DELIMITERS if _divided(lines, one)), ",")
    numbered = numbered_lines(document)
    reader = csv.reader((f"{line}\n" for _, line in numbered), delimiter=delimiter, strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        begin = 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield begin, cells
            begin = reader.line_num + 1

    try:
        return Table(
            document.location,
            "csv",
            None,
            _even(document.location, rows(), "a comma inside a text needs quotes around it"),
        )
    except csv.Error as error:
        raise WeftError(
            f"{document.location}:{reader.line_num}: {error}",
            expected='CSV: a text with commas, quotes or line ends in "quotes", and quotes in it doubled',
            hint="--set data.format=tsv or lines, if it is none",
        ) from error


def _even(location: str, rows: Iterator[tuple[int, list[str]]], why: str) -> list[Row]:
    """The rows, all as wide as the first."""
    found: list[Row] = []
    for number, cells in rows:
        if found and len(cells) != len(found[0][1]):
            raise WeftError(
                f"{location}:{number} has {len(cells)} columns",
                expected=f"{len(found[0][1])}, as in line {found[0][0]}",
                hint=why,
            )
        found.append((number, [*cells]))
    return found


def _jsonl(document: Document) -> Table:
    objects = []
    for number, line in numbered_lines(document):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise _no_object(document, number, f"is no JSON of its own ({error})", line) from error
        if not isinstance(value, dict):
            raise _no_object(document, number, f"is a JSON {type(value).__name__}", line)
        objects.append((number, value))
    names = tuple(dict.fromkeys(name for _, value in objects for name in value))
    return Table(
        document.location,
        "jsonl",
        names,
        [(number, [_plain(value.get(name)) for name in names]) for number, value in objects],
    )


def _no_object(document: Document, number: int, what: str, line: str) -> WeftError:
    array = number == 1 and line.lstrip().startswith("[")
    return WeftError(
        f"{document.location}:{number} {what}",
        expected="JSON lines, an object in every line" + (", and not one array of all" if array else ""),
        hint=f"jq -c '.[]' {document.location} > lines.jsonl" if array else "",
    )


def _plain(value: object) -> str | None:
    """A JSON value as a cell; what is neither text, number, true nor false is none."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def _lines(document: Document) -> Table:
    rows: list[Row] = []
    for number, line in numbered_lines(document):
        if line.strip():
            label, *text = line.strip().split(maxsplit=1)
            rows.append((number, [label.removeprefix(FASTTEXT), "".join(text)]))
    return Table(document.location, "lines", ("label", "text"), rows)


FORMATS: dict[str, Callable[[Document], Table]] = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl, "lines": _lines}
