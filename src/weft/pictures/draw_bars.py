"""Bars and intervals as SVG."""

from __future__ import annotations

from weft.pictures.draw_curves import ticks
from weft.pictures.figures import Bars, Intervals, visible
from weft.pictures.svg import MARGIN, SMALL, Canvas, number, percent, shorten, text_width

BAR_ROW, BARS_TOP, LONGEST = 30, 38, 180  # pixels: the height of a bar's row, where the first begins, the longest name
INTERVAL_ROW = 96
WIDEST = 640
BOLD = 1.15  # how much wider bold text is


def draw_bars(figure: Bars, width: float) -> Canvas:
    """A row for each share: its name, its bar, its percentage. Small shares are drawn relative to the largest."""
    names = [shorten(visible(name), LONGEST) for name in figure.names]
    left = MARGIN + BOLD * max(map(text_width, names), default=0) + 12
    width = min(width, WIDEST)
    room, most = width - left - 70, float(figure.values.max(initial=0))
    full = 1.0 if most >= 0.1 or most <= 0 else most
    canvas = Canvas(width, BARS_TOP + len(names) * BAR_ROW + 8, figure.title)
    canvas.frame = (BARS_TOP, BAR_ROW, width)
    for place, (name, value) in enumerate(zip(names, figure.values.tolist(), strict=True)):
        y, best = BARS_TOP + place * BAR_ROW, place == figure.best
        canvas.text(left - 8, y + 20, name, anchor="end", weight="600" if best else "")
        canvas.rect(left, y + 5, room, 20, "s1", radius=3)
        canvas.rect(left, y + 5, max(2, room * value / full), 20, "dot0" if best else "s14", radius=3)
        canvas.text(left + room + 8, y + 20, percent(value))
    return canvas


def signed(value: float) -> str:
    """A difference, with its sign."""
    return f"{'−' if value < 0 else '+'}{number(abs(value))}" if value else "0"


def draw_intervals(figure: Intervals, width: float) -> Canvas:
    """For each interval a line with 0 in its middle; every one has a scale of its own."""
    width = min(width, WIDEST)
    canvas = Canvas(width, BARS_TOP + len(figure.intervals) * INTERVAL_ROW, figure.title)
    for place, one in enumerate(figure.intervals):
        top = BARS_TOP + place * INTERVAL_ROW
        y, hue = top + 54, int(one.marked)
        end = 1.15 * max(abs(one.low), abs(one.high), abs(one.value), 1e-9)
        half = width / 2 - 2 * MARGIN
        canvas.text(MARGIN, top + 15, shorten(one.name, width - 2 * MARGIN), weight="600")
        canvas.text(MARGIN, top + 33, one.note, "faint", size=SMALL)
        canvas.line(2 * MARGIN, y, width - 2 * MARGIN, y, "grid")
        for tick in ticks(-end, end, 5):
            canvas.text(width / 2 + tick / end * half, y + 21, signed(tick), "faint", size=SMALL, anchor="middle")
        canvas.line(width / 2, y - 9, width / 2, y + 9)
        low, value, high = (width / 2 + number_ / end * half for number_ in (one.low, one.value, one.high))
        canvas.line(low, y, high, y, f"line{hue}", 5)
        canvas.circle(value, y, 5, f"dot{hue}", note=one.note)
    return canvas
