"""Reads examples of series: each with a label, or with a tag for each of its steps.

Tables are long, with a row for each step of each series, or have a row for each series. `.ts` files have the class at
the end of each line. In Python examples are pairs of an array and its label, or a pair of all arrays and all labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.errors import WeftError, short_repr
from weft.series.archives import read_arrays
from weft.series.field import Series
from weft.series.frequency import Frequency
from weft.series.reader import (
    StepRules,
    id_columns,
    open_series_table,
    read_columns,
    read_long,
    time_columns,
)
from weft.series.time_series import SeriesColumns, SeriesSet, TimeSeries
from weft.series.typed_columns import Names, TypedColumns

STEP_LABEL_NAMES = (
    "label",
    "labels",
    "class",
    "target",
    "category",
    "tag",
    "tags",
    "activity",
    "state",
    "y",
)  # usual names
ARCHIVES = (".ts", ".npy", ".npz", ".json", ".jsonl", ".ndjson")  # which have no columns
FEWEST_STEPS = 3  # columns of numbers in a table that has a row for each series


class SeriesExamples(NamedTuple):
    """Examples, and the column that their labels are from; "" where there is none.

    Attributes:
        series: the series.
        labels: of each series its label, "" if it has none, or with `each_step` the tag of each of its steps.
        places: where each example is from.
        column: the name of the column of the labels.
    """

    series: SeriesSet
    labels: list[Any]
    places: list[str]
    column: str = ""


def read_examples(
    source: Any,
    columns: SeriesColumns,
    label: str = "",
    *,
    each_step: bool = False,
    labelled: bool = True,
    rules: Mapping[str, str] | None = None,
) -> SeriesExamples:
    """Reads examples.

    Args:
        source: a file; pairs of an array (T,) or (T, C) and its label; a tuple of all arrays, (N, T), (N, C, T) or a
            list of (T, C), and all labels; a table, such as a DataFrame; or a SeriesSet.
        columns: the columns of a table that are known.
        label: the column of the labels; "": by its usual name, else the only one of names that is no id.
        each_step: whether a label belongs to a step.
        labelled: whether labels are wanted; without, a column of labels may be missing.
        rules: how rows of a table become steps: `freq`, `aggregate`, `duplicates`.

    Raises:
        WeftError: the source is not read as series, or has no labels.
    """
    found = _from_arrays(source, each_step=each_step, labelled=labelled)
    if found is not None:
        return found
    path = isinstance(source, str | Path)
    suffixes = [suffix.lower() for suffix in Path(source).suffixes if suffix.lower() != ".gz"] if path else []
    if isinstance(source, SeriesSet) or (suffixes and suffixes[-1] in ARCHIVES):
        read = read_columns(source, columns, **(rules or {}))
        if not each_step and read.static:
            labels = [str(one.static[0]) for one in read]
        elif labelled:
            wanted = "a tag for each step, as in a long table" if each_step else "a class for each series"
            raise WeftError(f"{_named(source)} has no labels", expected=wanted)
        else:
            labels = [""] * len(read)
        bare = replace(read, series=tuple(replace(one, static=()) for one in read), static=())
        return SeriesExamples(bare, labels, [f"{_named(source)}, series {one.id}" for one in read])
    table = open_series_table(source, columns)
    name = _label_column(table, columns, label, labelled=labelled)
    if not each_step and columns.layout != "long" and _has_row_a_series(table, columns, name):
        return _series_in_rows(table, columns, name)
    return _long(table, columns, name, each_step=each_step, rules=rules or {})


def is_table_of_series(source: Any) -> bool:
    """Whether a table has examples of series: all of its columns are numbers, but names, times, and labels.

    A text in a cell of a column that is none of these, or labels beside a single column, says that it has texts.
    """
    try:
        table = open_series_table(source, SeriesColumns())
        label = _label_column(table, SeriesColumns(), "", labelled=False)
    except WeftError:
        return False
    names = [name for name in table.names if name != label and table.is_text(name)]
    time = time_columns(table, table.names)
    ids = id_columns(table, table.names, time, None)
    numbers = [one for one in table.names if one not in (label, *ids, *time) and not table.is_text(one)]
    steps = 1 if ids or time else FEWEST_STEPS
    return len(numbers) >= steps and all(name in (*ids, *time) for name in names)


# Python values.


def _from_arrays(source: Any, *, each_step: bool, labelled: bool) -> SeriesExamples | None:
    """The examples of arrays; None if the source is something else."""
    if isinstance(source, np.ndarray):
        arrays, labels = _rows_of(source), None
    elif isinstance(source, tuple) and len(source) == 2 and _is_many(source[0]):
        arrays, labels = _rows_of(source[0]), list(source[1])
    elif isinstance(source, list | tuple) and source and not isinstance(source[0], Mapping | str):
        if labelled:
            arrays, labels = [], []
            for number, pair in enumerate(source, start=1):
                if not isinstance(pair, tuple | list) or len(pair) != 2:
                    wanted = "a pair of an array and its " + ("tags" if each_step else "label")
                    raise WeftError(f"example {number} is {short_repr(pair)}", expected=wanted)
                arrays.append(pair[0])
                labels.append(pair[1])
        else:
            arrays, labels = list(source), None
    else:
        return None
    if labels is None and labelled:
        raise WeftError("there are arrays without labels", expected="a pair: all arrays, and a label for each")
    if labels is not None and len(labels) != len(arrays):
        raise WeftError(f"there are {len(arrays):,} arrays and {len(labels):,} labels", expected="one for each array")
    found = read_arrays(arrays)
    texts: list[Any] = [""] * len(arrays) if labels is None else labels
    if labels is not None and not each_step:
        texts = [_text(one) for one in labels]
    if labels is not None and each_step:
        texts = [[_text(tag) for tag in row] for row in labels]
    return SeriesExamples(found, texts, [f"example {number}" for number in range(1, len(arrays) + 1)])


def _is_many(values: Any) -> bool:
    """Whether values are several arrays, and not one array with its label."""
    if isinstance(values, np.ndarray):
        return values.ndim > 1
    return isinstance(values, list) and bool(values) and np.ndim(values[0]) > 0


def _rows_of(values: Any) -> list[Any]:
    """The arrays (T,) or (T, C) of a list, or of an array (N, T) or (N, C, T)."""
    if not isinstance(values, np.ndarray):
        return list(values)
    if values.ndim not in (2, 3):
        raise WeftError(f"the arrays have the shape {values.shape}", expected="(N, T), or (N, C, T) of C channels")
    return list(values if values.ndim == 2 else values.transpose(0, 2, 1))


def _text(label: Any) -> str:
    """A label as text: whole numbers without a point; "" if it is missing."""
    if label is None or (isinstance(label, float | np.floating) and np.isnan(label)):
        return ""
    if isinstance(label, float | np.floating) and float(label).is_integer():
        label = int(label)
    return str(label).strip()


# Tables.


def _label_column(table: TypedColumns, columns: SeriesColumns, label: str, *, labelled: bool) -> str:
    """The column of the labels: as set, by a usual name, or the only one of names that is no id; "" without one."""
    if label:
        if not labelled and label not in table.names:
            return ""
        return table.check(label, "data.label_column")
    taken = {name for part in (columns.id, columns.time, columns.target) for name in part or ()}
    free = [name for name in table.names if name not in taken]
    lowered = {name.strip().lower(): name for name in reversed(free)}
    usual = next((lowered[name] for name in STEP_LABEL_NAMES[:-1] if name in lowered), None)
    if usual is None:
        time = columns.time if columns.time is not None else time_columns(table, free)
        ids = columns.id if columns.id is not None else id_columns(table, free, time, None)
        texts = [name for name in free if table.is_text(name) and name not in (*time, *ids)]
        usual = texts[0] if len(texts) == 1 else lowered.get(STEP_LABEL_NAMES[-1])
    if usual is None and labelled:
        raise WeftError(
            f"{table.location} has no column of labels: its columns are {', '.join(map(repr, table.names[:12]))}",
            expected=f"one with a usual name, such as {STEP_LABEL_NAMES[0]}",
            hint=f"`data.label_column={table.names[0]}`, if these are the labels",
        )
    return usual or ""


def _without(table: TypedColumns, name: str) -> TypedColumns:
    """A table without a column."""
    kept = [place for place, other in enumerate(table.names) if other != name]
    return replace(table, names=tuple(table.names[n] for n in kept), columns=tuple(table.columns[n] for n in kept))


def _has_row_a_series(table: TypedColumns, columns: SeriesColumns, label: str) -> bool:
    """Whether each row is a series: there are no times, and names, if there are any, occur once."""
    if columns.layout == "rows":
        return True
    if columns.target is not None or columns.time or columns.id:
        return False
    rest = _without(table, label)
    time = time_columns(rest, rest.names)
    texts = [name for name in rest.names if rest.is_text(name)]
    unique = all(len(rest.categories(name).values) == len(rest) for name in texts)
    return not time and unique and len(texts) < 2 and len(rest.names) - len(texts) >= FEWEST_STEPS


def _series_in_rows(table: TypedColumns, columns: SeriesColumns, label: str) -> SeriesExamples:
    """Examples of a table with a row for each series; missing values at its end are beyond the end of a series."""
    rest = _without(table, label)
    ids = columns.id or tuple(name for name in rest.names if rest.is_text(name))[:1]
    values = np.stack([rest.numbers(name, "step") for name in rest.names if name not in ids], axis=1)  # (N, T)
    there = ~np.isnan(values)
    if not there.any(1).all():
        row = int(np.argmin(there.any(1)))
        raise WeftError(f"{table.place(row)}: all values are missing", expected="numbers")
    lengths = values.shape[1] - np.argmax(there[:, ::-1], axis=1)
    read = read_arrays([row[:length] for row, length in zip(values, lengths.tolist(), strict=True)])
    named = rest.categories(ids[0]) if ids else None
    names = [str(row + 1) if named is None else named.values[named.codes[row]] for row in range(len(table))]
    series = tuple(replace(one, id=name) for one, name in zip(read, names, strict=True))
    reading = (f"{table.location}: {table.description}, a row for each of {len(series):,} series",)
    labels = _cells(table, label) if label else [""] * len(table)
    places = [table.place(row) for row in range(len(table))]
    known = SeriesColumns(ids, layout="rows")
    return SeriesExamples(replace(read, series=series, columns=known, reading=reading), labels, places, label)


def _long(
    table: TypedColumns, columns: SeriesColumns, label: str, *, each_step: bool, rules: Mapping[str, str]
) -> SeriesExamples:
    """Examples of a long table."""
    labels = table.categories(label) if label else Names(np.full(len(table), -1), [])
    rest = _without(table, label)
    free = [name for name in rest.names if name not in (columns.target or ())]
    time = columns.time if columns.time is not None else time_columns(rest, free)
    ids = columns.id if columns.id is not None else id_columns(rest, free, time, columns.target)
    target = columns.target
    if target is None:
        target = tuple(name for name in rest.names if name not in (*time, *ids) and not rest.is_text(name))
    for role, part in (("id", ids), ("time", time), ("target", target)):
        for name in part:
            rest.check(name, f"data.{role}")
    if not target:
        raise WeftError(f"{table.location} has no column of numbers", expected="a column for each channel")
    if not ids and not each_step:
        raise WeftError(
            f"{table.location} has no column that names the series of a row",
            expected="one, such as `id`, or a row for each series",
            hint=f"`data.id={rest.names[0]}`",
        )
    # The labels go with the values as a channel of their numbers, so that both are put on the steps in one way.
    codes = labels.codes.astype(np.float64)  # -1 where there is none
    name = label or "label"
    table = replace(rest, names=(*rest.names, name), columns=(*rest.columns, codes))
    chosen = SeriesColumns(tuple(ids), tuple(time), (*target, name), (), (), (), "long")
    steps = {"freq": "", "aggregate": "mean", "duplicates": "refuse", **rules}
    frequency = Frequency.parse(steps["freq"]) if steps["freq"] else None
    left_out = [f"{other!r}" for other in rest.names if other not in (*ids, *time, *target)]
    words = [f"columns left out: {', '.join(left_out)} (text)"] if left_out else []
    read = read_long(table, chosen, StepRules(frequency, steps["aggregate"], steps["duplicates"]), words)
    found: list[Any] = []
    for one in read:
        numbers = one.target[:, -1]
        if not (np.isnan(numbers) | (numbers == np.round(numbers))).all():
            raise WeftError(f"{table.location}: labels of several rows fall on one step, and have no mean",
                            expected="`data.aggregate=first`, last, min or max")  # fmt: skip
        tags: list[str] = []
        for number in numbers.tolist():  # a step without a row goes on with the label before it
            tags.append(tags[-1] if np.isnan(number) else labels.values[int(number)] if number >= 0 else "")
        if each_step:
            found.append(tags)
            continue
        different = list(dict.fromkeys(filter(None, tags)))
        if len(different) > 1:
            raise WeftError(
                f"{table.location}: series {one.id!r} has the labels {different[0]!r} and {different[1]!r}",
                expected="one label for each series",
                hint="`weft train tag` for a label of each step",
            )
        found.append(different[0] if different else "")
    series = tuple(replace(one, target=np.array(one.target[:, :-1])) for one in read)
    reading = tuple(line.replace(f", {name!r}", "", 1) for line in read.reading if "constant" not in line)
    known = replace(read.columns, target=target)
    bare = replace(read, series=series, channels=target, columns=known, reading=reading)
    places = [f"{table.location}, series {one.id!r}" for one in bare]
    return SeriesExamples(bare, found, places, label)


def _cells(table: TypedColumns, name: str) -> list[str]:
    column = table.categories(name)
    return [column.values[code] if code >= 0 else "" for code in column.codes.tolist()]


def _named(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else "the data"


def given_series(values: Any, field: Series, label: str = "", *, each_step: bool = False) -> list[TimeSeries]:
    """Series of a field without labels: lists or arrays (T,) or (T, C), an array (N, T) or (N, C, T), a table, a file.

    Args:
        values: the series.
        field: that of the training data, whose columns a table has.
        label: the column of the labels in the training data, which is not read.
        each_step: whether such a label belongs to a step.
    """
    is_table = isinstance(values, SeriesSet | Mapping | str | Path | np.ndarray) or hasattr(values, "columns")
    if is_table:
        with_columns = isinstance(values, str | Path | Mapping) or hasattr(values, "columns")
        columns = field.columns if with_columns else SeriesColumns()
        read = read_examples(values, columns, label, each_step=each_step, labelled=False)
        return list(same_channels(read.series, field.channels, values))
    found = []
    for number, value in enumerate(values, start=1):
        if isinstance(value, TimeSeries):
            field.encode(value)  # checks the channels
            found.append(value)
        else:
            plain = value.tolist() if isinstance(value, np.ndarray) else value
            found.append(field.of_json(plain, f"series {number}"))
    return found


def same_channels(found: SeriesSet, channels: Sequence[str], source: Any) -> SeriesSet:
    """The series, unless their number of channels is another.

    Raises:
        WeftError: it is.
    """
    if len(found.channels) != len(channels):
        raise WeftError(
            f"{_named(source)} has {len(found.channels)} channels ({', '.join(found.channels[:12])})",
            expected=f"{len(channels)}: {', '.join(channels[:12])}",
        )
    return found
