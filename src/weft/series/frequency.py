"""The step of a series in a calendar: its names, its arithmetic, and how it is inferred from times.

Times are datetime64[us] on one clock, or the integers of a counter. A month or a quarter is no fixed number of days:
positions are counted from the start of a series, so that 31 January is followed by 28 February and then 31 March.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from weft.data.column import Array, IntArray
from weft.errors import WeftError, short_repr, unknown_name

Time = np.datetime64 | int  # of one step: of a calendar, or of a counter

SECOND = 1_000_000  # in microseconds, as are all steps of a fixed duration
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
WEEK = 7 * DAY
LAST_DAY = 31  # the day of steps that are the ends of months
DURATIONS = {"W": WEEK, "D": DAY, "h": HOUR, "min": MINUTE, "s": SECOND, "ms": 1000, "us": 1}
MONTHS = {"YS": 12, "YE": 12, "QS": 3, "QE": 3, "MS": 1, "ME": 1}
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
ALIASES = {  # of other libraries and in words; those that differ from a name by capitals alone mean the same
    **dict.fromkeys(("H", "hour", "hours", "hourly"), "h"),
    **dict.fromkeys(("T", "minute", "minutes", "minutely"), "min"),
    **dict.fromkeys(("S", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("L", "milliseconds"), "ms"),
    **dict.fromkeys(("U", "microseconds"), "us"),
    **dict.fromkeys(("d", "day", "days", "daily"), "D"),
    **dict.fromkeys(("b", "business", "weekdays"), "B"),
    **dict.fromkeys(("w", "week", "weeks", "weekly"), "W"),
    **dict.fromkeys(("m", "month", "months", "monthly"), "MS"),
    **dict.fromkeys(("q", "quarter", "quarters", "quarterly"), "QS"),
    **dict.fromkeys(("y", "year", "years", "yearly", "annual", "AS"), "YS"),
    **dict.fromkeys(("M",), "ME"),
    **dict.fromkeys(("Q",), "QE"),
    **dict.fromkeys(("A", "Y", "AE"), "YE"),
    **dict.fromkeys(("n", "step", "steps", "counter"), "step"),
}
FREQUENCIES = (*DURATIONS, *MONTHS, "B", "step")
DURATION_WORDS = dict(
    zip(DURATIONS, ("week", "day", "hour", "minute", "second", "millisecond", "microsecond"), strict=True)
)
_PATTERN = re.compile(r"\A(\d*)\s*([A-Za-z]+)(?:-(\w+))?")
MOST_YEARS = 20_000  # from the first time to the last: int64 has them in microseconds
LONGEST_SPANS = {"us": MOST_YEARS * 366 * DAY, "month": MOST_YEARS * 12, "B": MOST_YEARS * 366, "step": 1 << 62}


@dataclass(frozen=True)
class Frequency:
    """The step from one value of a series to the next.

    >>> Frequency.parse("ME").range(np.datetime64("2024-01-31"), 3).astype("M8[D]").tolist()[1:]
    [datetime.date(2024, 2, 29), datetime.date(2024, 3, 31)]
    >>> [(name, Frequency.parse(name).season) for name in ("h", "30min", "D", "W-SUN", "MS", "QE", "YE", "step")]
    [('h', 24), ('30min', 48), ('D', 7), ('W-SUN', 52), ('MS', 12), ('QE', 4), ('YE', 1), ('step', 1)]

    Attributes:
        unit: "us", "month", "B" (days from Monday to Friday), or "step" (of a counter).
        count: how many of these a step has.
        day: of months: the day of the month, cut to its length; 31 is the last day.
        anchor: where steps of several months or of weeks fall: a month modulo `count` from January = 0, a weekday from
            Monday = 0; None: nothing is known, and the first times say it.
    """

    unit: str
    count: int = 1
    day: int = 1
    anchor: int | None = None

    @classmethod
    def parse(cls, text: str) -> Frequency:
        """The frequency of a name such as "h", "15min", "D", "W-SUN", "MS", "QE-DEC" or "YE"; pandas' names are known.

        Raises:
            WeftError: no frequency has this name.
        """
        match = _PATTERN.fullmatch(text.strip())
        count, unit, anchor = match.groups() if match else ("", text, None)
        number = int(count or 1) if len(count) <= 10 else 0  # Python refuses to read thousands of digits
        of_day = anchor is not None and anchor.isdecimal() and unit == "M"
        name = unit if unit in FREQUENCIES else ALIASES.get(unit) or ALIASES.get(unit.lower()) or unit
        if name not in FREQUENCIES:
            raise unknown_name("the frequency", text, FREQUENCIES)
        kind = "us" if name in DURATIONS else "month" if name in MONTHS else name
        if not 1 <= number <= LONGEST_SPANS[kind] // {**DURATIONS, **MONTHS}.get(name, 1):
            raise WeftError(
                f"the frequency is {short_repr(text)}",
                expected=f"at least one step, and less than {MOST_YEARS:,} years: 15min",
            )
        if of_day:  # our name of a day of the month: M-15
            day = int(anchor or 0) if len(anchor or "") <= 2 else 0
            if not 1 <= day <= LAST_DAY:
                raise WeftError(f"the frequency is {short_repr(text)}", expected="a day of the month from 1 to 31")
            return cls("month", number, day, None)
        if name in DURATIONS:
            weekday = _anchor(text, anchor, WEEKDAYS) if name == "W" else None
            return cls("us", number * DURATIONS[name], anchor=weekday)
        if name in MONTHS:
            months = number * MONTHS[name]
            at_end = name.endswith("E")
            month = _anchor(text, anchor, MONTH_NAMES)
            if month is None and months > 1:
                month = 11 if at_end else 0
            return cls("month", months, LAST_DAY if at_end else 1, None if month is None else month % months)
        return cls(name, number)

    @cached_property
    def name(self) -> str:
        """Its name, as pandas calls it."""
        if self.unit in ("B", "step"):
            return _times(self.count, self.unit)
        if self.unit == "us":
            unit = next(name for name, duration in DURATIONS.items() if not self.count % duration)
            suffix = f"-{WEEKDAYS[self.anchor]}" if unit == "W" and self.anchor is not None else ""
            return _times(self.count // DURATIONS[unit], unit) + suffix
        if self.day not in (1, LAST_DAY):
            return f"{_times(self.count, 'M')}-{self.day}"
        letter = next(letter for letter, months in (("Y", 12), ("Q", 3), ("M", 1)) if not self.count % months)
        name = _times(self.count // MONTHS[f"{letter}S"], f"{letter}{'E' if self.day == LAST_DAY else 'S'}")
        usual = (11 if self.day == LAST_DAY else 0) % self.count
        if letter == "M" or self.anchor in (None, usual):
            return name
        last = 12 - self.count if self.day == LAST_DAY and self.count < 12 else 0  # pandas names the last quarter's end
        return f"{name}-{MONTH_NAMES[(self.anchor or 0) + last]}"

    def __str__(self) -> str:
        return self.name

    @property
    def words(self) -> str:
        """In words: "every hour", "every 15 minutes", "every month, at its end"."""
        count, at, unit = self.count, "", {"B": "business day"}.get(self.unit, self.unit)
        if self.unit == "us":
            name = next(name for name, duration in DURATIONS.items() if not count % duration)
            count, unit = count // DURATIONS[name], DURATION_WORDS[name]
        elif self.unit == "month":
            months, unit = next(pair for pair in ((12, "year"), (3, "quarter"), (1, "month")) if not count % pair[0])
            count, at = count // months, {1: "", LAST_DAY: ", at its end"}.get(self.day, f", on day {self.day}")
        return (f"every {unit}" if count == 1 else f"every {count} {unit}s") + at

    @property
    def has_times(self) -> bool:
        """Whether its times are those of a calendar, rather than of a counter."""
        return self.unit != "step"

    @property
    def season(self) -> int:
        """The usual number of steps in a season: a year of months, quarters and weeks, a week of days, a day of hours.

        1 where the step does not divide it. Steps below a minute have the season of an hour, those below a second none.
        """
        if self.unit == "us":
            if self.count % WEEK == 0:
                return max(1, 52 // (self.count // WEEK)) if 52 % (self.count // WEEK) == 0 else 1
            whole = WEEK if self.count >= DAY else DAY if self.count >= MINUTE else HOUR
            return whole // self.count if whole % self.count == 0 and self.count >= SECOND else 1
        whole = {"month": 12, "B": 5}.get(self.unit, 1)
        return max(1, whole // self.count) if whole % self.count == 0 else 1

    def range(self, start: Time, count: int, first: int = 0) -> Array:
        """The times (count,) of consecutive steps.

        Args:
            start: the time of step 0.
            count: how many.
            first: the number of the first step; it may be negative.
        """
        return self.times(start, np.arange(first, first + count))

    def times(self, start: Time, steps: IntArray) -> Array:
        """The times of steps that are counted from `start`; the inverse of `steps`."""
        if self.unit == "step":
            return int(start) + self.count * np.asarray(steps, np.int64)
        counts = np.asarray(steps)
        if counts.size and max(-int(counts.min()), int(counts.max())) * self.count > LONGEST_SPANS[self.unit]:
            raise beyond_the_calendar()
        begin = _moment(start)
        if self.unit == "us":
            return np.asarray(begin + (np.asarray(steps, np.int64) * self.count).astype("m8[us]"))
        date = begin.astype("M8[D]")
        if self.unit == "B":
            days = np.busday_offset(date, np.asarray(steps, np.int64) * self.count, roll="forward")
        else:
            months = date.astype("M8[M]") + (np.asarray(steps, np.int64) * self.count).astype("m8[M]")
            days = _on_day(months, max(self.day, int((date - date.astype("M8[M]")).astype(int)) + 1))
        return np.asarray(days.astype("M8[us]") + (begin - date))

    def steps(self, start: Time, times: Array) -> IntArray:
        """The number of the last step from `start` that is not after each time; -1 is one step before `start`."""
        if self.unit == "step":
            return np.asarray((np.asarray(times, np.int64) - int(start)) // self.count)
        begin, moments = _moment(start), np.asarray(times, "M8[us]")
        if self.unit == "us":
            return np.asarray((moments - begin).astype(np.int64) // self.count)
        if self.unit == "B":
            clock = begin - begin.astype("M8[D]")
            days = (moments - clock).astype("M8[D]")  # a day begins at the time of day of the start
            first = np.busday_offset(begin.astype("M8[D]"), 0, roll="forward")
            found = np.busday_count(first, np.busday_offset(days, 0, roll="backward"))
            return np.asarray(found // self.count)
        found = (moments.astype("M8[M]").astype(np.int64) - begin.astype("M8[M]").astype(np.int64)) // self.count
        return np.asarray(found - (self.times(start, found) > moments))

    def floor(self, time: Time) -> Time:
        """The last natural start of a step that is not after a time: the full hour, midnight, the first of a month.

        Steps that are the end of a month, or a weekday, are the first such date from the time on: a week W-SUN has the
        name of the Sunday that ends it.
        """
        if self.unit == "step":
            return int(time) // self.count * self.count
        moment = _moment(time)
        date = moment.astype("M8[D]")
        if self.unit == "B":
            return _moment(np.busday_offset(date, 0, roll="backward"))
        if self.unit == "us":
            if self.count % WEEK == 0:
                after = ((6 if self.anchor is None else self.anchor) - _weekdays(date)) % 7
                return _moment(date + np.timedelta64(int(after), "D"))
            number = moment.astype(np.int64) // self.count * self.count
            return _moment(np.datetime64(int(number), "us"))
        month = date.astype("M8[M]").astype(int)
        if self.day == LAST_DAY:
            ahead = ((-1 if self.anchor is None else self.anchor) - month) % self.count
            return _moment(_on_day(np.datetime64(int(month + ahead), "M"), LAST_DAY))
        back = (month - (self.anchor or 0)) % self.count
        return _moment(np.datetime64(int(month - back), "M")) + np.timedelta64((self.day - 1) * DAY, "us")


def beyond_the_calendar() -> WeftError:
    return WeftError("times go beyond the years 1 to 9999", expected="times of the calendar", hint="a smaller horizon")


def _times(count: int, name: str) -> str:
    return name if count == 1 else f"{count}{name}"


def _anchor(text: str, anchor: str | None, names: Sequence[str]) -> int | None:
    if anchor is None:
        return None
    if anchor.upper() not in names:
        raise unknown_name(f"the frequency {short_repr(text)}: anchor", anchor, names)
    return names.index(anchor.upper())


def _moment(time: Any) -> np.datetime64:
    moment: np.datetime64 = np.datetime64(time, "us")
    return moment


def _weekdays(dates: Any) -> Any:
    """The weekdays of dates, Monday = 0: 1970 began on a Thursday."""
    return (np.asarray(dates, "M8[D]").astype(np.int64) + 3) % 7


def _on_day(months: Any, day: int) -> Any:
    """The dates of a day in months (M8[M]), of the last day where a month is shorter."""
    first = months.astype("M8[D]")
    lengths = ((months + np.timedelta64(1, "M")).astype("M8[D]") - first).astype(np.int64)
    return first + (np.minimum(day, lengths) - 1).astype("m8[D]")


COUNTER = Frequency("step")


def infer_frequency(series: Sequence[Array]) -> Frequency | None:
    """The step that most times of some series have; None if no series has two times.

    The times of each series are sorted and differ. Steps may be missing. Where the times do not fall on equal steps, it
    is the most frequent difference: `Frequency.steps` says which times do not fit.

    Args:
        series: the times of each series, datetime64 or integers.

    >>> infer_frequency([np.array(["2024-01-31", "2024-02-29", "2024-04-30"], "M8[us]")])
    Frequency(unit='month', count=1, day=31, anchor=None)
    """
    longer = [times for times in series if len(times) > 1]
    if not longer:
        return None
    steps = np.concatenate([np.diff(times) for times in longer]).astype(np.int64)
    if longer[0].dtype.kind != "M":
        return Frequency("step", _usual_step(steps))
    times = np.concatenate(longer).astype("M8[us]")
    dates = times.astype("M8[D]")
    if steps.min() >= 28 * DAY:
        months = _months(times, dates, longer)
        if months is not None:
            return months
    step = _usual_step(steps)
    if step == DAY and len(times) >= 6 and (steps == 3 * DAY).any() and (_weekdays(dates) < 5).all():
        return Frequency("B")
    weekdays = np.unique(_weekdays(dates))
    return Frequency("us", step, anchor=int(weekdays[0]) if step % WEEK == 0 and len(weekdays) == 1 else None)


def _usual_step(steps: IntArray) -> int:
    """The greatest step of which all are multiples, if at least half of the steps are there; else the most frequent."""
    largest = int(np.gcd.reduce(steps))
    if steps.sum() <= 2 * largest * len(steps):
        return largest
    values, counts = np.unique(steps, return_counts=True)
    return int(values[counts.argmax()])


def _months(times: Array, dates: Array, longer: Sequence[Array]) -> Frequency | None:
    """The frequency of times that have the same day of the month and the same time of day."""
    months = dates.astype("M8[M]")
    days = int((dates - months.astype("M8[D]")).astype(int).max()) + 1
    fitting = next((day for day in (LAST_DAY, days) if (dates == _on_day(months, day)).all()), None)
    if fitting is None or len(np.unique(times - dates)) > 1:
        return None
    between = np.concatenate([np.diff(part.astype("M8[M]")) for part in longer]).astype(np.int64)
    count = _usual_step(between)
    places = np.unique(months.astype(np.int64) % count)
    return Frequency("month", count, fitting, int(places[0]) if count > 1 and len(places) == 1 else None)
