"""Round dates of an axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Steps between ticks, the shortest first: a unit of NumPy and how many of it.
STEPS = (
    *(("s", count) for count in (1, 5, 15, 30)),
    *(("m", count) for count in (1, 5, 15, 30)),
    *(("h", count) for count in (1, 3, 6, 12)),
    *(("D", count) for count in (1, 2, 7, 14)),
    *(("M", count) for count in (1, 3, 6)),
    *(("Y", power * factor) for power in (1, 10, 100, 1000) for factor in (1, 2, 5)),
)
FIRST_MONDAY = 4  # in days since 1970


class DateTick(NamedTuple):
    """A tick: its place among the steps, its label, and what stands below it where that is another than before."""

    place: float
    label: str
    below: str


def date_ticks(dates: Sequence[str], first: float, last: float, most: int) -> list[DateTick]:
    """At most so many ticks at round dates.

    Args:
        dates: The times of x = 0, 1, ... in ISO 8601.
        first: The least x.
        last: The largest.
        most: The most ticks.

    >>> months = [f"{2023 + month // 12}-{month % 12 + 1:02}-01" for month in range(24)]
    >>> [tick.label for tick in date_ticks(months, 0, 23, 5)]
    ['2023-01', '2023-07', '2024-01', '2024-07']
    >>> date_ticks(["2024-02-28T18:00", "2024-02-29T06:00", "2024-02-29T18:00"], 0, 2, 3)[1]
    DateTick(place=1.5, label='12:00', below='')
    """
    seconds = np.array(dates, "M8[s]").astype(np.int64).astype(np.float64)
    places = np.arange(len(dates), dtype=np.float64)
    low, high = np.interp([first, last], places, seconds)
    for unit, count in STEPS:
        numbers = _multiples(low, high, unit, count)
        if len(numbers) <= max(1, most):
            break
    found, before = list[DateTick](), ""
    for number in numbers:
        moment = _seconds(number, unit)
        label, below = _written(str(np.datetime64(moment, "s")), unit)
        place = float(np.interp(moment, seconds, places))
        found.append(DateTick(place, label, below if below != before else ""))
        before = below
    return found


def _multiples(low: float, high: float, unit: str, count: int) -> range:
    """The multiples of a step between two times, as numbers of units since 1970; those of weeks are Mondays."""
    begin, end = (int(np.datetime64(int(value), "s").astype(f"M8[{unit}]").astype(np.int64)) for value in (low, high))
    begin += _seconds(begin, unit) < low
    offset = FIRST_MONDAY if unit == "D" and count % 7 == 0 else 30 if unit == "Y" else 0
    return range(begin + (offset - begin) % count, end + 1, count)


def _seconds(number: int, unit: str) -> int:
    """A number of units since 1970 in seconds."""
    return int(np.array(number).astype(f"M8[{unit}]").astype("M8[s]").astype(np.int64))


def _written(text: str, unit: str) -> tuple[str, str]:
    """The label of a tick, from a time such as 2024-02-29T18:00:00, and what stands below it: its day, or its year."""
    if unit == "Y":
        return text[:4], ""
    if unit == "M":
        return text[:7], ""
    if unit == "D":
        return text[5:10], text[:4]
    return text[11:] if unit == "s" else text[11:16], text[:10]
