"""Files that hold series as such: `.tsf` and `.ts` of the archives, JSON lines with a series each, arrays of NumPy."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.column import Array
from weft.errors import WeftError, short_repr
from weft.series.frequency import COUNTER, Frequency, Time, infer_frequency
from weft.series.time_series import LARGEST_VALUE, SeriesSet, TimeSeries
from weft.series.times import COUNTER_FORMAT, TimeFormat
from weft.text.corpus import Document
from weft.text.sources import check_expansion
from weft.text.tables import json_objects, numbered_lines

TSF_FREQUENCIES = {
    "4_seconds": "4s", "minutely": "min", "10_minutes": "10min", "15_minutes": "15min", "half_hourly": "30min",
    "hourly": "h", "daily": "D", "weekly": "W", "monthly": "MS", "quarterly": "QS", "yearly": "YS",
}  # fmt: skip
JSON_IDS, JSON_STARTS, JSON_TARGETS = ("id", "unique_id", "item_id"), ("start", "ds", "times"), ("y", "target")
JSON_PARTS = {"known": ("known", "feat_dynamic_real"), "past": ("past", "past_feat_dynamic_real"),
              "static": ("static", "feat_static_cat")}  # fmt: skip


def read_arrays(source: Any) -> SeriesSet:
    """Series of arrays: one (T,) or (T, C), a list of such, a `.npy` of one, or a `.npz` with an array a series."""
    where = str(source) if isinstance(source, Path) else "the arrays"
    if isinstance(source, Path):
        named = _read_numpy(source)
    elif isinstance(source, np.ndarray):
        named = {"": source}
    elif all(isinstance(value, int | float | np.number) or value is None for value in source):
        named = {"": np.array([np.nan if value is None else value for value in source], np.float64)}
    else:
        named = {str(number): value for number, value in enumerate(source, start=1)}
    series = [TimeSeries(name, 0, COUNTER, _steps(values, f"{where}: {name or 'the array'}"))
              for name, values in named.items()]  # fmt: skip
    widths = {one.target.shape[1] for one in series}
    if len(widths) > 1:
        raise WeftError(f"{where} have {', '.join(map(str, sorted(widths)))} channels", expected="the same for all")
    width = widths.pop()
    channels = ("y",) if width == 1 else tuple(f"y{number}" for number in range(1, width + 1))
    lengths = [len(one) for one in series]
    words = f"{len(series):,} series of {width} channel{'s' * (width != 1)}"
    reading = f"{where}: {words}, {min(lengths):,} to {max(lengths):,} steps"
    return SeriesSet(tuple(series), channels, reading=(reading,))


def _read_numpy(path: Path) -> dict[str, Any]:
    """The arrays of a `.npy` (with the name "") or `.npz` file, none larger than what the file holds."""
    try:
        if path.suffix.lower() == ".npy":
            return {"": np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))}
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                check_expansion(f"{path}:{member.filename}", member.compress_size, member.file_size)
        with np.load(path, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, MemoryError, OverflowError, zipfile.BadZipFile, zlib.error) as error:
        raise WeftError(f"{path} cannot be read: {error}", expected="arrays of numbers, saved by NumPy") from error


def _steps(values: Any, what: str) -> Array:
    """Values as (T, C), checked to be missing or not too large, and some of them there."""
    try:
        if np.iscomplexobj(values):
            raise TypeError("complex numbers")
        found = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise WeftError(f"{what} is {short_repr(values)}", expected="numbers, equally many in each step") from error
    if found.ndim not in (1, 2) or not found.size:
        raise WeftError(f"{what} has the shape {found.shape}", expected="(T,) values, or (T, C) of several channels")
    found = found.reshape(len(found), -1)
    beyond = np.argwhere(np.abs(found) > LARGEST_VALUE)
    if len(beyond):
        step, channel = beyond[0]
        size = "infinite" if np.isinf(found[step, channel]) else f"{found[step, channel]:g}"
        raise WeftError(
            f"{what}: step {step + 1}, channel {channel + 1} is {size}",
            expected=f"numbers up to {LARGEST_VALUE:g}, or NaN",
        )
    if np.isnan(found).all():
        raise WeftError(f"{what}: all values are missing", expected="numbers")
    return found


def read_json_series(document: Document) -> SeriesSet | None:
    """The series of JSON lines, an object with a list of values each; None if they are rows of a table."""
    objects = json_objects(document)
    if not objects or not any(isinstance(objects[0][1].get(name), list) for name in JSON_TARGETS):
        return None
    places = [f"{document.location}:{line}" for line, _ in objects]
    return series_of_json([record for _, record in objects], places)


def series_of_json(records: Sequence[Mapping[str, Any]], places: Sequence[str], *, frequency: Frequency | None = None,
                   form: TimeFormat | None = None, channels: Sequence[str] = ()) -> SeriesSet:  # fmt: skip
    """Series of objects with `id`, `start` or `ds`, `y`, and, where there are, `known`, `past`, `static` and `freq`.

    `y` is a list of numbers, or of lists with one for each channel, and null is a missing value; `start` is the time of
    the first, `ds` may be the list of all times. Covariates are lists of steps.

    Args:
        records: the objects.
        places: what messages call each.
        frequency: the step of time where an object does not say it.
        form: how its times are written; None: detected.
        channels: the names of the channels.
    """
    series: list[TimeSeries] = []
    times = [_first_of(record, JSON_STARTS) for record in records]
    written = [str(time) for listed in times for time in (listed if isinstance(listed, list) else [listed])
               if time is not None]  # fmt: skip
    form = form or TimeFormat.detect(list(dict.fromkeys(written)))
    for record, place, start in zip(records, places, times, strict=True):
        name = str(_first_of(record, JSON_IDS) if _first_of(record, JSON_IDS) is not None else "")
        values = _steps(_nulls(_first_of(record, JSON_TARGETS), place), f"{place}: y")
        named = record.get("freq")
        begin, step = _start(start, str(named) if named else "", len(values), form, frequency, place)
        parts = {role: _first_of(record, names) for role, names in JSON_PARTS.items()}
        covariates = {role: _steps_or_none(parts[role], f"{place}: {role}") for role in ("known", "past")}
        for role, least in (("known", len(values)), ("past", len(values))):
            found = covariates[role]
            if found is not None and (len(found) < least or (role == "past" and len(found) > least)):
                more = ", and more" if role == "known" else ""
                given = f"{place}: {role} has {len(found)} steps, and y {len(values)}"
                raise WeftError(given, expected=f"a step for each of y{more}")
        static = parts["static"] or ()
        if not isinstance(static, Mapping | list | tuple):
            raise WeftError(f"{place}: static is {short_repr(static)}", expected="a list of values")
        fixed = tuple(static.values()) if isinstance(static, Mapping) else tuple(static)
        series.append(TimeSeries(name, begin, step, values, covariates["known"], covariates["past"], fixed))
        frequency = frequency or step
        if step != frequency:
            raise WeftError(f"{place} has a value {step.words}, the first series {frequency.words}",
                            expected="series of one frequency")  # fmt: skip
    first = series[0]
    widths = [(one.target.shape[1], one.known.shape[1], one.past.shape[1], len(one.static)) for one in series]
    other = next((number for number, width in enumerate(widths) if width != widths[0]), None)
    if other is not None:
        raise WeftError(f"{places[other]} has {widths[other]} channels, known, past and static values",
                        expected=f"{widths[0]}, as the first series")  # fmt: skip
    if channels and len(channels) != widths[0][0]:
        raise WeftError(f"{places[0]}: y has {widths[0][0]} channels", expected=", ".join(channels))
    names = tuple(channels) or (("y",) if widths[0][0] == 1 else _numbered("y", widths[0][0]))
    return SeriesSet(
        tuple(series), names, _numbered("known", widths[0][1]), _numbered("past", widths[0][2]),
        _numbered("static", widths[0][3]), first.frequency,
        (f"{places[0].rpartition(':')[0] or places[0]}: {len(series):,} series of lists",), form,
    )  # fmt: skip


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}{number}" for number in range(1, count + 1))


def _first_of(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if name in record), None)


def _nulls(values: Any, place: str) -> list[Any]:
    """A list of numbers, or of lists of numbers, with NaN for null."""
    if not isinstance(values, list):
        raise WeftError(f"{place}: y is {str(values)[:60]}", expected="a list of numbers")
    if not all(value is None or type(value) in (int, float, list) for value in values):
        wrong = next(value for value in values if not (value is None or type(value) in (int, float, list)))
        raise WeftError(f"{place}: y has {str(wrong)[:60]!r}", expected="numbers, or null where they are missing")
    return [[np.nan if one is None else one for one in value] if isinstance(value, list) else
            np.nan if value is None else value for value in values]  # fmt: skip


def _steps_or_none(values: Any, what: str) -> Any:
    return None if not values else _steps(_nulls(values, what), what)


def _start(written: Any, named: str, count: int, form: TimeFormat, frequency: Frequency | None,
           place: str) -> tuple[Time, Frequency]:  # fmt: skip
    """The first time of a series, and its step."""
    step = Frequency.parse(named) if named else frequency
    if written is None:
        return 0, COUNTER
    listed = [str(time) for time in written] if isinstance(written, list) else [str(written)]
    times = form.read(listed)
    begin: Time = int(times[0]) if form.is_counter else times[0]
    if len(listed) > 1:
        if len(listed) != count:
            raise WeftError(f"{place}: {len(listed)} times, and {count} values", expected="a time for each value")
        step = step or infer_frequency([times])
        if step is None or not (step.range(begin, count) == times).all():
            raise WeftError(f"{place}: the times of a list are not on equal steps", expected="equal steps, in order",
                            hint="null for missing values")  # fmt: skip
    if step is None:
        step = COUNTER if form.is_counter else None
    if step is None:
        raise WeftError(f"{place} has a start and no `freq`", expected='the step of time, such as "freq": "h"')
    if step.has_times == form.is_counter:
        raise WeftError(f"{place}: start is {listed[0]!r}, and a step is {step.name}", expected="a date, or a counter")
    return begin, step


def read_tsf(document: Document) -> SeriesSet:
    """The series of a `.tsf` file of the Monash archive: attributes, then values between commas, after colons."""
    attributes: list[tuple[str, str]] = []
    frequency: Frequency | None = None
    rows: list[tuple[int, list[str]]] = []
    inside = False
    for number, line in numbered_lines(document):
        text = line.strip()
        place = f"{document.location}:{number}"
        if not text or text.startswith("#"):
            continue
        if inside:
            parts = text.split(":", len(attributes))
            if len(parts) != len(attributes) + 1:
                raise WeftError(
                    f"{place} has {len(parts) - 1} attributes", expected=f"{len(attributes)} before the values"
                )
            rows.append((number, parts))
            continue
        word, *rest = text.split()
        if word.lower() == "@attribute" and len(rest) >= 2:
            attributes.append((rest[0], rest[1].lower()))
        elif word.lower() == "@frequency" and rest:
            frequency = _tsf_frequency(rest[0], place)
        inside = inside or word.lower() == "@data"
    if not rows:
        raise WeftError(
            f"{document.location} has no series", expected="@attribute lines, @data, and a series on each line"
        )
    names = [name for name, _ in attributes]
    dated = next((column for column, (_, kind) in enumerate(attributes) if kind == "date"), None)
    form = COUNTER_FORMAT
    if dated is not None:
        form = TimeFormat.detect(list(dict.fromkeys(parts[dated] for _, parts in rows)))
    elif frequency is not None:
        frequency = None  # without a start there are no times
    if dated is not None and frequency is None:
        raise WeftError(f"{document.location} has times and no @frequency", expected="@frequency, such as hourly")
    series: list[TimeSeries] = []
    called = names.index("series_name") if "series_name" in names else None
    static = [column for column in range(len(names)) if column not in (called, dated)]
    for number, parts in rows:
        place = f"{document.location}:{number}"
        values = _steps(_written_values(parts[-1].split(","), place), place)
        begin: Time = 0 if dated is None else form.read([parts[dated]])[0]
        fixed = tuple(float(parts[n]) if attributes[n][1] == "numeric" else parts[n] for n in static)
        name = parts[called] if called is not None else str(len(series) + 1)
        series.append(TimeSeries(name, begin, frequency or COUNTER, values, static=fixed))
    step = frequency or COUNTER
    reading = f"{document.location}: .tsf, {len(series):,} series, a value {step.words} ({step.name})"
    return SeriesSet(tuple(series), static=tuple(names[column] for column in static), frequency=step, time_format=form,
                     reading=(reading,))  # fmt: skip


def _tsf_frequency(name: str, place: str) -> Frequency:
    if name in TSF_FREQUENCIES:
        return Frequency.parse(TSF_FREQUENCIES[name])
    match = re.fullmatch(r"(\d+)_(\w+)", name)
    try:
        return Frequency.parse(f"{match[1]}{match[2]}" if match else name)
    except WeftError as error:
        raise WeftError(f"{place}: {error.given}", expected=f"one of: {', '.join(TSF_FREQUENCIES)}") from error


def _written_values(cells: Sequence[str], place: str) -> list[float]:
    found = []
    for number, cell in enumerate(cells, start=1):
        text = cell.strip()
        try:
            found.append(np.nan if text in ("?", "") or text.lower() == "nan" else float(text))
        except ValueError:
            raise WeftError(
                f"{place}: value {number} is {text[:40]!r}", expected="a number, or ? where it is missing"
            ) from None
    return found


def read_ts(document: Document) -> SeriesSet:
    """The series of a `.ts` file of the classification archives: dimensions between colons, the class last."""
    header: dict[str, list[str]] = {}
    series: list[TimeSeries] = []
    inside = False
    for number, line in numbered_lines(document):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if not inside:
            word, *rest = text.split()
            if not word.startswith("@"):
                raise WeftError(f"{document.location}:{number} is {text[:40]!r}", expected="@ lines before @data")
            header[word[1:].lower()] = rest
            inside = word.lower() == "@data"
            continue
        labelled = any(header.get(name, ["false"])[0].lower() == "true" for name in ("classlabel", "targetlabel"))
        series.append(_ts_series(text, f"{document.location}:{number}", str(len(series) + 1), labelled=labelled,
                                 timed=header.get("timestamps", ["false"])[0].lower() == "true"))  # fmt: skip
    if not series:
        raise WeftError(f"{document.location} has no series", expected="@ lines, @data, and a series on each line")
    widths = {one.target.shape[1] for one in series}
    if len(widths) > 1:
        raise WeftError(f"{document.location}: series have {' and '.join(map(str, sorted(widths)))} dimensions",
                        expected="the same for all")  # fmt: skip
    width = widths.pop()
    static = ("class",) if series[0].static else ()
    reading = f"{document.location}: .ts, {len(series):,} series of {width} dimensions"
    return SeriesSet(tuple(series), ("y",) if width == 1 else _numbered("y", width), static=static, reading=(reading,))


def _ts_series(text: str, place: str, name: str, *, labelled: bool, timed: bool) -> TimeSeries:
    parts = text.split(":")
    label = (parts.pop().strip(),) if labelled else ()
    if not parts:
        raise WeftError(f"{place} has no values", expected="numbers between commas, dimensions between colons")
    if timed:  # (time,value) pairs
        parts = [",".join(re.findall(r"\([^,()]*,([^()]*)\)", part)) for part in parts]
    values = [_written_values(part.split(","), place) for part in parts]
    longest = max(map(len, values))
    padded = [[*row, *[np.nan] * (longest - len(row))] for row in values]
    return TimeSeries(name, 0, COUNTER, _steps(np.array(padded).T, place), static=label)
