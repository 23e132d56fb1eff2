"""Reader of labelled texts in TSV, CSV, JSON lines or "label text" lines, with detection of the format."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from weft.errors import WeftError
from weft.text.corpus import Document

# Usual names of the columns, in order of preference.
TEXT_NAMES = (
    "text", "sentence", "review", "content", "body", "comment",
    "message", "document", "tweet", "question", "text_a", "title",
)  # fmt: skip
LABEL_NAMES = (
    "label", "labels", "class", "category", "sentiment", "polarity",
    "target", "intent", "topic", "tag", "rating", "stars",
)  # fmt: skip

SUFFIXES = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
MOST_NAMES = 1000  # of JSON lines: each object has a cell for each
DELIMITERS = "\t;,"  # of CSV, in order of preference: texts contain commas more often than the others
PEEK = 50  # lines from which the format is detected
FASTTEXT = "__label__"

LONGEST_FIELD = 1 << 24  # characters of a line or a cell; longer ones are no text, and would fill the memory
csv.field_size_limit(LONGEST_FIELD)

Row = tuple[Any, list[str | None]]  # line number or what the row is called, and cells; None: it lacks this cell


class Table(NamedTuple):
    """The rows of a file, its format, and the names of its columns."""

    location: str
    format: str  # a name in FORMATS; "columns": of a table of Python, whose type is the location
    names: tuple[str, ...] | None  # of the columns; None: they have no names
    rows: list[Row]

    @property
    def width(self) -> int:
        return len(self.names or (self.rows[0][1] if self.rows else ()))

    @property
    def description(self) -> str:
        """The format in words."""
        if self.format == "columns":
            return f"a table ({self.location})"
        if self.format in ("jsonl", "lines"):  # their columns always have names
            return _IN_WORDS[self.format]
        return f"{_IN_WORDS[self.format]}, {'with a header' if self.names else 'without a header'}"


_IN_WORDS = {
    "tsv": "tab-separated",
    "csv": "CSV",
    "jsonl": "JSON lines",
    "lines": "lines with a label and a text",
}


def location_of(table: Table, row: Row) -> str:
    """The location of a row, as file:line."""
    return f"{table.location}:{row[0]}"


def numbered_lines(document: Document) -> Iterator[tuple[int, str]]:
    """Iterate over (line number, line without its end); lines that the document splits are joined."""
    number, held = 1, ""
    for piece in document.lines():
        held += piece
        if len(held) > LONGEST_FIELD:
            raise WeftError(
                f"{document.location}:{number} has more than {LONGEST_FIELD:,} characters", expected="shorter lines"
            )
        if piece.endswith("\n"):
            yield number, held[:-1]
            number, held = number + 1, ""
    if held:
        yield number, held


def read_table(
    document: Document, format: str, header: str, *, names: Set[str], values: Set[str] = frozenset()
) -> Table:
    """Read the rows of a document.

    Args:
        document: the document.
        format: a name in FORMATS, or "auto".
        header: whether the first row holds column names: "yes", "no" or "auto".
        names: column names that identify a header, besides the usual ones.
        values: cells (labels) that a header cannot contain.
    """
    table = FORMATS[_form(document, values) if format == "auto" else format](document)
    if table.names is not None or not table.rows:
        return table
    first = [cell or "" for cell in table.rows[0][1]]
    if header == "yes" or (header == "auto" and _is_header(first, table.rows[1:], names, values)):
        twice = next((name for name, count in Counter(first).items() if name.strip() and count > 1), None)
        if twice is not None:
            raise WeftError(
                f"{location_of(table, table.rows[0])}: two columns are called {twice!r}",
                expected="different names",
                hint="`data.header=no`, if these are not names",
            )
        return table._replace(names=tuple(first), rows=table.rows[1:])
    return table


def _is_header(first: list[str], rest: list[Row], names: Set[str], values: Set[str]) -> bool:
    """Whether a first row is a header: it has a usual column name, or short cells above a column of labels."""
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
    # A column of few recurring values below a cell that is not one of them.
    if len(rest) >= 10 and any(len(set(column)) <= len(rest) / 5 for column in labels):
        return True
    # With fewer rows the criteria are stricter: single words above, and texts longer than the cell above them.
    texts = any(
        sum(len(cell) > len(name) for cell in column) > len(rest) / 2
        for name, column in zip(cells, columns, strict=True)
    )
    few = any(1 < len(set(column)) <= max(2, len(rest) / 2) for column in labels)
    return texts and few and not any(" " in cell for cell in cells)


def format_by_suffix(document: Document) -> str | None:
    """The format that the suffix of a document's name indicates; None if it is not a known suffix."""
    path = PurePosixPath(document.name.lower())
    return SUFFIXES.get((path.with_suffix("") if path.suffix == ".gz" else path).suffix)


def _form(document: Document, values: Set[str]) -> str:
    """Detect the format of a document from its name, or else from its first lines."""
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
    """The format in which the first line of a document has a column of this name; None if there is none."""
    line, named = next(iter(_peek(document)), ""), format_by_suffix(document)
    for format in (named,) if named else ("jsonl", "tsv", "csv"):
        for cells in _first_cells(line, format):
            if name in cells and (named or len(cells) > 1):
                return format
    return None


def column_names(document: Document) -> list[str]:
    """The names of the columns of a table; [] if a document is no table by its suffix, or by JSON in its first line."""
    line, named = next(iter(_peek(document)), ""), format_by_suffix(document)
    if named is None and not line.lstrip().startswith("{"):
        return []
    cells = _first_cells(line, named or "jsonl")
    return max(cells, key=len, default=[])


def looks_like_table(document: Document) -> bool:
    """Whether a document seems to be a table: by its suffix, or by JSON or a tab in its first line."""
    line = next(iter(_peek(document)), "")
    return format_by_suffix(document) is not None or line.lstrip().startswith("{") or "\t" in line


def _first_cells(line: str, format: str) -> list[list[str]]:
    """The cells of a first line for each possible delimiter of the format."""
    if format == "jsonl":
        try:
            return [list(json.loads(line))]
        except (ValueError, TypeError, RecursionError):
            return []
    return [
        cells
        for delimiter in ("\t" if format == "tsv" else DELIMITERS)
        for cells in csv.reader([line], delimiter=delimiter)
    ]


def _is_csv(lines: list[str], delimiter: str, values: Set[str]) -> bool:
    """Whether a delimiter separates cells, rather than occurring within texts that follow a label.

    It must split all lines into equally many cells, and one of these must hold: cells are quoted; the delimiter occurs
    in a first word, which is then not a label; a column holds known labels only; or few values recur in a column, and
    either the delimiter has no space after it, as it has in texts, or these values are fewer than the first words.
    """
    rows = _split_evenly(lines, delimiter)
    if not rows:
        return False
    if _quoted(lines, delimiter) or any(delimiter in line.split()[0] for line in lines):
        return True
    columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
    if values and any(len(column) > 1 or column[0] in values for column in columns if set(column[1:]) <= values):
        return True
    candidates = [part for column in columns for part in (column, column[1:])]  # the first row may be a header
    few = [part for part in candidates if 1 < len(set(part)) <= max(2, len(rows) / 2)]
    firsts = [line.split()[0] for line in lines]
    if few and not any(f"{delimiter} " in line for line in lines):
        return any(map(_recur, few)) or not _recur(firsts)
    return any(len(set(part)) < len(set(firsts[1:])) for part in few)


def _recur(values: list[str]) -> bool:
    return 1 < len(set(values)) < len(values)


def _quoted(lines: list[str], delimiter: str) -> bool:
    """Whether cells are quoted: quotes protect a delimiter, or occur in every row."""
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


def _split_evenly(lines: list[str], delimiter: str) -> list[list[str]]:
    """The cells of the lines if the delimiter splits all of them into equally many, at least two; else []."""
    rows = list(csv.reader(lines, delimiter=delimiter))
    if len(lines) == PEEK:
        rows.pop()  # it may be incomplete
    widths = {len(cells) for cells in rows}
    return rows if len(widths) == 1 and widths != {1} else []


def separated_rows(document: Document, format: str) -> Iterator[Row]:
    """The rows of a TSV or CSV document one by one, with the number of the line where each begins.

    All have equally many cells. A blank line is no row; one of empty cells is, except above all.
    """
    if format == "tsv":
        rows = ((number, line.split("\t") if line else []) for number, line in numbered_lines(document))
        yield from _of_one_width(document.location, rows, "a text must not contain a tab")
        return
    lines = _peek(document)
    delimiter = next((one for one in DELIMITERS if _split_evenly(lines, one)), ",")
    numbered = numbered_lines(document)
    reader = csv.reader((f"{line}\n" for _, line in numbered), delimiter=delimiter, strict=True)

    def parsed() -> Iterator[tuple[int, list[str]]]:
        begin = 1
        for cells in reader:
            yield begin, cells
            begin = reader.line_num + 1

    try:
        yield from _of_one_width(document.location, parsed(), "a text with a comma must be quoted")
    except csv.Error as error:
        raise WeftError(
            f"{document.location}:{reader.line_num}: {error}",
            expected='CSV: a text with commas, quotes or line ends in "quotes", and quotes in it doubled',
            hint="`data.format=tsv` or `data.format=lines`, if it is not CSV",
        ) from error


def _of_one_width(location: str, rows: Iterator[tuple[int, list[str]]], why: str) -> Iterator[Row]:
    width = first = 0
    for number, cells in rows:
        whole = not width or len(cells) == width
        if not any(cell.strip() for cell in cells) and not (width and whole):
            continue
        if not whole:
            raise WeftError(f"{location}:{number} has {len(cells)} columns", expected=f"{width}, as in line {first}",
                            hint=why)  # fmt: skip
        width, first = width or len(cells), first or number
        yield number, [*cells]


def _separated(format: str) -> Callable[[Document], Table]:
    return lambda document: Table(document.location, format, None, list(separated_rows(document, format)))


def json_objects(document: Document) -> list[tuple[int, dict[str, Any]]]:
    """The objects of JSON lines, with their line numbers."""
    objects = []
    for number, line in numbered_lines(document):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if "\\u" in line:  # only an escape can give half of a surrogate pair
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise _not_an_object(document, number, f"is not valid JSON ({error})", line) from error
        if not isinstance(value, dict):
            raise _not_an_object(document, number, f"is a JSON {type(value).__name__}", line)
        objects.append((number, flat_record(value)))
    return objects


def _jsonl(document: Document) -> Table:
    objects = json_objects(document)
    names = tuple(dict.fromkeys(name for _, value in objects for name in value))
    if len(names) > MOST_NAMES:
        raise WeftError(
            f"{document.location} has {len(names):,} different keys", expected=f"at most {MOST_NAMES:,}, as columns"
        )
    return Table(
        document.location,
        "jsonl",
        names,
        [(number, [_plain(value.get(name)) for name in names]) for number, value in objects],
    )


def flat_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose dicts are a value for each of their keys.

    >>> flat_record({"id": 1, "translation": {"en": "Go.", "fr": "Va !"}})
    {'id': 1, 'translation.en': 'Go.', 'translation.fr': 'Va !'}
    """
    return {
        name if key is None else f"{name}.{key}": value
        for name, part in record.items()
        for key, value in (part.items() if isinstance(part, dict) else ((None, part),))
    }


def _not_an_object(document: Document, number: int, what: str, line: str) -> WeftError:
    array = number == 1 and line.lstrip().startswith("[")
    return WeftError(
        f"{document.location}:{number} {what}",
        expected="JSON lines, one object per line" + (", not a single array" if array else ""),
        hint=f"jq -c '.[]' {document.location} > lines.jsonl" if array else "",
    )


def _plain(value: object) -> str | None:
    """A JSON value as a cell; None if it is neither a string, a number nor a boolean."""
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


FORMATS: dict[str, Callable[[Document], Table]] = {
    "tsv": _separated("tsv"),
    "csv": _separated("csv"),
    "jsonl": _jsonl,
    "lines": _lines,
}
