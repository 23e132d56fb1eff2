"""Features of the calendar: where in a day, a week, a month and a year each step of a series falls.

Positions go around: a feature is the sine or the cosine of an angle, so that 23:00 is next to 0:00 and 31 December next
to 1 January, in leap years too. Times of the future have them as those of the past do.
"""

from __future__ import annotations

import numpy as np

from weft.data.column import Array
from weft.series.frequency import DAY, HOUR, MINUTE, WEEK, Frequency

CYCLES = {  # and the longest step that goes through several places of them
    "minute of hour": 30 * MINUTE,
    "hour of day": 12 * HOUR,
    "day of week": DAY,
    "day of month": DAY,
    "day of year": WEEK,
}


def calendar_cycles(frequency: Frequency) -> tuple[str, ...]:
    """The cycles that steps of a frequency go through; none for a counter, and for steps of years.

    >>> [calendar_cycles(Frequency.parse(name)) for name in ("h", "B", "W-SUN", "MS", "YE")][1:]
    [('day of week', 'day of month', 'day of year'), ('day of year',), ('month of year',), ()]
    """
    if frequency.unit == "month":
        return ("month of year",) if frequency.count < 12 else ()
    if not frequency.has_times:
        return ()
    step = DAY if frequency.unit == "B" else frequency.count
    return tuple(name for name, longest in CYCLES.items() if step <= longest)


def calendar_positions(times: Array, frequency: Frequency) -> Array:
    """The position (T, cycles) of each time in its cycles, from 0 to below 1.

    Args:
        times: datetime64, on the clock of their place (`TimeFormat.clock`).
        frequency: the step of time.
    """
    cycles = calendar_cycles(frequency)
    if not cycles:
        return np.zeros((len(times), 0))
    moments = np.asarray(times, "M8[us]")
    days = moments.astype("M8[D]")
    within = (moments - days).astype(np.int64)  # microseconds since midnight
    months, years = days.astype("M8[M]"), days.astype("M8[Y]")
    part = within / DAY  # of the day
    month_days = (days - months.astype("M8[D]")).astype(np.int64)
    month_lengths = ((months + 1).astype("M8[D]") - months.astype("M8[D]")).astype(np.int64)
    year_days = (days - years.astype("M8[D]")).astype(np.int64)
    year_lengths = ((years + 1).astype("M8[D]") - years.astype("M8[D]")).astype(np.int64)
    positions = {
        "minute of hour": (within % HOUR) / HOUR,
        "hour of day": part,
        "day of week": ((days.astype(np.int64) + 3) % 7 + part) / 7,
        "day of month": (month_days + part) / month_lengths,
        "day of year": (year_days + part) / year_lengths,
        "month of year": (months.astype(np.int64) % 12) / 12,
    }
    return np.stack([positions[cycle] for cycle in cycles], axis=1)


def calendar_features(times: Array, frequency: Frequency, harmonics: int = 1) -> Array:
    """The sines and cosines (T, 2 * harmonics * cycles) of the positions in their cycles, harmonic by harmonic.

    Args:
        times: datetime64, on the clock of their place (`TimeFormat.clock`).
        frequency: the step of time.
        harmonics: how many multiples of each angle there are.

    >>> noon = calendar_features(np.array(["2024-03-04T12:00"], "M8[us]"), Frequency.parse("h"))[0]
    >>> [round(float(value), 3) + 0 for value in noon[:2]]  # half of a day
    [0.0, -1.0]
    """
    angles = 2 * np.pi * calendar_positions(times, frequency)
    waves = [wave(number * angles) for number in range(1, harmonics + 1) for wave in (np.sin, np.cos)]
    features = np.stack(waves, axis=-1)  # (T, cycles, 2 * harmonics)
    return features.reshape(len(angles), -1)


def calendar_names(frequency: Frequency, harmonics: int = 1) -> tuple[str, ...]:
    """The names of `calendar_features`."""
    return tuple(
        f"{wave} {cycle}" + (f" x{number}" if number > 1 else "")
        for cycle in calendar_cycles(frequency)
        for number in range(1, harmonics + 1)
        for wave in ("sine of", "cosine of")
    )
