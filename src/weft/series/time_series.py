"""Series of numbers over time, with their covariates: what readers make, and what forecasters take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.data.column import Array
from weft.errors import WeftError
from weft.series.frequency import COUNTER, Frequency, Time
from weft.series.times import COUNTER_FORMAT, TimeFormat

LARGEST_VALUE = 1e60  # of a value: products of several are numbers too
LAYOUTS = ("auto", "long", "columns", "rows")


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """One series of C channels over T equal steps of time; NaN is a missing value.

    >>> sales = TimeSeries("a", np.datetime64("2024-01-31"), Frequency.parse("ME"), np.array([3.0, np.nan, 5.0]))
    >>> sales.target.shape, sales.times.astype("M8[D]")[-1], sales.future_times(1).astype("M8[D]")[0]
    ((3, 1), np.datetime64('2024-03-31'), np.datetime64('2024-04-30'))

    Attributes:
        id: its name.
        start: the time of its first step.
        frequency: the step of time.
        target: (T, C) the values to forecast; (T,) means one channel.
        known: (T + F, K) covariates that are known in advance, F >= 0 steps beyond the target.
        past: (T, P) covariates that are known as far as the target is.
        static: what does not change over time, numbers and names of categories.
    """

    id: str
    start: Time
    frequency: Frequency
    target: Array
    known: Array = None  # type: ignore[assignment]  # None: no covariates
    past: Array = None  # type: ignore[assignment]
    static: tuple[float | str, ...] = ()

    def __post_init__(self) -> None:
        """Gives every array its two dimensions."""
        steps = len(self.target)
        for name in ("target", "known", "past"):
            values = getattr(self, name)
            rows = np.zeros((steps, 0)) if values is None else np.asarray(values, np.float64)
            object.__setattr__(self, name, rows.reshape(len(rows), 1) if rows.ndim == 1 else rows)
        assert len(self.known) >= steps, (
            f"{self.id}: {len(self.known)} steps of known covariates, {steps} of the target"
        )
        assert len(self.past) == steps, f"{self.id}: {len(self.past)} steps of past covariates, {steps} of the target"

    @classmethod
    def of(cls, values: Array, id: str = "") -> TimeSeries:
        """Values without times: their time is a counter from 0."""
        return cls(id, 0, COUNTER, values)

    def __len__(self) -> int:
        return len(self.target)

    @property
    def future(self) -> int:
        """F, how many steps the known covariates reach beyond the target."""
        return len(self.known) - len(self.target)

    @property
    def times(self) -> Array:
        """(T,) the time of each step: datetime64[us], or integers of a counter."""
        return self.frequency.range(self.start, len(self))

    def future_times(self, horizon: int) -> Array:
        """(horizon,) the times of the steps after the last."""
        return self.frequency.range(self.start, horizon, first=len(self))

    def until(self, step: int) -> TimeSeries:
        """The series as it was known before a step: its first steps, and all of the covariates known in advance."""
        return replace(self, target=self.target[:step], past=self.past[:step])

    def since(self, step: int) -> TimeSeries:
        """The series without its first steps."""
        start = self.frequency.range(self.start, 1, first=step)[0]
        begin: Time = start if self.frequency.has_times else int(start)
        parts = {name: getattr(self, name)[step:] for name in ("target", "known", "past")}
        return replace(self, start=begin, **parts)


@dataclass(frozen=True)
class SeriesColumns:
    """Which columns of a table are what. None: chosen by the rules; an empty tuple: there is none.

    Attributes:
        id: the names of series; of several columns, they are joined.
        time: the times; several columns are year, month, day, hour, ...
        target: the values to forecast, the channels of a series.
        known: covariates that are known in advance.
        past: covariates that are known as far as the target is.
        static: what does not change within a series.
        layout: a name in LAYOUTS: a row for each time of each series, or a column or a row for each series.
    """

    id: tuple[str, ...] | None = None
    time: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None
    known: tuple[str, ...] | None = None
    past: tuple[str, ...] | None = None
    static: tuple[str, ...] | None = None
    layout: str = "auto"

    @classmethod
    def of(cls, layout: str = "auto", **names: str | Sequence[str] | None) -> SeriesColumns:
        """The columns of names that are given as a list, or as one text with commas."""
        if layout not in LAYOUTS:
            raise WeftError(f"the layout is {layout!r}", expected=f"one of: {', '.join(LAYOUTS)}")
        split = {
            role: tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else (
                None if given is None else tuple(map(str, given)))
            for role, given in names.items()
        }  # fmt: skip
        listed = [name for part in split.values() for name in part or ()]
        twice = next((name for name in listed if listed.count(name) > 1), None)
        if twice is not None:
            raise WeftError(f"column {twice!r} is named twice", expected="one use of each column")
        return cls(**split, layout=layout)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the arguments of `of`."""
        return {name: value if isinstance(value, str) or value is None else list(value)
                for name, value in vars(self).items()}  # fmt: skip


UNKNOWN_COLUMNS = SeriesColumns()


@dataclass(frozen=True, eq=False)
class SeriesSet:
    """Series with the same channels, covariates and frequency.

    Attributes:
        series: the series.
        channels: the names of the C channels of a target.
        known: the names of the K covariates that are known in advance.
        past: the names of the P covariates that are known as far as the target is.
        static: the names of what does not change over time.
        frequency: the step of time.
        reading: how a file was read: columns taken, gaps filled, duplicates; a line each.
        time_format: how times are written, with their zone.
        columns: the columns of a table that were read, for later data of the same kind.
    """

    series: tuple[TimeSeries, ...]
    channels: tuple[str, ...] = ("y",)
    known: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    frequency: Frequency = COUNTER
    reading: tuple[str, ...] = ()
    time_format: TimeFormat = COUNTER_FORMAT
    columns: SeriesColumns = UNKNOWN_COLUMNS

    def __post_init__(self) -> None:
        widths = (len(self.channels), len(self.known), len(self.past), len(self.static))
        for one in self.series:
            found = (one.target.shape[1], one.known.shape[1], one.past.shape[1], len(one.static))
            assert found == widths, f"{one.id}: {found} channels, known, past, static; the names are {widths}"

    def __len__(self) -> int:
        return len(self.series)

    def __iter__(self) -> Iterator[TimeSeries]:
        return iter(self.series)

    def __getitem__(self, id: str) -> TimeSeries:
        """The series of a name.

        Raises:
            WeftError: there is none.
        """
        named = {one.id: one for one in self.series}
        if id not in named:
            raise WeftError(
                f"there is no series {id!r}", expected=f"one of {len(named):,}, such as {next(iter(named))!r}"
            )
        return named[id]
