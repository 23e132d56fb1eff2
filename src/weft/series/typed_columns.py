"""Tables as columns of numbers, of times and of names: files are read in blocks of rows, DataFrames by column.

A cell is held as a number or as the code of a name, never as a text of its own, so that a file of millions of rows
takes little memory. Which rows are at fault is known by line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.data.column import Array, IntArray
from weft.errors import WeftError, unknown_name
from weft.series.time_series import LARGEST_VALUE
from weft.series.times import COUNTER_PATTERN, TimeFormat
from weft.text.corpus import Document
from weft.text.dataframes import from_python
from weft.text.sources import check_expansion
from weft.text.tables import PEEK, Row, format_by_suffix, json_objects, numbered_lines, separated_rows

MISSING_CELLS = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "-", ".", "nat", "<na>"))
_BLOCK = 1 << 16  # rows
BYTES_OF_CELL = 8  # of a column of numbers
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?|[+-]?\d+(\.\d+)?")


class MissingColumnError(WeftError):
    """A table has no column of a name. `role` is what it was to be: "id", "target"."""

    def __init__(self, given: str, *, expected: str, hint: str, role: str) -> None:
        super().__init__(given, expected=expected, hint=hint)
        self.role = role


class Names(NamedTuple):
    """A column of texts: the code (N,) of each row, -1 where it is empty, and what the codes stand for."""

    codes: IntArray
    values: list[str]


@dataclass(frozen=True)
class TypedColumns:
    """The columns of a table: float64 with NaN where a cell is empty, datetime64[us], or `Names`.

    Attributes:
        location: the file, or the type of a DataFrame.
        description: the format in words.
        names: of the columns; their numbers from 1 where they have none.
        columns: the columns.
        lines: the line of each row of a file, a list; of other tables the numbers of the rows from 0.
        zones: the time zones of columns of times.
        texts: by column of numbers, a row with something else, and its cell.
    """

    location: str
    description: str
    names: tuple[str, ...]
    columns: tuple[Array | Names, ...]
    lines: Sequence[Any]
    zones: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        first = self.columns[0] if self.columns else ()
        return len(first.codes if isinstance(first, Names) else first)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @property
    def is_file(self) -> bool:
        return isinstance(self.lines, list)

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.location}:{self.lines[row]}" if self.is_file else f"{self.location}, {self.line(row)}"

    def line(self, row: int) -> str:
        """Where a row stands within its file."""
        return f"{'line' if self.is_file else 'row'} {self.lines[row]}"

    def check(self, name: str, setting: str) -> str:
        """The name of a column, by its name or number.

        Raises:
            WeftError: there is none.
        """
        if name in self._places:
            return name
        error = unknown_name(f"{self.location}: {setting}: column", name, self.names, f"`{setting}={{}}`")
        raise MissingColumnError(error.given, expected=error.expected, hint=error.hint, role=setting)

    def __getitem__(self, name: str) -> Array | Names:
        return self.columns[self._places[name]]

    def is_text(self, name: str) -> bool:
        return isinstance(self[name], Names)

    def is_time(self, name: str) -> bool:
        column = self[name]
        return not isinstance(column, Names) and column.dtype.kind == "M"

    def numbers(self, name: str, what: str) -> Array:
        """A column of numbers.

        Raises:
            WeftError: a cell is something else, infinite or too large.
        """
        column = self[name]
        if isinstance(column, Names):
            parsed = [_number(value) for value in column.values]
            bad = next((code for code, number in enumerate(parsed) if number is None), None)
            if bad is None:  # numbers that were read as names, since the column has the name of an id
                table = np.array([*(float(number or 0) for number in parsed), np.nan])
                return self._finite(name, table[column.codes])
            row = int(np.argmax(column.codes == bad))
            raise self._no_number(name, row, column.values[bad], what)
        if column.dtype.kind == "M":
            raise WeftError(f"{self.location}: the {what} column {name!r} has times", expected="numbers")
        if name in self.texts:
            raise self._no_number(name, *self.texts[name], what)
        return self._finite(name, column)

    def _no_number(self, name: str, row: int, cell: str, what: str) -> WeftError:
        return WeftError(
            f"{self.place(row)}: the {what} column {name!r} has {cell[:40]!r}",
            expected="a number, or an empty cell where it is missing",
        )

    def _finite(self, name: str, column: Array) -> Array:
        beyond = np.abs(column) > LARGEST_VALUE
        if beyond.any():
            row = int(np.argmax(beyond))
            size = "infinite" if np.isinf(column[row]) else f"{column[row]:g}"
            raise WeftError(
                f"{self.place(row)}: column {name!r} is {size} ({beyond.sum():,} values are too large)",
                expected=f"numbers up to {LARGEST_VALUE:g}, or empty cells where they are missing",
            )
        return column

    def categories(self, name: str) -> Names:
        """A column as names, whatever it holds."""
        column = self[name]
        if isinstance(column, Names):
            return column
        if column.dtype.kind == "M":
            different, codes = np.unique(column, return_inverse=True)
            return Names(codes, [str(value) for value in different])
        missing = np.isnan(column)
        different, codes = np.unique(np.where(missing, 0.0, column), return_inverse=True)
        texts = [str(int(value)) if float(value).is_integer() else str(value) for value in different.tolist()]
        return Names(np.where(missing, -1, codes), texts)


def _number(cell: str) -> float | None:
    """A cell as a number: NaN if it is empty, None if it is something else."""
    try:
        return float(cell)
    except ValueError:
        return float("nan") if cell.strip().lower() in MISSING_CELLS else None


def _comma_number(cell: str) -> float | None:
    """A cell with a decimal comma as a number."""
    text = cell.strip()
    return float(text.replace(".", "").replace(",", ".")) if _DECIMAL_COMMA.fullmatch(text) else _number(text)


def _thousands_number(cell: str) -> float | None:
    """A cell with commas between thousands as a number."""
    text = cell.strip()
    return float(text.replace(",", "")) if _THOUSANDS.fullmatch(text) else _number(text)


def is_number(cell: str) -> bool:
    """Whether a cell holds a number."""
    number = _number(cell)
    return number is not None and number == number


def is_date(cell: str) -> bool:
    """Whether a cell is a date or a time, and no mere number."""
    if is_number(cell) or not any(letter.isdigit() for letter in cell):
        return False
    try:
        return TimeFormat.detect([cell.strip()]).pattern != COUNTER_PATTERN
    except WeftError:
        return False


class _Builder:
    """One column while it is read: of numbers until a cell is something else."""

    def __init__(self, *, as_names: bool) -> None:
        self.codes: dict[str, int] = {}
        self.parts: list[Array] = []
        self.parse = _number
        self.is_names, self.fixed = as_names, as_names
        self.text: tuple[int, str] | None = None

    def add(self, cells: Sequence[str | None], row: int) -> None:
        """Adds the cells of a block, whose first is that of a row."""
        if not self.fixed:
            self._decide(cells)
        if self.is_names:
            self.parts.append(self._coded(cells))
            return
        try:
            block = np.array(list(map(float, cells)))  # type: ignore[arg-type]  # None is a TypeError
        except (ValueError, TypeError):
            numbers = [self.parse(cell or "") for cell in cells]
            if None in numbers:
                place = numbers.index(None)
                self.text = self.text or (row + place, str(cells[place]))
            block = np.array([np.nan if number is None else number for number in numbers])
        self.parts.append(block)

    def _decide(self, cells: Sequence[str | None]) -> None:
        """What the column holds, by its first cells that are not empty."""
        filled = [cell for cell in cells if cell is not None and cell.strip().lower() not in MISSING_CELLS]
        if not filled:
            return
        self.fixed = True
        for parse in (_number, _thousands_number, _comma_number):
            if all(parse(cell) is not None for cell in filled):
                self.parse = parse
                return
        some = [cell for cell in filled[:1000] if _number(cell) is not None]
        if 2 * len(some) > len(filled[:1000]):  # numbers with something else among them
            return
        self.is_names = True
        self.parts = [np.full(len(part), -1, np.int64) for part in self.parts]

    def _coded(self, cells: Sequence[str | None]) -> IntArray:
        codes = self.codes
        found = [codes.setdefault(cell, len(codes)) if cell else -1 for cell in map(_stripped, cells)]
        return np.array(found, np.int64)

    def column(self) -> Array | Names:
        joined = np.concatenate(self.parts) if self.parts else np.empty(0)
        if not self.is_names:
            return joined
        return Names(joined.astype(np.int64), list(self.codes))


def _stripped(cell: str | None) -> str:
    return "" if cell is None else cell.strip()


def read_typed_columns(document: Document, *, header: str = "auto", as_names: Collection[str] = (),
                       header_names: Collection[str] = ()) -> TypedColumns:  # fmt: skip
    """Reads a table from CSV, TSV or JSON lines, by the suffix of its name or else by its first line.

    Args:
        document: the document.
        header: whether the first row holds the names of columns: "yes", "no" or "auto".
        as_names: names of columns, in lower case, whose cells are names or times even if they look like numbers.
        header_names: names, in lower case, which say that a row is a header.
    """
    form = format_by_suffix(document) or _format(document)
    if form == "jsonl":
        return _of_objects(document, as_names)
    rows = separated_rows(document, form)
    first = list(islice(rows, PEEK))
    if not first:
        raise WeftError(f"{document.location} has no rows", expected="a table of series")
    cells = [_stripped(cell) for cell in first[0][1]]
    named = header == "yes" or (header == "auto" and _is_header(cells, [row[1] for row in first[1:]], header_names))
    names = tuple(cell or str(place) for place, cell in enumerate(cells, start=1)) if named else tuple(
        map(str, range(1, len(cells) + 1)))  # fmt: skip
    _check_names(document.location, names)
    builders = [_Builder(as_names=name.lower() in as_names) for name in names]
    lines: list[IntArray] = []
    remaining: Iterator[Row] = chain(first[1:] if named else first, rows)
    count = 0
    while block := list(islice(remaining, _BLOCK)):
        numbers, cell_rows = zip(*block, strict=True)
        lines.append(np.array(numbers, np.int64))
        for builder, column in zip(builders, zip(*cell_rows, strict=True), strict=True):
            builder.add(column, count)
        count += len(block)
    if not count:
        raise WeftError(f"{document.location} has a header and no rows", expected="values below it")
    words = f"{'tab-separated' if form == 'tsv' else 'CSV'}, {'with' if named else 'without'} a header"
    return _typed(document.location, words, names, builders, np.concatenate(lines).tolist())


def _format(document: Document) -> str:
    line = next((line for _, line in numbered_lines(document) if line.strip()), "")
    return "jsonl" if line.lstrip().startswith("{") else "tsv" if "\t" in line else "csv"


def _of_objects(document: Document, as_names: Collection[str]) -> TypedColumns:
    objects = json_objects(document)
    if not objects:
        raise WeftError(f"{document.location} has no rows", expected="an object on each line")
    names = tuple(dict.fromkeys(name for _, record in objects for name in record))
    builders = [_Builder(as_names=name.lower() in as_names) for name in names]
    for builder, name in zip(builders, names, strict=True):
        builder.add([_as_text(record.get(name)) for _, record in objects], 0)
    return _typed(document.location, "JSON lines", names, builders, [line for line, _ in objects])


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(int(value)) if isinstance(value, bool) else str(value)


def _typed(location: str, words: str, names: tuple[str, ...], builders: Sequence[_Builder],
           lines: Sequence[Any]) -> TypedColumns:  # fmt: skip
    texts = {name: builder.text for name, builder in zip(names, builders, strict=True) if builder.text}
    return TypedColumns(location, words, names, tuple(builder.column() for builder in builders), lines, texts=texts)


def _check_names(location: str, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise WeftError(f"{location}: two columns are called {twice!r}", expected="different names")


def _is_header(cells: Sequence[str], rest: Sequence[Sequence[str | None]], usual: Collection[str]) -> bool:
    """Whether a first row is a header: it has a usual name, no number and no time, or times above numbers."""
    if any(cell.lower() in usual for cell in cells):
        return True
    if not any(is_number(cell) or is_date(cell) for cell in cells):
        filled = [cell for row in rest for cell in row if cell and cell.strip().lower() not in MISSING_CELLS]
        return any(parse(cell) is not None for cell in filled for parse in (_number, _thousands_number, _comma_number))
    later = cells[1:]
    if len(later) < 2 or is_number(cells[0]) or is_date(cells[0]):
        return False
    dated = [place for place, cell in enumerate(cells) if is_date(cell)]
    if dated:
        return bool(rest) and not any(is_date(row[place] or "") for row in rest[:3] for place in dated)

    def ascending(row: Sequence[str | None]) -> bool:
        numbers = [float(cell) for cell in row[1:] if cell is not None and is_number(cell)]
        return len(numbers) == len(row) - 1 and len(set(np.diff(numbers).tolist())) == 1 and numbers[1] > numbers[0]

    def years(row: Sequence[str | None]) -> bool:
        return all(re.fullmatch(r"(1[5-9]|2[01])\d\d", cell or "") for cell in row[1:])

    return ascending(cells) and (not any(map(ascending, rest)) or (years(cells) and not any(map(years, rest))))


def typed_dataframe(source: Any, *, as_names: Collection[str] = ()) -> TypedColumns:
    """The columns of a DataFrame of pandas or polars, an Arrow table, a dict of columns or a list of dicts.

    A DataFrame whose index is times has it as its first column.
    """
    kind = type(source).__name__
    if hasattr(source, "collect"):
        raise WeftError(f"the {kind} is not read yet", expected="a DataFrame", hint=".collect()")
    columns: dict[str, Any] = {}
    index = getattr(source, "index", None)
    if index is not None and _is_times(index):
        columns[str(getattr(index, "name", None) or "time")] = index
    names = getattr(source, "column_names", None)
    names = getattr(source, "columns", None) if names is None else names
    if names is None or isinstance(source, Mapping):
        plain = from_python(source, "the series", "a DataFrame, or a file")
        if isinstance(plain, list):
            raise WeftError(f"the data are a {kind}", expected="a file, a DataFrame, or a dict of columns")
        columns |= dict(zip(plain.names or map(str, range(1, len(plain.values) + 1)), plain.values, strict=True))
    else:
        listed = [str(name) for name in names]
        _check_names(f"the {kind}", [*columns, *listed])
        columns |= {text: source[name] for text, name in zip(listed, names, strict=True)}
    zones: dict[str, str] = {}
    found: list[Array | Names] = []
    texts: dict[str, tuple[int, str]] = {}
    for name, column in columns.items():
        array, zone = _as_array(column)
        if zone:
            zones[name] = zone
        if array.dtype.kind == "M":
            found.append(array.astype("M8[us]"))
        elif array.dtype.kind in "fiub" and name.lower() not in as_names:
            found.append(array.astype(np.float64))
        else:
            builder = _Builder(as_names=name.lower() in as_names)
            builder.add([_plain_text(value) for value in array.tolist()], 0)
            found.append(builder.column())
            if builder.text:
                texts[name] = builder.text
    lengths = {len(one.codes if isinstance(one, Names) else one) for one in found}
    if len(lengths) != 1 or lengths == {0}:
        raise WeftError(f"the {kind} has {'no rows' if lengths == {0} else 'columns of unequal lengths'}",
                        expected="a value in every row")  # fmt: skip
    count = lengths.pop()
    return TypedColumns(f"the {kind}", f"a {kind}", tuple(columns), tuple(found), range(count), zones, texts)


def _is_times(index: Any) -> bool:
    dtype = str(getattr(index, "dtype", ""))
    return hasattr(index, "to_numpy") and dtype.startswith(("datetime64", "period"))


def _plain_text(value: Any) -> str | None:
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return _as_text(value)


def _as_array(column: Any) -> tuple[Array, str]:
    """A column as an array, and its time zone; times with a zone are those of UTC."""
    zone = getattr(getattr(column, "dtype", None), "tz", None) or getattr(
        getattr(column, "dtype", None), "time_zone", None
    )
    zone = zone or getattr(getattr(column, "type", None), "tz", None)
    if zone is not None and hasattr(column, "dt") and hasattr(column.dt, "tz_convert"):
        column = column.dt.tz_convert(None)
    elif zone is not None and hasattr(column, "tz_convert"):
        column = column.tz_convert(None)
    if hasattr(column, "to_numpy"):
        array = np.asarray(column.to_numpy())
    else:
        values = list(column)
        array = np.empty(len(values), object)
        array[:] = values
    return array, "" if zone is None else str(zone)


def read_parquet(path: Path, *, as_names: Collection[str] = ()) -> TypedColumns:
    """The columns of a Parquet file.

    Raises:
        WeftError: pyarrow is not installed, or the file is damaged.
    """
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise WeftError("Parquet needs pyarrow, which is not installed", expected="pyarrow",
                        hint="pip install weft[series]") from error  # fmt: skip
    try:
        with ParquetFile(path) as file:
            cells = file.metadata.num_rows * file.metadata.num_columns
            check_expansion(str(path), path.stat().st_size, BYTES_OF_CELL * cells)
            table = file.read()
    except (ArrowException, OSError) as error:
        raise WeftError(f"{path} cannot be read: {str(error)[:200]}", expected="a Parquet file") from error
    found = typed_dataframe(table, as_names=as_names)
    count = len(found)
    return TypedColumns(str(path), "Parquet", found.names, found.columns, range(count), found.zones, found.texts)


def looked_up(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The first of these names that a column has, whatever its capitals."""
    lowered = {column.strip().lower(): column for column in reversed(columns)}
    return next((lowered[name] for name in names if name in lowered), None)
