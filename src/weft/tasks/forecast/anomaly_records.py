"""What `weft anomalies` writes: a row for each value of a series, and the lines of a series that is followed."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Annotated, Any, NamedTuple

import numpy as np

from weft import html
from weft.errors import WeftError, short_repr
from weft.series import Series, SeriesSet, TimeSeries
from weft.series.frequency import DAY, DURATIONS, SECOND, WEEK, Frequency
from weft.series.time_series import LARGEST_VALUE
from weft.tasks.forecast.anomalies import Detector, Scores
from weft.tasks.forecast.linear import Array
from weft.tasks.operation import Option

ShowInterval = Annotated[
    bool, Option("Show the forecast of each value, and the ends of the interval without an alarm.")
]
LONGEST_LINE = 1 << 20  # characters
LONGEST_GAP = 100_000  # steps between a value and the one before it


@dataclass(frozen=True)
class SeriesAnomalies:
    """The anomaly scores of the values of one series.

    Attributes:
        id: the name of the series.
        times: (T,) the times, as the input writes them.
        channels: the names of the channels.
        values: (T, C) the values.
        scores: (T,) -log10 of the rate of alarms at a threshold of this height; NaN where there is none.
        anomalies: (T,) whether a value is one at the rate.
        expected: (T, C) the value that was forecast, with the ends of the interval without an alarm.
        lower: (T, C)
        upper: (T, C)
        named: whether the series has a name.
        moments: (T,) the times as datetime64, or integers.
    """

    id: str
    times: tuple[str, ...]
    channels: tuple[str, ...]
    values: Array
    scores: Array
    anomalies: np.ndarray[Any, np.dtype[np.bool_]]
    expected: Array
    lower: Array
    upper: Array
    named: bool
    moments: Array

    def columns(self, *, interval: bool = False) -> dict[str, list[Any]]:
        """The columns of a table: unique_id, ds, y, score, anomaly; several channels have their names in place of y."""
        found: dict[str, list[Any]] = {"unique_id": [self.id] * len(self.times)} if self.named else {}
        found["ds"] = list(self.times)
        names = ("y",) if len(self.channels) == 1 else self.channels
        for place, name in enumerate(names):
            found[name] = self.values[:, place].tolist()
        found["score"], found["anomaly"] = self.scores.tolist(), self.anomalies.tolist()
        if interval:
            for place, name in enumerate(names):
                expected = "weft" if len(names) == 1 else f"{name}-weft"
                ends = {"": self.expected, "-lo": self.lower, "-hi": self.upper}
                found |= {f"{expected}{end}": values[:, place].tolist() for end, values in ends.items()}
        return found

    def to_text(self, number: int, interval: ShowInterval = False) -> str:
        """Rows of CSV; the first record has the names of the columns above."""
        columns = self.columns(interval=interval)
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        if not number:
            rows.writerow(columns)
        rows.writerows([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))
        return text.getvalue()

    def to_json(self, interval: ShowInterval = False) -> dict[str, Any]:
        """Without what depends on the other series: a name stands where this one has it."""
        found: dict[str, Any] = {
            name: [None if isinstance(value, float) and not np.isfinite(value) else value for value in values]
            for name, values in self.columns(interval=interval).items()
        }
        found.pop("unique_id", None)
        return {**({"unique_id": self.id} if self.id else {}), **found}

    def records(self) -> Iterator[dict[str, Any]]:
        """A row for each value."""
        columns = self.columns()
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))

    def _repr_html_(self) -> str:
        names = list(self.columns())
        shown = [
            (str(row[names.index("ds")]), [(_cell(value), 0.0, "") for value in row[names.index("ds") + 1 :]])
            for row, alarm in zip(zip(*self.columns().values(), strict=True), self.anomalies, strict=True)
            if alarm
        ]
        return html.box(html.heading(self.id or "Anomalies") + html.table(shown, names[names.index("ds") + 1 :], "ds"))


def _anomalies(
    series: TimeSeries, begin: int, scores: Sequence[Scores], found: SeriesSet, *, rate: float
) -> SeriesAnomalies:
    """The record of the steps of a series from `begin` on, of the scores (T - begin,) of each channel."""
    highest = np.fmax.reduce([one.values for one in scores])
    moments = series.frequency.range(series.start, len(series) - begin, first=begin)
    expected, lower, upper = (np.stack(part, 1) for part in list(zip(*scores, strict=True))[1:])
    return SeriesAnomalies(
        series.id,
        tuple(found.time_format.write(moments)) if series.frequency.has_times else tuple(map(str, moments.tolist())),
        found.channels,
        series.target[begin:],
        highest,
        np.nan_to_num(highest) >= -math.log10(rate),
        expected,
        lower,
        upper,
        len(found) > 1 or any(one.id for one in found),
        moments,
    )


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}" if np.isfinite(value) else ""
    return str(value)


def alarms_in_words(rate: float, frequency: Frequency) -> str:
    """How many false alarms a rate is.

    >>> alarms_in_words(0.001, Frequency.parse("5min"))
    'a rate of 0.001 is one false alarm in 1,000 values: with a value every 5 minutes, 2 a week in each series'
    """
    words = f"a rate of {rate:g} is one false alarm in {round(1 / rate):,} values"
    if not frequency.has_times:
        return words
    step = {"us": frequency.count, "B": WEEK * frequency.count // 5}.get(frequency.unit, 30 * DAY * frequency.count)
    spans = {"second": SECOND, "minute": DURATIONS["min"], "hour": DURATIONS["h"], "day": DAY, "week": WEEK}
    spans |= {"year": 365 * DAY, "century": 36500 * DAY}
    name, span = next(
        ((name, span) for name, span in spans.items() if rate * span / step >= 0.5), ("century", 36500 * DAY)
    )
    return f"{words}: with a value {frequency.words}, {rate * span / step:.2g} a {name} in each series"


class FollowedValue(NamedTuple):
    """A line of a series that is followed.

    Attributes:
        id: the name of the series; "": not given.
        time: None: one step after the last.
        values: (C,) NaN: missing.
    """

    id: str
    time: str | None
    values: Array


def lines_as_they_arrive(stream: IO[str]) -> Iterator[str]:
    """The lines of a stream, each as soon as it is there.

    Raises:
        WeftError: a line is too long to be one of values, or no text.
    """
    for number in itertools.count(1):
        try:
            line = stream.readline(LONGEST_LINE)
        except UnicodeDecodeError as error:
            raise WeftError(f"line {number} or one after it is no text: {error}", expected="UTF-8 text") from error
        if not line:
            return
        if len(line) == LONGEST_LINE:
            raise WeftError(
                f"line {number} has {LONGEST_LINE:,} characters or more", expected="a line for the values of each step"
            )
        yield line


def read_followed(lines: Iterable[str], layout: Series) -> Iterator[FollowedValue]:
    """The values of lines: `value`, `time,value` or `name,time,value` as CSV, or JSON objects with "y".

    A first line may name the columns. Several channels have a cell each, in their order.
    """
    names: list[str] | None = None
    for number, line in enumerate(lines, start=1):
        if not (text := line.strip()):
            continue
        if text.startswith("{"):
            yield _of_json(text, number, layout)
            continue
        try:
            cells = [cell.strip() for cell in next(csv.reader([text]))]
        except csv.Error as error:
            raise WeftError(f"line {number} is {short_repr(text)}: {error}", expected="values with commas") from error
        if number == 1 and not all(_is_number(cell) for cell in cells[-len(layout.channels) :]):
            names = cells
            continue
        yield _of_cells(cells, names, number, layout)


def _of_cells(cells: Sequence[str], names: Sequence[str] | None, number: int, layout: Series) -> FollowedValue:
    channels = layout.channels
    wanted = {"id": layout.columns.id or ("unique_id",), "time": layout.columns.time or ("ds",)}
    target = "y" if len(channels) == 1 and names is not None and channels[0] not in names else None
    columns = (target,) if target else channels
    if names is not None and len(cells) == len(names) and all(name in names for name in columns):
        row = dict(zip(names, cells, strict=True))
        given = {role: next((row[name] for name in (*own, "unique_id" if role == "id" else "ds") if name in row), None)
                 for role, own in wanted.items()}  # fmt: skip
        return FollowedValue(given["id"] or "", given["time"], _numbers([row[name] for name in columns], number))
    before = len(cells) - len(channels)
    if not 0 <= before <= 2:
        raise WeftError(
            f"line {number} has {len(cells)} cells: {short_repr(','.join(cells))}",
            expected=f"{', '.join(channels)}, before it the time, before it the name of the series",
        )
    name, moment = (cells[0] if before == 2 else ""), (cells[before - 1] if before else None)
    return FollowedValue(name, moment, _numbers(cells[before:], number))


def _of_json(text: str, number: int, layout: Series) -> FollowedValue:
    try:
        record: Mapping[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WeftError(f"line {number} is no JSON: {error}", expected='{"ds": ..., "y": ...}') from error
    values = record.get("y", [record.get(name) for name in layout.channels])
    cells = ["" if one is None else str(one) for one in (values if isinstance(values, list) else [values])]
    if len(cells) != len(layout.channels):
        raise WeftError(f"line {number} has {len(cells)} values", expected=f"{len(layout.channels)}")
    moment = record.get("ds")
    return FollowedValue(
        str(record.get("unique_id", "")), None if moment is None else str(moment), _numbers(cells, number)
    )


def _numbers(cells: Sequence[str], number: int) -> Array:
    for cell in cells:
        if not _is_number(cell):
            raise WeftError(
                f"line {number} has the value {cell[:60]!r}", expected="a number, or nothing if it is missing"
            )
    found = np.array([float(cell) if cell else np.nan for cell in cells])
    if (np.abs(found) > LARGEST_VALUE).any():
        raise WeftError(
            f"line {number} has a value that is infinite or too large", expected=f"numbers up to {LARGEST_VALUE:g}"
        )
    return found


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _steps_between(series: TimeSeries, length: int, moment: str | None, layout: Series, number: int) -> int:
    """The missing steps before a value at a time, in a series of a length so far.

    Raises:
        WeftError: the time is not after the last one, or not on a step.
    """
    if moment is None:
        return 0
    time = layout.time_format.read([moment])
    place = int(series.frequency.steps(series.start, time)[0])
    own = series.frequency.range(series.start, 1, first=place)[0] if place >= 0 else None
    if place < length or own != time[0] or place - length > LONGEST_GAP:
        last = layout.time_format.write(series.frequency.range(series.start, 1, first=length))[0]
        raise WeftError(
            f"value {number} that is followed is at {moment}",
            expected=f"a time {series.frequency.words}, from {last} on",
        )
    return place - length


def score_series(
    detector: Detector, found: SeriesSet, trained: Mapping[str, TimeSeries], *, rate: float
) -> Iterator[SeriesAnomalies]:
    """The scores of series, each after what the training knows of it."""
    for one in found:
        whole, begin = _with_history(one, trained)
        rows = list(whole.target.T)
        scores = detector.score(rows, rate=rate, channels=len(rows))
        parts = [Scores(*(part[begin:] for part in channel)) for channel in scores]
        yield _anomalies(whole, begin, parts, found, rate=rate)


def follow_series(
    detector: Detector,
    found: SeriesSet,
    trained: Mapping[str, TimeSeries],
    lines: Iterable[str],
    layout: Series,
    *,
    rate: float,
) -> Iterator[SeriesAnomalies]:
    """The score of each line when it arrives, after the series that came before."""
    histories = {one.id: one for one in found}
    followed: dict[str, _FollowedSeries] = {}
    for number, value in enumerate(read_followed(lines, layout), start=1):
        name = value.id if value.id or len(histories) != 1 else next(iter(histories))
        if name not in histories:
            raise WeftError(
                f"value {number} that is followed is of the series {name!r}",
                expected=f"one of {len(histories):,}, such as {next(iter(histories), '')!r}",
            )
        if name not in followed:
            followed[name] = _FollowedSeries(detector, _with_history(histories[name], trained)[0])
        series = followed[name]
        missing = _steps_between(series.series, series.length, value.time, layout, number)
        scores = series.step(value.values, missing, rate=rate)
        last = TimeSeries(name, series.time, found.frequency, value.values[None])
        yield _anomalies(last, 0, scores, found, rate=rate)


class _FollowedSeries:
    """The state of a detector for each channel of a series."""

    def __init__(self, detector: Detector, series: TimeSeries) -> None:
        self.detector, self.series, self.length = detector, series, 0
        self.states: list[Any] = [None] * series.target.shape[1]  # None: no value yet
        for values in series.target:
            self._advance(values, rate=0.5)

    @property
    def time(self) -> Any:
        """The time of the last step."""
        return self.series.frequency.range(self.series.start, 1, first=self.length - 1)[0]

    def step(self, values: Array, missing: int, *, rate: float) -> list[Scores]:
        """The scores (1,) of each channel for values (C,) that come after some missing steps."""
        for _ in range(missing):
            self._advance(np.full(len(values), np.nan), rate=rate)
        return self._advance(values, rate=rate)

    def _advance(self, values: Array, *, rate: float) -> list[Scores]:
        self.length += 1
        found = []
        for channel, value in enumerate(values):
            scores, state = Scores(*np.full((4, 1), np.nan)), self.states[channel]
            if state is not None or not np.isnan(value):
                state = self.detector.start(1) if state is None else state
                scores, self.states[channel] = self.detector.step(
                    np.array([value]), state, rate=rate, channels=len(values)
                )
            found.append(scores)
        return found


def _with_history(one: TimeSeries, trained: Mapping[str, TimeSeries]) -> tuple[TimeSeries, int]:
    """A series after the values of the training that came before it, and the step at which it begins."""
    own = trained.get(one.id)
    if own is None or own.frequency != one.frequency or not one.frequency.has_times:
        return one, 0
    offset = int(one.frequency.steps(own.start, np.array([one.start]))[0])
    if not 0 < offset <= len(own) + LONGEST_GAP:
        return one, 0
    before = np.full((offset, one.target.shape[1]), np.nan)
    before[: len(own)] = own.target[:offset]
    return TimeSeries(one.id, own.start, one.frequency, np.concatenate([before, one.target])), offset
