"""The field of series: what all series of a data set have in common, and how one becomes a row of a column."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np

from weft.data.column import Array
from weft.data.field import Field
from weft.errors import WeftError
from weft.series.archives import series_of_json
from weft.series.frequency import LAST_DAY, LONGEST_SPANS, Frequency, Time
from weft.series.time_series import UNKNOWN_COLUMNS, SeriesColumns, SeriesSet, TimeSeries
from weft.series.times import COUNTER_FORMAT, TimeFormat

EXAMPLE_STEPS = 4
MOST_CATEGORIES = 20  # of a static column that are features: those of the most series


@dataclass(frozen=True)
class Series(Field[TimeSeries]):
    """Series of C channels with K covariates known in advance and P past ones, at equal steps of time.

    A row of a column has the steps of one series and of its future: (T + F, C + K + P) values, NaN where one is
    missing.

    >>> field = Series.fit([TimeSeries("a", 0, Frequency("step"), np.array([1.0, np.nan, 3.0]))])
    >>> field.encode(field.parse('{"y": [1, null, 3]}')).tolist()
    [[1.0], [nan], [3.0]]

    Attributes:
        channels: the names of the channels to forecast.
        known: the names of covariates that are known in advance.
        past: the names of covariates that are known as far as the target is.
        static: the names of what does not change within a series.
        frequency: the step of time.
        time_format: how times are written.
        columns: the columns of the table that the series were read from.
        categories: the values of static columns of texts that several series have, by name; the most frequent ones.
        moments: the mean and the standard deviation of static columns of numbers, by name.
    """

    channels: tuple[str, ...]
    known: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    frequency: Frequency = Frequency("step")  # noqa: RUF009
    time_format: TimeFormat = COUNTER_FORMAT
    columns: SeriesColumns = UNKNOWN_COLUMNS
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moments: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def fit(cls, values: Iterable[TimeSeries], settings: SeriesSet | None = None) -> Series:
        """The field of series; `settings` is the set that they are from, which names channels and covariates."""
        series = list(values)
        if not series:
            raise WeftError("there are no series", expected="at least one")
        named = settings or _numbered_set(series)
        categories, moments = dict[str, tuple[str, ...]](), dict[str, tuple[float, float]]()
        for place, name in enumerate(named.static):
            column = [one.static[place] for one in series]
            if any(isinstance(value, str) for value in column):
                frequent = Counter(map(str, column)).most_common(MOST_CATEGORIES)
                categories[name] = tuple(sorted(value for value, count in frequent if 1 < count < len(series)))
            else:
                numbers = np.array([value for value in column if np.isfinite(float(value))] or [0.0], np.float64)
                moments[name] = float(numbers.mean()), float(numbers.std()) or 1.0
        return cls(named.channels, named.known, named.past, named.static, named.frequency, named.time_format,
                   named.columns, categories, moments)  # fmt: skip

    def static_features(self, static: Sequence[float | str]) -> Array:
        """What does not change within a series as features (S,): numbers scaled, categories as 0 and 1.

        Numbers that are missing and categories of no more than one series of the training are 0.
        """
        found: list[float] = []
        for name, value in zip(self.static, static, strict=True):
            if name in self.categories:
                found += [float(str(value) == category) for category in self.categories[name]]
            elif name in self.moments:
                mean, deviation = self.moments[name]
                try:
                    scaled = (float(value) - mean) / deviation
                except ValueError as error:
                    raise WeftError(f"the static value {name!r} is {str(value)[:60]!r}", expected="a number") from error
                found.append(min(max(scaled, -5.0), 5.0) if math.isfinite(scaled) else 0.0)
        return np.array(found)

    def set_of(self, series: Iterable[TimeSeries]) -> SeriesSet:
        """A set of series of this field."""
        names = ("channels", "known", "past", "static", "frequency", "time_format", "columns")
        return SeriesSet(tuple(series), **{name: getattr(self, name) for name in names})

    def encode(self, value: TimeSeries) -> Array:
        """Target, known and past covariates (T + F, C + K + P)."""
        steps = len(value.known) if self.known else len(value)
        row = np.full((steps, len(self.channels) + len(self.known) + len(self.past)), np.nan)
        parts = (value.target, value.known[:steps], value.past)
        place = 0
        for name, part, names in zip(("channels", "known covariates", "past covariates"), parts,
                                     (self.channels, self.known, self.past), strict=True):  # fmt: skip
            if part.shape[1] != len(names):
                raise WeftError(f"series {value.id!r} has {part.shape[1]} {name}",
                                expected=f"{len(names)}{': ' * bool(names)}{', '.join(names)}")  # fmt: skip
            row[: len(part), place : place + len(names)] = part
            place += len(names)
        return row

    def decode(self, row: Any) -> TimeSeries:
        """The series of a row: its id, its start and what is static are stored beside it."""
        values = np.asarray(row, np.float64)
        width, known = len(self.channels), len(self.channels) + len(self.known)
        there = np.flatnonzero(~np.isnan(values[:, :width]).all(1))
        steps = int(there[-1]) + 1 if len(there) else 0
        start: Time = np.datetime64(0, "us") if self.frequency.has_times else 0
        return TimeSeries("", start, self.frequency, values[:steps, :width], values[:, width:known],
                          values[:steps, known:])  # fmt: skip

    def names(self, value: TimeSeries) -> tuple[str, ...]:
        """The time of each step, and of the future that its covariates are known for."""
        steps = len(value.known) if self.known else len(value)
        return tuple(self.time_format.write(self.frequency.range(value.start, steps)))

    def parse(self, text: str) -> TimeSeries:
        """A series from JSON: an object with `y` and, if there are, `id`, `start`, `known`, `past`, `static`."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise WeftError(f"{text[:60]!r} is not JSON: {error}", expected='a series such as {"y": [1, 2]}') from error
        return self.of_json(value)

    def of_json(self, value: Any, what: str = "the series") -> TimeSeries:
        """A series of plain data: an object, or the list of its values.

        Raises:
            WeftError: it is no series of this field.
        """
        record = {"y": value} if isinstance(value, list) else value
        if not isinstance(record, Mapping):
            raise WeftError(f"{what} is {str(value)[:60]}", expected='an object such as {"start": TIME, "y": [1, 2]}')
        timed = self.frequency.has_times and any(name in record for name in ("start", "ds", "times"))
        found = series_of_json([record], [what], frequency=self.frequency if timed else None,
                               form=self.time_format if timed else None).series[0]  # fmt: skip
        self.encode(found)  # checks the number of channels and covariates
        return found

    def json_of(self, value: TimeSeries) -> dict[str, Any]:
        """A series as plain data, from which `of_json` makes it again."""
        record: dict[str, Any] = {"id": value.id}
        if self.frequency.has_times:
            record["start"] = self.time_format.write(np.array([value.start], "M8[us]"))[0]
        record["y"] = _plain(value.target[:, 0] if len(self.channels) == 1 else value.target)
        if self.known:
            record["known"] = _plain(value.known)
        if self.past:
            record["past"] = _plain(value.past)
        if value.static:
            record["static"] = list(value.static)
        return record

    @property
    def schema(self) -> dict[str, Any]:
        number = {"anyOf": [{"type": "number"}, {"type": "null"}]}

        def steps(width: int) -> dict[str, Any]:
            return {"type": "array", "items": {"type": "array", "items": number, "minItems": width, "maxItems": width}}

        y = {"type": "array", "items": number, "minItems": 1} if len(self.channels) == 1 else {
            **steps(len(self.channels)), "minItems": 1}  # fmt: skip
        parts = {"known": steps(len(self.known)) if self.known else None,
                 "past": steps(len(self.past)) if self.past else None,
                 "static": {"type": "array"} if self.static else None}  # fmt: skip
        properties = {"id": {"type": "string"}, "start": {"type": "string"}, "y": y}
        return {
            "type": "object",
            "properties": {**properties, **{name: part for name, part in parts.items() if part}},
            "required": ["y", *(("known",) if self.known else ()), *(("past",) if self.past else ())],
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "channels": list(self.channels), "known": list(self.known), "past": list(self.past),
            "static": list(self.static), "frequency": asdict(self.frequency), "time_format": asdict(self.time_format),
            "columns": self.columns.to_json(),
            "categories": {name: list(values) for name, values in self.categories.items()},
            "moments": {name: list(values) for name, values in self.moments.items()},
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Series:
        names = [_texts(data[name]) for name in ("channels", "known", "past", "static")]
        frequency, form = Frequency(**data["frequency"]), TimeFormat(**data["time_format"])
        counts = (frequency.count, frequency.day)
        if not names[0] or not all(type(count) is int and count >= 1 for count in counts) or frequency.day > LAST_DAY:
            raise ValueError("series have channels, and a step of time")
        if frequency.count > LONGEST_SPANS.get(frequency.unit, 0):
            raise ValueError("a step of time is longer than the calendar")
        types = (type(form.pattern), type(form.zone), type(form.utc), type(frequency.anchor))
        if frequency.unit not in ("us", "month", "B", "step") or types[:3] != (str, str, bool) or types[3] not in (
            int, type(None)):  # fmt: skip
            raise ValueError("series have a step of time, and a format of times")
        columns = dict(data["columns"])
        layout = columns.pop("layout")
        read = SeriesColumns.of(
            layout, **{name: None if part is None else _texts(part) for name, part in columns.items()}
        )
        categories = {str(name): _texts(values) for name, values in data["categories"].items()}
        written = data.get("moments", {})  # earlier runs have none
        moments = {str(name): (float(mean), float(deviation)) for name, (mean, deviation) in written.items()}
        if not all(math.isfinite(mean) and 0 < deviation < math.inf for mean, deviation in moments.values()):
            raise ValueError("static numbers have finite means, and deviations above 0")
        return cls(names[0], names[1], names[2], names[3], frequency, form, read, categories, moments)


LARGEST_SCALED = 1e15  # deviations from the mean: a network computes with single precision


@dataclass(frozen=True)
class ScaledSeries(Series):
    """Series whose values are stored with mean 0 and standard deviation 1 in each channel, in single precision.

    >>> field = ScaledSeries.fit([TimeSeries("a", 0, Frequency("step"), np.array([1.0, np.nan, 3.0]))])
    >>> field.encode(field.parse("[3, null]")).tolist(), field.decode([[-1.0]]).target.tolist()
    ([[1.0], [nan]], [[1.0]])

    Attributes:
        means: (C,) of the training values.
        deviations: (C,), 1 for a constant channel.
    """

    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    @classmethod
    def fit(cls, values: Iterable[TimeSeries], settings: SeriesSet | None = None) -> ScaledSeries:
        series = list(values)
        layout = cast(ScaledSeries, super().fit(series, settings))
        joined = np.concatenate([one.target for one in series])
        there = ~np.isnan(joined)
        count = np.maximum(1, there.sum(0))
        means = np.where(there, joined, 0.0).sum(0) / count
        deviations = np.sqrt(np.where(there, (joined - means) ** 2, 0.0).sum(0) / count)
        return replace(layout, means=tuple(means.tolist()),
                       deviations=tuple(np.where(deviations > 0, deviations, 1.0).tolist()))  # fmt: skip

    @property
    def example(self) -> list[Any]:
        """A value for a first try: the means of the channels, at a few steps."""
        step = [float(f"{mean:.4g}") for mean in self.means]
        return [step if len(step) > 1 else step[0]] * EXAMPLE_STEPS

    def encode(self, value: TimeSeries) -> Array:
        scaled = (super().encode(value) - self.means) / self.deviations
        if (far := np.argwhere(np.abs(scaled) > LARGEST_SCALED)).size:
            step, channel = far[0]
            mean, deviation = self.means[channel], self.deviations[channel]
            raise WeftError(
                f"step {step + 1} of channel {self.channels[channel]!r} is {value.target[step, channel]:g}",
                expected=f"values as in the training, where the mean is {mean:.4g} and the deviation {deviation:.4g}",
            )
        return scaled.astype(np.float32)

    def decode(self, row: Any) -> TimeSeries:
        return super().decode(np.asarray(row, np.float64) * self.deviations + self.means)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "means": list(self.means), "deviations": list(self.deviations)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScaledSeries:
        layout = cast(ScaledSeries, super().from_json(data))
        means, deviations = (tuple(data[name]) for name in ("means", "deviations"))
        finite = all(type(number) in (int, float) and math.isfinite(number) for number in (*means, *deviations))
        if not finite or min(deviations, default=0) <= 0:
            raise ValueError("channels have finite means, and deviations above 0")
        if not len(layout.channels) == len(means) == len(deviations) or layout.known or layout.past:
            raise ValueError("channels have a mean and a deviation each, and no covariates")
        return replace(layout, means=means, deviations=deviations)


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("names are no list of texts")
    return tuple(values)


def _plain(values: Array) -> list[Any]:
    """Numbers as JSON has them: null where one is missing."""
    return np.where(np.isnan(values), None, values).tolist()  # type: ignore[call-overload,no-any-return]


def _numbered_set(series: list[TimeSeries]) -> SeriesSet:
    first = series[0]

    def names(name: str, count: int) -> tuple[str, ...]:
        return tuple(f"{name}{number}" for number in range(1, count + 1))

    channels = ("y",) if first.target.shape[1] == 1 else names("y", first.target.shape[1])
    form = TimeFormat("%Y-%m-%d %H:%M:%S") if first.frequency.has_times else COUNTER_FORMAT
    return SeriesSet(tuple(series), channels, names("known", first.known.shape[1]), names("past", first.past.shape[1]),
                     names("static", len(first.static)), first.frequency, time_format=form)  # fmt: skip
