"""Curves as SVG."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from weft.pictures.date_ticks import date_ticks
from weft.pictures.figures import Array, Band, Curve, Curves, visible
from weft.pictures.palette import LIGHT_HUES
from weft.pictures.svg import SMALL, Canvas, at, number, shorten, text_width

PLOT_WIDTH, PLOT_HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 46, 50
MOST_POINTS = 400  # of a curve; more are averaged in groups
DATE_WIDTH = 74  # pixels between dates
BAND_OPACITY = 0.18
LONGEST_LINE_NAME, NAME_SHARE = 200, 0.24  # of the name of a line: pixels, and of the width of the figure


def draw_curves(figure: Curves, width: float = PLOT_WIDTH) -> Canvas:
    """Lines with axes, their names at their ends, the best point of each marked, and bands behind them."""
    shown = [_clean(curve, figure.log) for curve in figure.curves]
    shown = [curve for curve in shown if len(curve.x)]
    canvas = Canvas(width, PLOT_HEIGHT, figure.title)
    if not shown:
        canvas.text(width / 2, PLOT_HEIGHT / 2, "no points", "faint", anchor="middle")
        return canvas
    longest = min(LONGEST_LINE_NAME, NAME_SHARE * width)
    plot_right = width - RIGHT - (min(max(text_width(_end_name(curve), SMALL) for curve in shown), longest) + 14)
    x_low, x_high = _ends(np.concatenate([*(curve.x for curve in shown), *(band.x for band in figure.bands)]))
    areas = [part for band in figure.bands for part in (band.low, band.high)]
    y_all = np.concatenate([*(part for curve in shown for part in (curve.y, curve.faint) if part is not None), *areas])
    y_all = y_all[np.isfinite(y_all) & ((y_all > 0) | (not figure.log))]
    y_low, y_high = _ends(np.log10(y_all) if figure.log else y_all, pad=0.04)

    canvas.frame = (LEFT, TOP, plot_right, PLOT_HEIGHT - BOTTOM, x_low, x_high)

    def px(value: float) -> float:
        return LEFT + (value - x_low) / (x_high - x_low) * (plot_right - LEFT)

    def py(value: float) -> float:
        value = math.log10(value) if figure.log else value
        return PLOT_HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (PLOT_HEIGHT - BOTTOM - TOP)

    for tick in log_ticks(y_low, y_high) if figure.log else ticks(y_low, y_high):
        canvas.line(LEFT, py(tick), plot_right, py(tick), "grid")
        canvas.text(LEFT - 8, py(tick) + 4, number(tick), "faint", size=SMALL, anchor="end")
    _x_axis(canvas, figure, px, (x_low, x_high), plot_right)
    if figure.y_label:
        canvas.text(
            16, (TOP + PLOT_HEIGHT - BOTTOM) / 2, figure.y_label, "faint", size=SMALL, anchor="middle", turn=-90
        )
    for band in figure.bands:
        canvas.path(_area(band, px, py), f"dot{band.hue}", extra=f' fill-opacity="{BAND_OPACITY}"')
    _band_names(canvas, figure, plot_right)
    ends: list[float] = []
    for place, curve in enumerate(shown):
        hue = curve_hue(curve, place)
        dash = ' stroke-dasharray="6 3"' if curve.dashed or (curve.hue is None and place >= len(LIGHT_HUES)) else ""
        if curve.faint is not None:
            canvas.path(_path(curve.x, curve.faint, px, py), f"line{hue}", 1, extra=' opacity="0.25"')
        line, extra = _path(curve.x, curve.y, px, py), f' stroke-linejoin="round"{dash}'
        if figure.dates:
            line, extra = _broken_path(curve, px, py), f' stroke-linejoin="round" stroke-linecap="round"{dash}'
        if curve.dots:
            for x, y in zip(curve.x.tolist(), curve.y.tolist(), strict=True):
                canvas.circle(px(x), py(y), 4, f"dot{hue}", note=f"{curve.name}: {number(y)}")
        else:
            canvas.path(line, f"line{hue}", 1.8, extra=extra)
        if curve.best is not None and curve.best < len(curve.x):
            x, y = float(curve.x[curve.best]), float(curve.y[curve.best])
            canvas.circle(px(x), py(y), 4, f"dot{hue}", note=f"{curve.mark}: {number(y)} at {number(x)}")
        ends.append(py(float(curve.y[-1])) + 4)
    for place, y in zip(np.argsort(ends, kind="stable").tolist(), _apart(sorted(ends)), strict=True):
        curve = shown[place]
        hue, end = curve_hue(curve, place), px(float(curve.x[-1]))
        if plot_right - end > 16 and not figure.dates:  # the line ends far from its name
            leader = f"M{at(end + 6)} {at(ends[place] - 4)}L{at(plot_right + 4)} {at(y - 4)}"
            canvas.path(leader, f"line{hue}", 0.8, extra=' stroke-dasharray="1 3"')
        canvas.text(plot_right + 8, y, shorten(_end_name(curve), longest, SMALL), f"dot{hue}", size=SMALL)
    return canvas


def curve_hue(curve: Curve, place: int) -> int:
    """The number of a curve's colour."""
    return (place if curve.hue is None else curve.hue) % len(LIGHT_HUES)


def _x_axis(canvas: Canvas, figure: Curves, px, ends: tuple[float, float], right: float) -> None:  # type: ignore[no-untyped-def]
    base = PLOT_HEIGHT - BOTTOM
    canvas.line(LEFT, base, right, base)
    if figure.dates:
        for date in date_ticks(figure.dates, *ends, most=int((right - LEFT) / DATE_WIDTH) + 1):
            canvas.line(px(date.place), base, px(date.place), base + 4)
            canvas.text(px(date.place), base + 17, date.label, "faint", size=SMALL, anchor="middle")
            canvas.text(px(date.place), base + 31, date.below, "faint", size=SMALL, anchor="middle")
    elif figure.ticks:
        room = (right - LEFT) / max(1, len(figure.ticks))
        names = [visible(name) for name in figure.ticks]
        skip = max(1, math.ceil((max(text_width(name, SMALL) for name in names) + 4) / room))
        for place in range(0, len(names), skip):
            if ends[0] <= place <= ends[1]:
                canvas.text(px(place), base + 16, names[place], "faint", size=SMALL, anchor="middle")
    else:
        for tick in ticks(*ends):
            canvas.line(px(tick), base, px(tick), base + 4)
            canvas.text(
                px(tick),
                base + 17,
                number(tick) if abs(tick) < 1e5 else f"{tick:g}",
                "faint",
                size=SMALL,
                anchor="middle",
            )
    if figure.x_label:
        canvas.text((LEFT + right) / 2, PLOT_HEIGHT - 12, figure.x_label, "faint", size=SMALL, anchor="middle")


def _end_name(curve: Curve) -> str:
    """The name at the end of a line, with the value of its marked point."""
    return curve.name if curve.best is None else f"{curve.name}, {curve.mark} {number(float(curve.y[curve.best]))}"


def _clean(curve: Curve, log: bool) -> Curve:
    """The points that can be drawn; many of them averaged in groups."""
    good = np.isfinite(curve.y) & np.isfinite(curve.x) & ((curve.y > 0) if log else True)
    best = None
    if curve.best is not None and good[curve.best]:
        best = int(good[: curve.best].sum())
    x, y, faint = curve.x[good], curve.y[good], None if curve.faint is None else curve.faint[good]
    by = math.ceil(len(x) / MOST_POINTS)
    if by > 1:
        best = None if best is None else best // by
        x, y, faint = (None if part is None else _grouped(part, by) for part in (x, y, faint))  # type: ignore[assignment]
    return dataclasses.replace(curve, x=x, y=y, best=best, faint=faint)


def _grouped(values: Array, by: int) -> Array:
    begins = np.arange(0, len(values), by)
    grouped: Array = np.add.reduceat(values, begins) / np.diff(np.append(begins, len(values)))
    return grouped


def _path(x: Array, y: Array, px, py) -> str:  # type: ignore[no-untyped-def]
    points = [f"{at(px(a))} {at(py(b))}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return "M" + "L".join(points)


def _broken_path(curve: Curve, px, py) -> str:  # type: ignore[no-untyped-def]
    """The line in pieces, which end where steps are missing; a piece of one point is a dot."""
    gaps = np.diff(curve.x)
    breaks = np.flatnonzero(gaps > 1.5 * np.median(gaps)) + 1 if len(gaps) else np.zeros(0, np.int64)
    pieces = [
        _path(x, y, px, py) + ("h0" if len(x) == 1 else "")
        for x, y in zip(np.split(curve.x, breaks), np.split(curve.y, breaks), strict=True)
    ]
    return "".join(pieces)


def _area(band: Band, px, py) -> str:  # type: ignore[no-untyped-def]
    by = math.ceil(len(band.x) / MOST_POINTS)
    x, low, high = (_grouped(part, by) for part in (band.x, band.low, band.high))
    return _path(np.append(x, x[::-1]), np.append(high, low[::-1]), px, py) + "z"


def _band_names(canvas: Canvas, figure: Curves, right: float) -> None:
    """A key of the bands above the plot, from the right; where bands lie on each other, the colours do."""
    x = right
    for place, band in reversed(list(enumerate(figure.bands))):
        x -= text_width(band.name, SMALL)
        canvas.text(x, TOP - 7, band.name, "faint", size=SMALL)
        x -= 18
        below = sum(other.hue == band.hue for other in figure.bands[: place + 1])
        for _ in range(below):
            canvas.path(f"M{at(x)} {TOP - 16}h13v10h-13z", f"dot{band.hue}", extra=f' fill-opacity="{BAND_OPACITY}"')
        x -= 12


def _ends(values: Array, pad: float = 0.0) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    return low - pad * (high - low), high + pad * (high - low)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two ends."""
    rough = (high - low) / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [round(step * k, 12) for k in range(first, math.floor(high / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    first, last = math.ceil(low), math.floor(high)
    if last - first < 1:
        round_numbers = [factor * 10.0**power for power in range(math.floor(low), last + 1) for factor in (1, 2, 5)]
        inside = [value for value in round_numbers if low <= math.log10(value) <= high]
        return inside if len(inside) > 1 else ticks(10**low, 10**high, 4)
    return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / 6)))]


def _apart(places: list[float], least: float = 13) -> list[float]:
    """Sorted places moved down until labels there do not overlap."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + least) if found else place)
    over = found[-1] - (PLOT_HEIGHT - BOTTOM + 6) if found else 0
    return [place - over for place in found] if over > 0 else found
