"""Reads series: which columns of a table are what, then equal steps of time.

Long tables have a row for each time of each series; wide ones a column or a row for each series. Times must fall on
equal steps, which are inferred; missing steps become missing values. What was understood is said in a few lines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.column import Array, IntArray
from weft.errors import WeftError
from weft.series.archives import read_arrays, read_json_series, read_ts, read_tsf
from weft.series.frequency import COUNTER, Frequency, Time, infer_frequency
from weft.series.time_series import SeriesColumns, SeriesSet, TimeSeries
from weft.series.times import COUNTER_FORMAT, TimeFormat, to_zone
from weft.series.typed_columns import (
    Names,
    TypedColumns,
    is_date,
    looked_up,
    read_parquet,
    read_typed_columns,
    typed_dataframe,
)
from weft.text.corpus import Document, open_documents

ID_NAMES = ("unique_id", "series_id", "item_id", "id", "series", "item", "series_name", "ts_id")
TIME_NAMES = ("ds", "date", "time", "datetime", "timestamp", "date_time", "day", "week", "month", "quarter", "year",
              "period", "t", "step")  # fmt: skip
TARGET_COLUMN_NAMES = ("y", "target", "value", "values", "sales", "demand")
PARTS_OF_TIME = ("year", "month", "day", "hour", "minute", "second")  # each in a column of its own
COUNTER_NAMES = ("no", "no.", "row", "index", "unnamed: 0", "1")  # of a column that numbers the rows
AGGREGATES = ("mean", "sum", "min", "max", "first", "last")
DUPLICATES = ("refuse", *AGGREGATES)
MOST_FILLED = 50  # times as many steps as there are rows
FEWEST_REGULAR = 5  # rows of a series, none of which follows the one before by a step, that are a step of their own
MOST_NAMED = 3  # gaps, or names, that a line says


def read_series(
    source: Any,
    *,
    id: str | Sequence[str] | None = None,
    time: str | Sequence[str] | None = None,
    target: str | Sequence[str] | None = None,
    known: str | Sequence[str] | None = None,
    past: str | Sequence[str] | None = None,
    static: str | Sequence[str] | None = None,
    layout: str = "auto",
    freq: str = "",
    aggregate: str = "mean",
    duplicates: str = "refuse",
) -> SeriesSet:
    """Read series from a file or from Python.

    Columns are found by usual names (`unique_id`, `ds`, `y` and others) unless they are given, as a list or as one text
    with commas. `SeriesSet.reading` says in words what was understood.

    Args:
        source: CSV, TSV, JSON lines, Parquet, `.tsf`, `.ts`, `.npy`, `.npz`, also as `.gz`; a DataFrame, a Series with
            times as its index, an array (T,) or (T, C), or a list of arrays, one a series; a `Document` of a table.
        id: the columns that name a series.
        time: the column of times, or columns of year, month, day, ...
        target: the values to forecast; several are the channels of one series.
        known: covariates that are known in advance.
        past: covariates that are known as far as the target is.
        static: columns that do not change within a series.
        layout: "long", "columns" (a column for each series), "rows" (a row for each series), or "auto".
        freq: the step of time, such as "h", "D", "W-SUN", "MS"; "" infers it. Times between steps are resampled.
        aggregate: how the values of one step become one when resampling: "mean", "sum", "min", "max", "first", "last".
        duplicates: what to do with two rows of one time: "refuse", or one of those.

    Raises:
        WeftError: the source is not read as series; the message names file and line.

    >>> sales = read_series({"ds": ["2024-01-31", "2024-02-29", "2024-04-30"], "y": [3, 4, 6]})
    >>> sales.frequency.name, sales.series[0].target[:, 0].tolist()
    ('ME', [3.0, 4.0, nan, 6.0])
    """
    columns = SeriesColumns.of(layout, id=id, time=time, target=target, known=known, past=past, static=static)
    return read_columns(source, columns, freq=freq, aggregate=aggregate, duplicates=duplicates)


def read_columns(
    source: Any, columns: SeriesColumns, *, freq: str = "", aggregate: str = "mean", duplicates: str = "refuse"
) -> SeriesSet:
    """Read series as `read_series` does, from columns that are known."""
    for name, value, choices in (("aggregate", aggregate, AGGREGATES), ("duplicates", duplicates, DUPLICATES)):
        if value not in choices:
            raise WeftError(f"`{name}` is {value!r}", expected=f"one of: {', '.join(choices)}")
    frequency = Frequency.parse(freq) if freq else None
    ready = _ready(source)
    if ready is not None:
        return ready
    table = open_series_table(source, columns)
    steps = StepRules(frequency, aggregate, duplicates)
    columns, words = _choose(table, columns)
    if columns.layout == "rows":
        return _read_rows(table, columns, steps, words)
    if columns.layout == "columns":
        return _read_wide(table, columns, steps, words)
    return read_long(table, columns, steps, words)


@dataclass(frozen=True)
class StepRules:
    """How rows become steps."""

    frequency: Frequency | None
    aggregate: str
    duplicates: str


def _ready(source: Any) -> SeriesSet | None:
    """The series of a source that is no table."""
    if isinstance(source, SeriesSet):
        return source
    if isinstance(source, np.ndarray) or (
        isinstance(source, list | tuple) and source and not isinstance(source[0], Mapping)
    ):
        return read_arrays(source)
    if not isinstance(source, str | Path):
        return None
    suffixes = [suffix.lower() for suffix in Path(source).suffixes if suffix.lower() != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    if suffix in (".npy", ".npz"):
        return read_arrays(Path(source))
    if suffix not in (".tsf", ".ts", ".json", ".jsonl", ".ndjson"):
        return None
    documents = open_documents(source)
    if suffix in (".tsf", ".ts"):
        return (read_tsf if suffix == ".tsf" else read_ts)(documents[0])
    return read_json_series(documents[0])


def open_series_table(source: Any, columns: SeriesColumns) -> TypedColumns:
    listed = [*(columns.id or ()), *(columns.time or ())]
    as_names = {name.lower() for name in (*ID_NAMES, *TIME_NAMES, *listed)} - {
        name.lower() for part in (columns.target, columns.known, columns.past) for name in part or ()
    }
    usual = {*ID_NAMES, *TIME_NAMES, *TARGET_COLUMN_NAMES, *(name.lower() for name in _listed(columns))}
    if isinstance(source, Document):
        return read_typed_columns(source, as_names=as_names, header_names=usual)
    if not isinstance(source, str | Path):
        return typed_dataframe(source, as_names=as_names)
    if Path(source).suffix.lower() in (".parquet", ".pq"):
        return read_parquet(Path(source), as_names=as_names)
    if Path(source).suffix.lower() in (".xlsx", ".xls", ".feather", ".arff"):
        raise WeftError(f"{source} is not read", expected="CSV, TSV, JSON lines, Parquet, .tsf, .ts, .npy or .npz",
                        hint="a DataFrame in Python, or save it as CSV")  # fmt: skip
    documents = open_documents(source)
    if len(documents) != 1:
        raise WeftError(f"{source} has {len(documents)} files", expected="one file of series")
    return read_typed_columns(documents[0], as_names=as_names, header_names=usual)


def _listed(columns: SeriesColumns) -> list[str]:
    parts = (columns.id, columns.time, columns.target, columns.known, columns.past, columns.static)
    return [name for part in parts for name in part or ()]


# Which columns are what.


def _choose(table: TypedColumns, given: SeriesColumns) -> tuple[SeriesColumns, list[str]]:
    """The columns by the rules where they are not given, and what is left out, in words."""
    for role in ("id", "time", "target", "known", "past", "static"):
        for name in getattr(given, role) or ():
            table.check(name, role)
    taken = set(_listed(given))
    free = [name for name in table.names if name not in taken]
    time = given.time if given.time is not None else time_columns(table, free)
    free = [name for name in free if name not in time]
    layout = given.layout
    if layout == "rows" or (layout == "auto" and not time and given.target is None and _has_row_a_series(table, free)):
        ids = given.id if given.id is not None else tuple(free[:1]) if table.is_text(free[0]) else ()
        return replace(given, id=ids, time=(), layout="rows"), []
    target = given.target
    usual = looked_up(TARGET_COLUMN_NAMES, [name for name in free if _may_be_numbers(table, name)])
    if target is None and usual is not None and layout != "columns":
        target = (usual,)
    ids = given.id if given.id is not None else id_columns(table, free, time, target)
    free = [name for name in free if name not in ids and name not in (target or ())]
    counters = [name for name in free if _numbers_rows(table, name)]
    if not time and counters and not ids:
        time = tuple(counters[:1])
    free = [name for name in free if name not in counters]
    numeric = [name for name in free if not table.is_text(name) and not table.is_time(name)]
    if layout == "columns" or (layout == "auto" and target is None and not ids and len(numeric) > 1):
        if not numeric:
            raise WeftError(f"{table.location} has no column of numbers", expected="a column for each series")
        return SeriesColumns((), time, tuple(numeric), (), (), (), "columns"), _left_out(table, free, numeric)
    if target is None:
        if len(numeric) != 1:
            names = ", ".join(map(repr, numeric or table.names))
            what = f"{len(numeric)} columns may be the target: {names}" if numeric else (
                f"no column has numbers: {names}")  # fmt: skip
            hint = f"`target={numeric[0]}`" if numeric else ""
            raise WeftError(f"{table.location}: {what}", expected="one of them as `target`", hint=hint)
        target = (numeric[0],)
    free = [name for name in free if name not in target]
    static = given.static
    if static is None:
        static = tuple(name for name in free if ids and _is_constant(table, ids, name))
    past = given.past
    if past is None:
        others = set(free) - set(static)
        past = tuple(name for name in numeric if name in others)
    used = {*static, *past}
    columns = SeriesColumns(tuple(ids), time, target, given.known or (), past, static, "long")
    return columns, _left_out(table, free, used)


def _left_out(table: TypedColumns, free: Sequence[str], used: Collection[str]) -> list[str]:
    used = set(used)
    names = [f"{name!r} ({'text' if table.is_text(name) else 'not used'})" for name in free if name not in used]
    return [f"columns left out: {', '.join(names)}"] if names else []


def _may_be_numbers(table: TypedColumns, name: str) -> bool:
    return not table.is_time(name)


def time_columns(table: TypedColumns, free: Sequence[str]) -> tuple[str, ...]:
    """The column of times: by a usual name, or the first of dates; or columns of year, month, ..."""
    lowered = {name.strip().lower(): name for name in free}
    parts = [lowered[part] for part in PARTS_OF_TIME if part in lowered]
    whole = looked_up(TIME_NAMES[:6], free)
    if whole is None and len(parts) > 1 and "year" in lowered:
        return tuple(parts)
    usual = whole or looked_up(TIME_NAMES, free)
    if usual is not None:
        return (usual,)
    for name in free:
        column = table[name]
        if not isinstance(column, Names):
            if column.dtype.kind == "M":
                return (name,)
        elif column.values and all(map(is_date, column.values[:20])):
            return (name,)
    return ()


def _has_row_a_series(table: TypedColumns, free: Sequence[str]) -> bool:
    """Whether each row is a series: its name comes first, once, and the rest are numbers."""
    if len(free) < 4 or free[0] != table.names[0]:
        return False
    first, rest = table[free[0]], free[1:]
    dated = [name for name in rest if is_date(name)]
    if not isinstance(first, Names):
        return len(dated) == len(free) - 1
    unique = len(first.values) == len(table) and (first.codes >= 0).all()
    numeric = [name for name in rest if not table.is_text(name)]
    return bool(unique) and (len(numeric) == len(rest) or (len(dated) > 2 and set(dated) <= set(numeric)))


def id_columns(table: TypedColumns, free: Sequence[str], time: Sequence[str],
                target: Sequence[str] | None) -> tuple[str, ...]:  # fmt: skip
    """The columns that name a series: one of a usual name, or columns of names with which no time occurs twice."""
    usual = looked_up(ID_NAMES, [name for name in free if name not in (target or ())])
    if usual is not None and not (len(table) > 1 and len(table.categories(usual).values) == len(table)):
        return (usual,)
    if not time:
        return ()
    texts = [name for name in free if table.is_text(name) and name not in (target or ()) and name != usual]
    times = _codes(table, time)
    if not texts or len(np.unique(times)) == len(times):
        return ()
    for some in (*((name,) for name in texts), tuple(texts)):
        both = np.stack([_codes(table, some), times])
        if np.unique(both, axis=1).shape[1] == len(times):
            return tuple(some)
    return ()


def _codes(table: TypedColumns, names: Sequence[str]) -> IntArray:
    """A number for each row that says what its cells in some columns are."""
    parts = [table.categories(name).codes for name in names]
    if len(parts) == 1:
        return parts[0]
    return np.asarray(np.unique(np.stack(parts), axis=1, return_inverse=True)[1]).reshape(-1)


def _numbers_rows(table: TypedColumns, name: str) -> bool:
    """Whether a column counts the rows."""
    column = table[name]
    if name.strip().lower() not in COUNTER_NAMES or isinstance(column, Names) or len(column) < 2:
        return False
    return column.dtype.kind == "f" and bool((np.diff(column) == 1).all())


def _is_constant(table: TypedColumns, ids: Sequence[str], name: str) -> bool:
    if table.is_time(name):
        return False
    codes, values = _codes(table, ids), table.categories(name).codes
    first = np.zeros(codes.max(initial=0) + 1, np.int64)
    first[codes[::-1]] = values[::-1]
    return bool((first[codes] == values).all())


# Rows become steps.


def _read_times(table: TypedColumns, names: Sequence[str]) -> tuple[Array, TimeFormat]:
    """The time of each row, and how it is written."""
    if len(names) > 1:
        return _joined_times(table, names)
    name = names[0]
    column = table[name]
    zone = table.zones.get(name, "")
    if not isinstance(column, Names) and column.dtype.kind == "M":
        if np.isnat(column).any():
            raise _no_time_in(table, name, int(np.argmax(np.isnat(column))))
        clocks = to_zone(column, zone)[0] if zone else column
        pattern = "%Y-%m-%d" if (clocks == clocks.astype("M8[D]")).all() else "%Y-%m-%d %H:%M:%S"
        if not zone:
            return column, TimeFormat(pattern)
        if len(np.unique(clocks - clocks.astype("M8[D]"))) == 1:  # whole days are counted by the clock
            return clocks, TimeFormat(pattern, zone)
        return column, TimeFormat(f"{pattern}%Z", zone, utc=True)
    labels = table.categories(name)
    if (labels.codes < 0).any():
        raise _no_time_in(table, name, int(np.argmax(labels.codes < 0)))
    try:
        form = TimeFormat.detect(labels.values, years="year" in name.lower())
        times = form.read(labels.values)
    except WeftError as error:
        row = int(np.argmax(labels.codes == getattr(error, "index", 0)))
        message = f"{table.place(row)}: the time column {name!r}: {error.given}"
        raise WeftError(message, expected=error.expected, hint="`time=NAME`, if it is another column") from error
    return times[labels.codes], form


def _joined_times(table: TypedColumns, names: Sequence[str]) -> tuple[Array, TimeFormat]:
    parts = {"year": 1970.0, "month": 1.0, "day": 1.0, "hour": 0.0, "minute": 0.0, "second": 0.0}
    columns = {}
    for name in names:
        part = name.strip().lower()
        if part not in parts:
            raise WeftError(f"`time` names {len(names)} columns, and {name!r} is one",
                            expected=f"columns called {', '.join(PARTS_OF_TIME)}")  # fmt: skip
        columns[part] = table.numbers(name, "time")
        if np.isnan(columns[part]).any():
            raise _no_time_in(table, name, int(np.argmax(np.isnan(columns[part]))))
    year, month, day, hour, minute, second = (
        np.broadcast_to(columns.get(part, first), len(table)).astype(np.int64) for part, first in parts.items()
    )
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    seconds = ((day - 1) * 24 + hour) * 3600 + minute * 60 + second
    times = months.astype("M8[D]").astype("M8[us]") + seconds.astype("m8[s]")
    clock = " %H:%M:%S" if {"hour", "minute", "second"} & columns.keys() else ""
    return times, TimeFormat(f"%Y-%m-%d{clock}" if clock or "day" in columns else "%Y-%m")


def _no_time_in(table: TypedColumns, name: str, row: int) -> WeftError:
    return WeftError(f"{table.place(row)}: the time column {name!r} is empty", expected="a time in every row")


def read_long(table: TypedColumns, columns: SeriesColumns, steps: StepRules, words: list[str]) -> SeriesSet:
    ids = [table.categories(name) for name in columns.id or ()]
    for name, labels in zip(columns.id or (), ids, strict=True):
        if (labels.codes < 0).any():
            row = int(np.argmax(labels.codes < 0))
            raise WeftError(f"{table.place(row)}: the id column {name!r} is empty", expected="an id in every row")
    if ids:
        codes, first_rows = _by_appearance(_codes(table, columns.id or ()))
        names = ["/".join(labels.values[labels.codes[row]] for labels in ids) for row in first_rows.tolist()]
    else:
        codes, names = np.zeros(len(table), np.int64), [""]
    if columns.time:
        times, form = _read_times(table, columns.time)
    else:
        times, form = _counted(codes), COUNTER_FORMAT
    roles = (columns.target or (), columns.known or (), columns.past or ())
    listed = [(name, what) for part, what in zip(roles, ("target", "known", "past"), strict=True) for name in part]
    values = np.stack([table.numbers(name, what) for name, what in listed], axis=1)
    static = [_static_values(table, columns.id or (), codes, name, len(names)) for name in columns.static or ()]
    grid = _Grid(table, codes, names, times, form, values, len(columns.target or ()), steps)
    frequency, series = grid.build([len(part) for part in roles], static)
    title = [f"{table.location}: {table.description}, {len(table):,} rows, {_count(len(names), 'series')}"]
    used = [(role, getattr(columns, role)) for role in ("id", "time", "target", "known", "past", "static")]
    title += ["; ".join(f"{role} {', '.join(map(repr, part))}" for role, part in used if part)]
    if columns.past and not columns.known:
        title += [f"covariates {_some(columns.past)} are taken as known up to the last value only; `known=` names those"
                  " that are known in advance"]  # fmt: skip
    return SeriesSet(series, columns.target or (), columns.known or (), columns.past or (), columns.static or (),
                     frequency, (*title, *words, *grid.words, *_constant(series)), form, columns)  # fmt: skip


def _by_appearance(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Codes renumbered in the order of their first rows, and these rows."""
    different, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(different), np.int64)
    rank[order] = np.arange(len(different))
    return rank[inverse.reshape(-1)], first[order]


def _counted(codes: IntArray) -> IntArray:
    """The number of each row within its series."""
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = np.searchsorted(sorted_codes, sorted_codes)
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - starts
    return found


def _static_values(table: TypedColumns, ids: Sequence[str], codes: IntArray, name: str,
                   count: int) -> list[float | str]:  # fmt: skip
    column = table[name]
    labels = table.categories(name)
    first = np.full(count, -1, np.int64)
    first[codes[::-1]] = labels.codes[::-1]
    changed = labels.codes != first[codes]
    if changed.any():
        row = int(np.argmax(changed))
        raise WeftError(f"{table.place(row)}: the static column {name!r} changes within a series",
                        expected="one value for each series", hint="`known=` or `past=`, if it changes")  # fmt: skip
    if isinstance(column, Names):
        return [labels.values[code] if code >= 0 else "" for code in first.tolist()]
    return [float(labels.values[code]) if code >= 0 else float("nan") for code in first.tolist()]


@dataclass
class _Grid:
    """Rows of series, put on equal steps of time."""

    table: TypedColumns
    codes: IntArray  # (N,) the series of each row
    names: list[str]
    times: Array  # (N,)
    form: TimeFormat
    values: Array  # (N, columns) target, known, past
    channels: int
    steps: StepRules

    def build(
        self, widths: Sequence[int], static: Sequence[list[float | str]]
    ) -> tuple[Frequency, tuple[TimeSeries, ...]]:
        """The series; `words` then says what was done."""
        self.words: list[str] = []
        self.rows = np.lexsort((self.times, self.codes))
        self._order()
        self._duplicates()
        starts = np.flatnonzero(np.diff(self.codes, prepend=-1))
        frequency = self._frequency(starts)
        steps, bases = self._positions(frequency, starts)
        return frequency, self._series(frequency, starts, steps, bases, widths, static)

    def _order(self) -> None:
        """Sorts the rows by series and time."""
        if self.columns_are_sorted():
            self.rows = np.arange(len(self.codes))
        later = np.zeros(len(self.codes), bool)
        order = np.argsort(self.codes, kind="stable")
        same = self.codes[order][1:] == self.codes[order][:-1]
        later[order[1:]] = same & (self.times[order][1:] < self.times[order][:-1])
        if later.any():
            row = int(np.argmax(later))
            some = _count(int(later.sum()), "row")
            self.words.append(f"{some} before the time of the row above, sorted: the first is {self.table.line(row)}")
        self.codes, self.times, self.values = self.codes[self.rows], self.times[self.rows], self.values[self.rows]

    def columns_are_sorted(self) -> bool:
        ahead = np.diff(self.codes)
        return bool(((ahead > 0) | ((ahead == 0) & (self.times[1:] >= self.times[:-1]))).all())

    def _duplicates(self) -> None:
        again = np.flatnonzero((np.diff(self.codes) == 0) & (self.times[1:] == self.times[:-1])) + 1
        if not len(again):
            return
        same = ((self.values[again] == self.values[again - 1]) | (
            np.isnan(self.values[again]) & np.isnan(self.values[again - 1]))).all(1)  # fmt: skip
        different = again[~same]
        if len(different) and self.steps.duplicates == "refuse":
            row = int(different[0])
            raise WeftError(
                f"{self._place(row)}: {self._series_words(row)} has the time {self._time(row)} twice, first in "
                f"{self.table.line(int(self.rows[row - 1]))} ({_count(len(different), 'such row')})",
                expected="one row for each time of a series",
                hint="`duplicates=mean` (or sum, min, max, first, last), or `id=NAME`, if a column names the series",
            )
        rule = self.steps.duplicates if len(different) else "first"
        place = self.table.line(int(self.rows[again[0]]))
        how = f"their {rule} is taken" if len(different) else "they are equal, and one is kept"
        self.words.append(f"{_count(len(again), 'row')} of a time that is there already: {how}; the first is {place}")
        groups = (
            np.cumsum(np.concatenate([[True], (np.diff(self.codes) != 0) | (self.times[1:] != self.times[:-1])])) - 1
        )
        self._merge(groups, rule)

    def _merge(self, groups: IntArray, rule: str) -> None:
        """Makes one row of those of a group; groups are numbered in order."""
        first = np.flatnonzero(np.diff(groups, prepend=-1))
        self.values = _aggregated(self.values, first, rule)
        self.codes, self.times, self.rows = self.codes[first], self.times[first], self.rows[first]

    def _frequency(self, starts: IntArray) -> Frequency:
        if self.steps.frequency is not None:
            if self.steps.frequency.has_times == self.form.is_counter:
                given = "has no dates" if self.form.is_counter else "has dates"
                raise WeftError(f"`freq` is {self.steps.frequency.name}, and {self.table.location} {given}",
                                expected="a step of a calendar for dates, `freq=step` for a counter")  # fmt: skip
            return self.steps.frequency
        found = infer_frequency(np.split(self.times, starts[1:]))
        if found is None:
            if self.form.is_counter:
                return COUNTER
            raise WeftError(
                f"{self.table.location}: each series has one point of time, {self._time(0)}",
                expected="at least two times, from which the step is inferred", hint="`freq=D`, if the step is a day",
            )  # fmt: skip
        return found

    def _positions(self, frequency: Frequency, starts: IntArray) -> tuple[IntArray, list[Time]]:
        """The step of each row from the first of its series, and the time of that first step."""
        ends = [*starts[1:].tolist(), len(self.codes)]
        positions = np.empty(len(self.codes), np.int64)
        misfits = np.zeros(len(self.codes), bool)
        bases: list[Time] = []
        resampled = 0
        for start, end in zip(starts.tolist(), ends, strict=True):
            times = self.times[start:end]
            base: Time = int(times[0]) if self.form.is_counter else times[0]
            found = frequency.steps(base, times)
            fits = frequency.times(base, found) == times
            if self.steps.frequency is not None and (not fits.all() or not _on_grid(frequency, base)):
                base = frequency.floor(base)
                found = _within(frequency, base, times)
                if len(found) and found[0] < 0:
                    base, found = frequency.range(base, 1, first=int(found[0]))[0], found - found[0]
                resampled += int((frequency.times(base, found) != times).sum())
                fits = np.ones(len(times), bool)
            misfits[start:end] = ~fits
            positions[start:end] = found
            bases.append(base)
        self._check_steps(frequency, starts, ends, misfits, positions)
        again = (np.diff(positions) == 0) & (np.diff(self.codes) == 0)
        if again.any():
            groups = np.cumsum(np.concatenate([[True], ~again])) - 1
            before = len(positions)
            positions = positions[np.flatnonzero(np.diff(groups, prepend=-1))]
            self._merge(groups, self.steps.aggregate)
            self.words.append(f"resampled to {frequency.words}: {before:,} rows became {len(positions):,}, each the "
                              f"{self.steps.aggregate} of its rows")  # fmt: skip
        elif resampled:
            self.words.append(f"resampled to {frequency.words}: {_count(resampled, 'time')} moved to the step")
        return positions, bases

    def _check_steps(self, frequency: Frequency, starts: IntArray, ends: Sequence[int], misfits: Array,
                     positions: IntArray) -> None:  # fmt: skip
        """Refuses irregular times, and series of different steps."""
        if self.steps.frequency is not None:
            return
        longest = max(range(len(ends)), key=lambda place: ends[place] - starts[place])
        for place, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
            sparse = end - start >= FEWEST_REGULAR and np.diff(positions[start:end]).min() > 1
            if not sparse and not (misfits[start:end].any() and end - start > 2):
                continue
            own = infer_frequency([self.times[start:end]])
            other = infer_frequency([self.times[starts[longest] : ends[longest]]])
            if sparse and own == other:
                shorter = next(part for part in range(len(ends)) if part != place)
                own, place = infer_frequency([self.times[starts[shorter] : ends[shorter]]]), shorter
            if own is not None and other is not None and own != other and self._is_regular(own, starts, ends, place):
                raise WeftError(
                    f"{self.table.location}: two frequencies: {self._series_words(int(starts[longest]))} has a value "
                    f"{other.words}, {self._series_words(int(starts[place]))} {own.words}",
                    expected="series of one frequency", hint=f"`freq={max((own, other), key=_length).name}` resamples",
                )  # fmt: skip
        if misfits.any():
            row = int(np.argmax(misfits))
            raise WeftError(
                f"{self._place(row)}: the time {self._time(row)} is not on the steps {frequency.words} of "
                f"{self._series_words(row)} ({_count(int(misfits.sum()), 'time')} of {len(misfits):,} are not)",
                expected="equal steps of time", hint=f"`freq={frequency.name}`, which resamples",
            )  # fmt: skip

    def _is_regular(self, own: Frequency, starts: IntArray, ends: Sequence[int], place: int) -> bool:
        times = self.times[starts[place] : ends[place]]
        base: Time = int(times[0]) if self.form.is_counter else times[0]
        return bool((own.times(base, own.steps(base, times)) == times).all())

    def _series(self, frequency: Frequency, starts: IntArray, steps: IntArray, bases: Sequence[Time],
                widths: Sequence[int], static: Sequence[list[float | str]]) -> tuple[TimeSeries, ...]:  # fmt: skip
        starts = np.flatnonzero(np.diff(self.codes, prepend=-1))  # resampling may have merged rows
        last = np.concatenate([starts[1:], [len(self.codes)]]) - 1
        lengths = steps[last] + 1
        total = int(lengths.sum())
        if total > 1_000_000 + MOST_FILLED * len(steps):
            longest = int(np.argmax(lengths))
            raise WeftError(
                f"{self.table.location}: with a value {frequency.words}, {self._series_words(int(starts[longest]))} "
                f"has {lengths[longest]:,} steps and all series {total:,}, of {len(steps):,} rows",
                expected="fewer missing steps", hint="a longer step, such as `freq=D`",
            )  # fmt: skip
        self._gaps(frequency, starts, steps, lengths, bases)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = np.full((total, self.values.shape[1]), np.nan)
        values[np.repeat(offsets[:-1], np.diff(np.concatenate([starts, [len(steps)]]))) + steps] = self.values
        splits = np.cumsum(widths)
        target, known, past = values[:, : splits[0]], values[:, splits[0] : splits[1]], values[:, splits[1] :]
        series, empty = [], []
        for place, name in enumerate(self.names):
            begin, end = int(offsets[place]), int(offsets[place + 1])
            there = np.flatnonzero(~np.isnan(target[begin:end]).all(1))
            if not len(there):
                empty.append(name)
                continue
            start, stop = int(there[0]), int(there[-1]) + 1
            ahead = np.flatnonzero(~np.isnan(known[begin:end]).all(1)) if widths[1] else there
            final = max(stop, int(ahead[-1]) + 1 if len(ahead) else stop)
            first = frequency.range(bases[place], 1, first=start)[0]
            series.append(TimeSeries(
                name, int(first) if self.form.is_counter else first, frequency, target[begin + start : begin + stop],
                known[begin + start : begin + final], past[begin + start : begin + stop],
                tuple(column[place] for column in static),
            ))  # fmt: skip
        if not series:
            raise WeftError(f"{self.table.location}: all values of the target are missing", expected="numbers")
        if empty:
            self.words.append(f"{_count(len(empty), 'series')} without any value left out: {_some(empty)}")
        return tuple(series)

    def _gaps(self, frequency: Frequency, starts: IntArray, steps: IntArray, lengths: IntArray,
              bases: Sequence[Time]) -> None:  # fmt: skip
        begin, end = self.times.min(), self.times.max()
        span = self.form.write(np.array([begin, end]))
        season = f", season of {frequency.season} steps" if frequency.season > 1 else ""
        what = f"a value {frequency.words} ({frequency.name})" if frequency.has_times else "steps are counted"
        self.words.insert(0, f"{what}, {span[0]} to {span[1]}{season}")
        jumps = np.diff(steps) - 1
        jumps[starts[1:] - 1] = 0
        where = np.flatnonzero(jumps > 0)
        if len(where):
            places = ", ".join(
                f"{self._series_words(row, short=True)}{_count(int(jumps[row]), 'step')} after {self._time(row)} "
                f"({self.table.line(int(self.rows[row]))})" for row in where[:MOST_NAMED].tolist())  # fmt: skip
            more = ", ..." if len(where) > MOST_NAMED else ""
            self.words.append(f"{_count(int(jumps[where].sum()), 'step')} in {_count(len(where), 'gap')} filled as "
                              f"missing: {places}{more}")  # fmt: skip

    def _place(self, row: int) -> str:
        return self.table.place(int(self.rows[row]))

    def _time(self, row: int) -> str:
        return self.form.write(self.times[row : row + 1])[0]

    def _series_words(self, row: int, *, short: bool = False) -> str:
        name = self.names[int(self.codes[row])]
        if short:
            return f"{name!r} " if name else ""
        return f"series {name!r}" if name else "the series"


def _length(frequency: Frequency) -> int:
    """About how long a step is, to compare two."""
    return frequency.count * {"month": 30 * 86_400_000_000, "B": 86_400_000_000}.get(frequency.unit, 1)


def _on_grid(frequency: Frequency, time: Time) -> bool:
    """Whether a time is a natural start of a step, as far as the frequency has one: weeks may start on any day."""
    if frequency.unit == "us":
        return frequency.anchor is None or bool(frequency.floor(time) == time)
    return frequency.unit == "step" or bool(frequency.floor(time) == time)


def _within(frequency: Frequency, base: Time, times: Array) -> IntArray:
    """The step to which times belong: the one that they follow, or that they precede where a step is an end."""
    found = frequency.steps(base, times)
    ends = (frequency.unit == "month" and frequency.day > 28) or (
        frequency.unit == "us" and frequency.anchor is not None)  # fmt: skip
    if not ends:
        return found
    days = np.asarray(times, "M8[D]")  # an end holds the whole of its day
    return np.asarray(found + (frequency.times(base, found).astype("M8[D]") < days))


def _aggregated(values: Array, first: IntArray, rule: str) -> Array:
    """The values of groups of rows, which start at `first`, as one row each; missing values do not count."""
    if rule == "first" or rule == "last":
        numbers = np.arange(len(values))[:, None]
        if rule == "first":
            chosen = np.minimum.reduceat(np.where(np.isnan(values), len(values), numbers), first)
        else:
            chosen = np.maximum.reduceat(np.where(np.isnan(values), -1, numbers), first)
        there = (chosen >= 0) & (chosen < len(values))
        return np.where(there, np.take_along_axis(values, np.where(there, chosen, 0), 0), np.nan)
    missing = np.isnan(values)
    count = np.add.reduceat(~missing, first)
    if rule in ("min", "max"):
        function, neutral = (np.minimum, np.inf) if rule == "min" else (np.maximum, -np.inf)
        result = function.reduceat(np.where(missing, neutral, values), first)
    else:
        result = np.add.reduceat(np.where(missing, 0.0, values), first)
        result = result / np.maximum(count, 1) if rule == "mean" else result
    return np.where(count > 0, result, np.nan)


def _constant(series: Sequence[TimeSeries]) -> list[str]:
    flat = [one.id for one in series if len(one) > 1 and np.nanmax(one.target) == np.nanmin(one.target)]
    if not flat:
        return []
    return ["the series is constant" if flat == [""] else f"{_count(len(flat), 'series')} constant: {_some(flat)}"]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 or what == 'series' else 's'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:MOST_NAMED])) + (", ..." if len(names) > MOST_NAMED else "")


# Wide tables.


def _read_wide(table: TypedColumns, columns: SeriesColumns, steps: StepRules, words: list[str]) -> SeriesSet:
    """A column for each series: the rows of a long table, a series after the other."""
    names = columns.target or ()
    rows = len(table)
    if columns.time:
        times, form = _read_times(table, columns.time)
    else:
        times, form = np.arange(rows), COUNTER_FORMAT
    values = np.concatenate([table.numbers(name, "series") for name in names])[:, None]
    codes = np.repeat(np.arange(len(names)), rows)
    repeated = replace(table, lines=[*table.lines] * len(names))
    grid = _Grid(repeated, codes, list(names), np.tile(times, len(names)), form, values, 1, steps)
    frequency, series = grid.build([1, 0, 0], [])
    title = f"{table.location}: {table.description}, {rows:,} rows, a column for each of {len(names):,} series"
    time = [f"time {', '.join(map(repr, columns.time))}"] if columns.time else []
    return SeriesSet(series, frequency=frequency, time_format=form, columns=columns,
                     reading=(title, *time, *words, *grid.words, *_constant(series)))  # fmt: skip


def _read_rows(table: TypedColumns, columns: SeriesColumns, steps: StepRules, words: list[str]) -> SeriesSet:
    """A row for each series: its name, what does not change, and its values."""
    ids = columns.id or ()
    rest = [name for name in table.names if name not in ids]
    static = [
        name for name in rest if name in (columns.static or ()) or (columns.static is None and table.is_text(name))
    ]
    dated = {name for name in rest if is_date(name)}
    if columns.static is None and len(dated) > 2:
        static = [name for name in rest if name not in dated]
    not_steps = set(static)
    steps_named = [name for name in rest if name not in not_steps]
    values = np.stack([table.numbers(name, "value") for name in steps_named], axis=1)  # (N, T)
    times, form = np.arange(len(steps_named)), COUNTER_FORMAT
    if len(dated) == len(steps_named) or all(name.isdecimal() and len(name) == 4 for name in steps_named):
        form = TimeFormat.detect(steps_named, years=True)
        times = form.read(steps_named)
    count = len(table)
    names = [str(place) for place in range(1, count + 1)]
    if ids:
        parts = [table.categories(name) for name in ids]
        names = ["/".join(part.values[part.codes[row]] for part in parts) for row in range(count)]
    codes = np.repeat(np.arange(count), len(times))
    repeated = replace(table, lines=np.repeat(np.asarray(table.lines), len(times)).tolist())
    grid = _Grid(repeated, codes, names, np.tile(times, count), form, values.reshape(-1, 1), 1, steps)
    fixed = [_static_values(table, ids, np.arange(count), name, count) for name in static]
    frequency, series = grid.build([1, 0, 0], fixed)
    title = f"{table.location}: {table.description}, a row for each of {count:,} series"
    return SeriesSet(series, static=tuple(static), frequency=frequency, time_format=form, columns=columns,
                     reading=(title, *words, *grid.words, *_constant(series)))  # fmt: skip
