"""The forecasts of a backtest as plain data, and their picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.data.column import IntArray
from weft.errors import WeftError
from weft.pictures.figures import Array, Band, Curve, Curves
from weft.series import SeriesSet
from weft.tasks.forecast.calibration import quantile_at
from weft.tasks.forecast.model import Forecaster, SeriesRows, medians

FORECAST, INTERVAL = "forecast", 80
COLOURS = (0, 4, 2, 3, 1, 5)  # of the forecast and of baselines; that of the truth is 6


def backtest_record(
    series: SeriesSet,
    rows: SeriesRows,
    models: Sequence[tuple[Forecaster, IntArray]],
    names: Sequence[str],
    count: int,
) -> list[dict[str, Any]]:
    """The values and the forecasts of the first rows.

    Args:
        series: All series.
        rows: Their channels.
        models: The model of each window, the earliest first, and the cutoffs of all rows.
        names: Baselines.
        count: How many series there are in it.
    """
    channels = series.channels
    records = []
    for number in range(min(len(rows.targets), count * len(channels))):
        one, row = series.series[number // len(channels)], rows.at([number])
        first = max(0, int(models[0][1][number]) - 2 * models[0][0].horizon)
        windows = []
        for model, cutoffs in models:
            cutoff = int(cutoffs[number])
            if cutoff <= 0:
                continue
            parts = model.with_baselines(row.until([cutoff]), names)
            ends = [quantile_at(parts[""], 0.5 + side * INTERVAL / 200)[0].tolist() for side in (-1, 1)]
            forecasts = {name or FORECAST: medians(part)[0].tolist() for name, part in parts.items()}
            windows.append({"cutoff": cutoff - first, "forecasts": forecasts, "low": ends[0], "high": ends[1]})
        moments = one.times[first:]
        records.append({
            "id": one.id,
            "channel": channels[number % len(channels)],
            "times": series.time_format.write(moments),
            "dates": list(map(str, moments.astype("M8[s]"))) if series.frequency.has_times else [],
            "values": [value if np.isfinite(value) else None for value in row.targets[0][first:].tolist()],
            "windows": windows,
        })  # fmt: skip
    return records


def backtest_table(
    series: SeriesSet,
    rows: SeriesRows,
    models: Sequence[tuple[Forecaster, IntArray]],
    names: Sequence[str],
    levels: Mapping[str, float],
) -> dict[str, Any]:
    """All forecasts of a backtest as columns: unique_id, ds, cutoff, y, weft, its intervals, and baselines.

    The cutoff is the time of the last value that was known. Of several channels each has its columns: `load`,
    `load-weft`, `load-weft-lo-80`.

    Args:
        series: All series.
        rows: Their channels.
        models: The model of each window, the earliest first, and the cutoffs of all rows.
        names: Baselines.
        levels: The shares of intervals by their percent.
    """
    channels, columns = series.channels, dict[str, list[Any]]()
    for model, cutoffs in models:
        chosen = np.flatnonzero((cutoffs > 0) & (cutoffs < [len(row) for row in rows.targets]))
        parts = model.with_baselines(rows.at(chosen).until(cutoffs[chosen]), names)
        for place, number in enumerate(chosen.tolist()):
            one, channel, cutoff = series.series[number // len(channels)], number % len(channels), cutoffs[number]
            true = rows.targets[number][cutoff : cutoff + model.horizon]
            prefix = f"{channels[channel]}-" if len(channels) > 1 else ""
            quantiles = parts[""][place, : len(true)]
            found: dict[str, Any] = {prefix.rstrip("-") or "y": true, f"{prefix}weft": medians(quantiles)}
            for percent, share in levels.items():
                for side, sign in (("lo", -1), ("hi", 1)):
                    found[f"{prefix}weft-{side}-{percent}"] = quantile_at(quantiles, 0.5 + sign * share / 2)
            found |= {f"{prefix}{name}": medians(parts[name])[place, : len(true)] for name in names}
            if not channel:
                moments = one.times[cutoff - 1 : cutoff + len(true)]
                cutoff_times = np.repeat(moments[:1], len(true))
                found = {"unique_id": [one.id] * len(true), "ds": moments[1:], "cutoff": cutoff_times} | found
            for name, values in found.items():
                columns.setdefault(name, []).append(values)
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def backtest_figures(record: Mapping[str, Any]) -> list[Curves]:
    """What `weft backtest --json` gives, as a figure for each series.

    Of windows that overlap, each forecast is drawn up to the next cutoff.

    Raises:
        WeftError: it is not the result of a backtest.
    """
    try:
        return [_figure(one) for one in record["forecasts"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise WeftError(
            "the file has no forecasts of a backtest", expected="what `weft backtest RUN --json --out FILE` writes"
        ) from error


def _figure(record: Mapping[str, Any]) -> Curves:
    values, windows = np.array(record["values"], np.float64), record["windows"]
    known, steps = np.isfinite(values), np.arange(len(values), dtype=np.float64)
    ends = [*(one["cutoff"] for one in windows[1:]), len(values)]
    places: list[Array] = []
    parts: dict[str, list[Array]] = {}
    for one, end in zip(windows, ends, strict=True):
        count = min(end - one["cutoff"], len(one["low"]))
        places.append(np.arange(one["cutoff"], one["cutoff"] + count, dtype=np.float64))
        for name, own in {**one["forecasts"], "low": one["low"], "high": one["high"]}.items():
            parts.setdefault(name, []).append(np.array(own[:count], np.float64))
    x = np.concatenate(places) if places else np.zeros(0)
    joined = {name: np.concatenate(own) for name, own in parts.items()}
    low, high = joined.pop("low", x), joined.pop("high", x)
    forecasts = [
        Curve(name, x, own, hue=COLOURS[place % len(COLOURS)], dashed=name != FORECAST)
        for place, (name, own) in enumerate(joined.items())
    ]
    title = f"Backtest of {record['id'] or record['channel']}, {len(windows)} cutoffs"
    bands = (Band(f"{INTERVAL}%", x, low, high),) if len(x) else ()
    dates, ticks = tuple(map(str, record["dates"])), tuple(map(str, record["times"]))
    np.array(dates, "M8[s]")  # a ValueError, if they are no dates
    curves = (*reversed(forecasts[1:]), Curve("truth", steps[known], values[known], hue=6), *forecasts[:1])
    return Curves(title, curves, "" if dates else "step", dates=dates, ticks=ticks, bands=bands)
