"""Times as a file writes them: the pattern is detected, read, and written again for forecasts.

A pattern has the letters of `strftime`, and a few more: `%-m`, `%-d`, `%-H` have no leading zero, `%q` is a quarter,
`%V` with `%G` an ISO week, `%3f` a fraction of 3 digits, `%Z` the time zone. "counter" and "epoch s" are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from weft.data.column import Array, IntArray
from weft.errors import WeftError, short_repr
from weft.series.frequency import DAY, HOUR, MINUTE, SECOND, beyond_the_calendar, infer_frequency

COUNTER_PATTERN, EPOCH_PATTERNS = "counter", {"epoch s": SECOND, "epoch ms": SECOND // 1000}
SHORT_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LONG_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
               "november", "december")  # fmt: skip
PATTERN_TOKENS = {
    "Y": r"(\d{4})", "y": r"(\d{2})", "m": r"(\d{2})", "-m": r"(\d{1,2})", "d": r"(\d{2})", "-d": r"(\d{1,2})",
    "H": r"(\d{2})", "-H": r"(\d{1,2})", "M": r"(\d{2})", "S": r"(\d{2})", "I": r"(\d{1,2})", "p": r"([AaPp][Mm])",
    "b": r"([A-Za-z]{3})", "B": r"([A-Za-z]{3,9})", "q": r"([1-4])", "V": r"(\d{2})", "u": r"([1-7])", "G": r"(\d{4})",
    "Z": r"(Z|z|UTC|[+-]\d\d(?::?\d\d)?)",
}  # fmt: skip
_TOKEN = re.compile(r"%(-?[A-Za-z]|\df)")
_INTEGER = re.compile(r"(-?\d{1,18})(\.0+)?")
FIRST_TIME, LAST_TIME = np.datetime64("0001-01-01", "us"), np.datetime64("9999-12-31T23:59:59.999999", "us")
_DATES = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m", "%Y/%m", "%Y.%m", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m-%d-%Y",
    "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%m/%Y", "%m-%Y", "%m.%Y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y",
    "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%b %Y", "%B %Y", "%b-%Y", "%Y-%b", "%Y %b", "%b-%y", "%YQ%q",
    "%Y-Q%q", "%Y Q%q", "Q%q %Y", "Q%q-%Y", "Q%q/%Y", "%G-W%V", "%GW%V", "%G-W%V-%u",
)  # fmt: skip
_CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%H-%M-%S", "%I:%M:%S %p", "%I:%M %p", "%I:%M%p")
_ISO = {f"%Y-%m-%d{clock}" for clock in ("", *(f"{gap}%H:%M{rest}" for gap in " T" for rest in ("", ":%S", ":%S.%f")))}
_COMPACT = ("%Y%m%d", "%Y%m", "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%Y%m%dT%H%M%S", "%Y%m%dT%H%M")


@lru_cache(maxsize=1)
def pattern_parts() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Patterns of dates and of what follows a date, the more usual ones first."""
    dates = (*_DATES, *(re.sub("%([md])", r"%-\1", date) for date in _DATES), *_COMPACT)
    clocks = (*_CLOCKS, *(clock.replace("%H", "%-H") for clock in _CLOCKS))
    zoned = (f"{gap}{clock}{zone}" for clock in clocks for gap in (" ", "T") for zone in ("", "%Z", " %Z"))
    return tuple(dict.fromkeys(dates)), tuple(dict.fromkeys(("", "%Z", *zoned, " %H")))


def _fitting(text: str) -> list[str]:
    """The patterns that a text may have."""
    dates, clocks = pattern_parts()
    found = []
    for date in dates:
        match = pattern_expression(date)[0].match(text)
        rest = text[match.end() :] if match else ""
        if match and (not rest or "%d" in date or "%-d" in date):
            found += [f"{date}{clock}" for clock in clocks if pattern_expression(clock)[0].fullmatch(rest)]
    return found


@lru_cache(maxsize=512)
def pattern_expression(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """The regular expression of a pattern, and the letter of each of its groups."""
    names: list[str] = []
    parts = []
    place = 0
    for match in _TOKEN.finditer(pattern):
        parts.append(re.escape(pattern[place : match.start()]))
        token = match[1]
        names.append("f" if token.endswith("f") else token.lstrip("-"))
        digits = {"f": r"(\d{1,9})"}.get(token, rf"(\d{{{token[0]}}})" if token[0].isdigit() else "")
        parts.append(digits or PATTERN_TOKENS[token])
        place = match.end()
    parts.append(re.escape(pattern[place:]))
    return re.compile("".join(parts)), tuple(names)


@dataclass(frozen=True)
class TimeFormat:
    """How times are written: a pattern, and a time zone.

    >>> form = TimeFormat.detect(["2024-01-31 22:00+01:00", "2024-01-31 23:00+01:00"])
    >>> form.pattern, form.zone, form.write(form.read(["2024-01-31 23:00+01:00"]) + np.timedelta64(1, "h"))
    ('%Y-%m-%d %H:%M%Z', '+01:00', ['2024-02-01 00:00+01:00'])

    Attributes:
        pattern: the pattern.
        zone: the offset of all times, such as "+01:00" or "Z", or the name of a time zone; "": none is known.
        utc: whether steps are counted in UTC, as hours are where clocks change; otherwise on the clock of the zone.
    """

    pattern: str
    zone: str = ""
    utc: bool = False

    @classmethod
    def detect(cls, texts: Sequence[str], *, years: bool = False) -> TimeFormat:
        """The format of different times.

        Args:
            texts: the times.
            years: whether four digits are a year, because the column is called so.

        Raises:
            WeftError: the first is no time, or the others are not written like it.
        """
        if not texts:
            return cls(COUNTER_PATTERN)
        if all(map(_INTEGER.fullmatch, texts)):
            return cls(_of_integers(_integers(texts, COUNTER_PATTERN).tolist(), years))
        fitting = _fitting(texts[0])
        if not fitting:
            raise WeftError(
                f"{short_repr(texts[0])} is not a time", expected="times such as 2024-01-31, or 2024-01-31 18:00:00"
            )
        problem: WeftError | None = None
        found: list[tuple[int, TimeFormat]] = []
        for pattern in fitting:
            if found and not (pattern.startswith(("%d", "%-d")) and found[0][1].pattern.startswith(("%m", "%-m"))):
                continue  # only 01/02/2024 can be read in two ways
            try:
                form = cls._with_zone(pattern, texts)
                times = form.read(texts)
            except WeftError as error:
                problem = problem or error
            else:
                found.append((_span(times), form))
        if not found:
            assert problem is not None
            raise problem
        form = min(found, key=lambda pair: pair[0])[1]  # the day or the month first: with the fewest missing steps
        return form if "%f" not in form.pattern else form._with_digits(texts)

    @classmethod
    def _with_zone(cls, pattern: str, texts: Sequence[str]) -> TimeFormat:
        if not pattern.endswith("%Z"):
            return cls(pattern)
        fields = _fields(pattern, texts)
        zones = dict.fromkeys(fields["Z"])
        if len(zones) == 1:
            return cls(pattern, next(iter(zones)))
        # Clocks that change: whole days are counted by the clock, hours in UTC. The last offset is that of forecasts.
        clocks = _moments(fields)
        return cls(pattern, fields["Z"][-1], utc=len(np.unique(clocks - clocks.astype("M8[D]"))) > 1)

    def _with_digits(self, texts: Sequence[str]) -> TimeFormat:
        digits = {len(text) for text in _fields(self.pattern, texts)["f"]}
        return TimeFormat(self.pattern.replace("%f", f"%{max(digits)}f") if len(digits) == 1 else self.pattern,
                          self.zone, self.utc)  # fmt: skip

    @property
    def is_counter(self) -> bool:
        return self.pattern == COUNTER_PATTERN

    def read(self, texts: Sequence[str]) -> Array:
        """The times (N,): datetime64[us], or integers of a counter.

        Raises:
            WeftError: a text is not written like this. Its `index` is the place of the text.
        """
        if self.is_counter or self.pattern in EPOCH_PATTERNS:
            numbers = _integers(texts, self.pattern)
            if self.is_counter:
                return numbers
            unit = EPOCH_PATTERNS[self.pattern]
            within = np.clip(numbers, FIRST_TIME.astype(int) // unit, LAST_TIME.astype(int) // unit)
            _check({"": texts}, within == numbers)
            return np.asarray((numbers * unit).astype("M8[us]"))
        if self.pattern in _ISO and min(texts, default="") >= "0" and max(texts, default="9") < ":":
            try:
                moments = np.array(texts, "M8[us]")
            except ValueError:
                pass  # what reads them one by one says which it is
            else:
                _check({"": texts}, moments >= FIRST_TIME)
                return moments
        fields = _fields(self.pattern, texts)
        moments = _moments(fields)
        _check(fields, moments >= FIRST_TIME)
        if "Z" in fields and self.utc:
            return np.asarray(moments - _offsets(fields["Z"]).astype("m8[us]"))
        return moments

    def write(self, times: Array) -> list[str]:
        """Times as texts, as the input has them.

        Raises:
            WeftError: a time is not of the years 1 to 9999.
        """
        if self.is_counter:
            return [str(int(time)) for time in times]
        if self.pattern in EPOCH_PATTERNS:
            return [
                str(number // EPOCH_PATTERNS[self.pattern])
                for number in times.astype("M8[us]").astype(np.int64).tolist()
            ]
        clocks, offsets = self._on_clock(times)
        _check_years(clocks)
        zones = offsets if offsets else [self.zone] * len(times)
        return [_written(self.pattern, moment, zone) for moment, zone in zip(clocks.tolist(), zones, strict=True)]

    def clock(self, times: Array) -> Array:
        """Times on the clock of their zone, as people there live by it: for hours of the day and days of the week."""
        return times if self.is_counter else self._on_clock(times)[0]

    def _on_clock(self, times: Array) -> tuple[Array, list[str]]:
        """The times of the clock, and the offset of each where the zone has a name."""
        moments = np.asarray(times, "M8[us]")
        if not self.utc:
            return moments, []
        if _is_offset(self.zone):
            return np.asarray(moments + _offsets([self.zone]).astype("m8[us]")), []
        return to_zone(moments, self.zone)


COUNTER_FORMAT = TimeFormat(COUNTER_PATTERN)


def to_zone(moments: Array, name: str) -> tuple[Array, list[str]]:
    """Times of UTC on the clock of a time zone, and the offset of each.

    >>> clocks, offsets = to_zone(np.array(["2024-07-01T12:00"], "M8[us]"), "Europe/Berlin")
    >>> clocks[0], offsets
    (np.datetime64('2024-07-01T14:00:00.000000'), ['+02:00'])
    """
    try:
        zone = timezone.utc if name.upper() in ("UTC", "Z") else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise WeftError(f"the time zone is {name!r}", expected="a name such as Europe/Berlin, or UTC") from error
    day = np.timedelta64(1, "D")  # no clock is farther from UTC
    _check_years(np.concatenate([moments - day, moments + day]))
    different, places = np.unique(moments.astype("M8[us]"), return_inverse=True)
    local = [moment.replace(tzinfo=timezone.utc).astimezone(zone) for moment in different.tolist()]
    clocks = np.array([moment.replace(tzinfo=None) for moment in local], "M8[us]")
    written = [f"{text[:3]}:{text[3:]}" for text in (moment.strftime("%z") for moment in local)]
    return clocks[places], [written[place] for place in places.tolist()]


def _check_years(moments: Array) -> None:
    """Refuses what Python's calendar does not have."""
    if len(moments) and not (moments.min() >= FIRST_TIME and moments.max() <= LAST_TIME):
        raise beyond_the_calendar()


def _integers(texts: Sequence[str], pattern: str) -> IntArray:
    matches = [_INTEGER.fullmatch(text) for text in texts]
    if not all(matches):
        index = matches.index(None)
        raise _no_time(texts[index], pattern, index)
    return np.array([int(match[1]) for match in matches if match], np.int64)


def _of_integers(numbers: Sequence[int], years: bool) -> str:
    """What integers are: years, seconds or milliseconds since 1970, dates without separators, or a counter."""
    low, high = min(numbers), max(numbers)
    if years and low >= 1000 and high <= 2999:
        return "%Y"
    if low >= 10**9 and high < 10**10:
        return "epoch s"
    if low >= 10**12 and high < 10**13:
        return "epoch ms"
    for pattern, first, last in (("%Y%m%d", 16000101, 29991231), ("%Y%m", 160001, 299912)):
        if first <= low and high <= last:
            try:
                TimeFormat(pattern).read([str(number) for number in numbers])
            except WeftError:
                continue
            return pattern
    return COUNTER_PATTERN


def _span(times: Array) -> int:
    """The number of steps from the first time to the last."""
    different = np.unique(times)
    step = infer_frequency([different])
    return 0 if step is None else int(step.steps(different[0], different[-1:])[0])


def _fields(pattern: str, texts: Sequence[str]) -> dict[str, Sequence[str]]:
    """The parts of texts by the letter of the pattern."""
    expression, names = pattern_expression(pattern)
    match: Callable[[str], Any] = expression.fullmatch
    matches = [match(text) for text in texts]
    if not all(matches):
        index = next(place for place, found in enumerate(matches) if not found)
        raise _no_time(texts[index], pattern, index)
    columns: list[Sequence[str]] = list(zip(*(found.groups() for found in matches), strict=True))
    return {"": texts, **dict(zip(names, columns, strict=True))}


def _moments(fields: dict[str, Sequence[str]]) -> Array:
    """The times of their parts, without the time zone."""

    def numbers(name: str, otherwise: int = 0) -> IntArray:
        if name not in fields:
            return np.full(len(fields[""]), otherwise, np.int64)
        return np.array(fields[name], np.int64)

    if "G" in fields:  # the week that holds 4 January is the first
        fourth = (numbers("G") - 1970).astype("M8[Y]").astype("M8[D]") + np.timedelta64(3, "D")
        monday = fourth - ((fourth.astype(np.int64) + 3) % 7).astype("m8[D]")
        dates = monday + (7 * (numbers("V") - 1) + numbers("u", 1) - 1).astype("m8[D]")
        _check(fields, (numbers("V") >= 1) & (numbers("V") <= 53))
        return np.asarray(dates.astype("M8[us]"))
    years = numbers("Y", 1970)
    if "y" in fields:
        years = numbers("y") + np.where(numbers("y") < 69, 2000, 1900)
    months = numbers("m", 1) if "q" not in fields else 3 * numbers("q") - 2
    for letter in ("b", "B"):
        if letter in fields:
            months = _month_numbers(fields[letter], long=letter == "B")
    days = numbers("d", 1)
    hours = numbers("H")
    if "I" in fields:
        after = np.array([text.lower() == "pm" for text in fields["p"]])
        _check(fields, (numbers("I") >= 1) & (numbers("I") <= 12))
        hours = numbers("I") % 12 + 12 * after
    _check(fields, (months >= 1) & (months <= 12))
    first = ((years - 1970) * 12 + months - 1).astype("M8[M]")
    lengths = ((first + np.timedelta64(1, "M")).astype("M8[D]") - first.astype("M8[D]")).astype(np.int64)
    _check(fields, (days >= 1) & (days <= lengths) & (hours < 25) & (numbers("M") < 60) & (numbers("S") < 61))
    micro = hours * HOUR + numbers("M") * MINUTE + numbers("S") * SECOND
    if "f" in fields:
        micro = micro + np.array([int(text[:6].ljust(6, "0")) for text in fields["f"]])
    return np.asarray(first.astype("M8[D]").astype("M8[us]") + ((days - 1) * DAY + micro).astype("m8[us]"))


def _check(fields: dict[str, Sequence[str]], valid: Array) -> None:
    if not valid.all():
        index = int(np.argmin(valid))
        raise _no_time(fields[""][index], "", index)


def _month_numbers(texts: Sequence[str], *, long: bool) -> IntArray:
    names = LONG_MONTHS if long else SHORT_MONTHS
    known = {name: number for number, name in enumerate(names, start=1)}
    return np.array([known.get(text.lower(), 0) for text in texts], np.int64)


def _offsets(zones: Sequence[str]) -> IntArray:
    """The offsets of zones from UTC, in microseconds."""
    known = {zone: _offset(zone) for zone in dict.fromkeys(zones)}
    return np.array([known[zone] for zone in zones], np.int64)


def _offset(zone: str) -> int:
    if zone.upper() in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (int(digits[:2]) * HOUR + int(digits[2:]) * MINUTE)


def _is_offset(zone: str) -> bool:
    return re.fullmatch(PATTERN_TOKENS["Z"], zone) is not None


def _no_time(text: str, pattern: str, index: int) -> WeftError:
    wanted = f"as the others: {pattern}" if pattern else "a date of the calendar"
    error = WeftError(f"{text[:60]!r} is not a time", expected=wanted)
    error.index = index  # type: ignore[attr-defined]
    return error


def _written(pattern: str, moment: datetime, zone: str) -> str:
    year, week, weekday = moment.isocalendar()
    values: dict[str, Any] = {
        "Y": f"{moment.year:04}", "y": f"{moment.year % 100:02}", "m": f"{moment.month:02}", "-m": moment.month,
        "d": f"{moment.day:02}", "-d": moment.day, "H": f"{moment.hour:02}", "-H": moment.hour,
        "M": f"{moment.minute:02}", "S": f"{moment.second:02}", "I": f"{moment.hour % 12 or 12:02}",
        "p": "PM" if moment.hour >= 12 else "AM", "b": SHORT_MONTHS[moment.month - 1].title(),
        "B": LONG_MONTHS[moment.month - 1].title(), "q": (moment.month + 2) // 3, "V": f"{week:02}", "u": weekday,
        "G": f"{year:04}", "Z": zone,
    }  # fmt: skip

    def part(match: re.Match[str]) -> str:
        if match[1].endswith("f"):
            digits = int(match[1][0]) if match[1] != "f" else 6
            return f"{moment.microsecond:06}".ljust(9, "0")[:digits]
        return str(values[match[1]])

    return _TOKEN.sub(part, pattern)
