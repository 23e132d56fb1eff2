"""Coloured text and heat maps as SVG."""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np

from weft.pictures.figures import Array, ColouredText, HeatMap, value_range, visible
from weft.pictures.palette import level_class
from weft.pictures.svg import MARGIN, SMALL, Canvas, shorten, text_width, title_width, two_decimals

FIGURE_WIDTH = 760  # of a figure, in pixels
MOST_COLUMNS, MOST_ROWS = 720, 256  # above which neighbouring cells are averaged
LONGEST_LABEL = 110
LEGEND = 84  # the width of a legend beside a map


def draw_text(figure: ColouredText, _width: float = 0) -> Canvas:
    """Tokens on coloured boxes, in lines; a line break in the text ends a line."""
    size, height, limit = 15, 24, FIGURE_WIDTH - MARGIN - LEGEND
    low, high = value_range(figure.values, figure.scale, figure.limits)
    boxes: list[tuple[float, float, float, int]] = []
    x, y = float(MARGIN), 58.0
    single = max((len(token) for token in figure.tokens), default=0) <= 1
    for place, token in enumerate(figure.tokens):
        space = 0.0 if single else 4.0
        width = max(text_width(visible(token), size), 5) + (2 if single else 6)
        if x + width > limit and x > MARGIN:
            x, y = float(MARGIN), y + height + 4
        boxes.append((x, y, width, place))
        x += width + space
        if "\n" in token:
            x, y = float(MARGIN), y + height + 4
    bottom = max([y + height for _, y, _, _ in boxes], default=y)
    canvas = Canvas(FIGURE_WIDTH, max(bottom + MARGIN, 150), figure.title)
    for x, y, width, place in boxes:
        value = float(figure.values[place])
        name = level_class(value, low, high, figure.scale)
        canvas.rect(x, y, width, height, name, note=figure.note(place), radius=0 if single else 3)
        shown = visible(figure.tokens[place])
        css = "faint" if name == "none" else f"on-{name}"
        inside = width - (2 if single else 6)
        canvas.text(x + (width - inside) / 2, y + 17, shown, css, size=size, fit=inside)
    canvas.legend(FIGURE_WIDTH - LEGEND, 58, min(110, canvas.height - 58 - MARGIN), low, high, figure.scale)
    canvas.text(FIGURE_WIDTH - MARGIN, 46, figure.label, "faint", size=SMALL, anchor="end")
    return canvas


def draw_heat_map(figure: HeatMap, width: float = FIGURE_WIDTH) -> Canvas:
    """A matrix of coloured cells with row and column labels."""
    values, rows, columns = shrink(figure)
    R, C = values.shape
    low, high = value_range(figure.values, figure.scale, figure.limits)
    labels = [visible(name) for name in rows]
    left = MARGIN + (min(LONGEST_LABEL, max(text_width(one, SMALL) for one in labels)) + 8 if labels else 0)
    left += 16 if figure.row_title else 0
    room = width - left - LEGEND
    w = min(34.0, max(math.floor(2 * room / max(C, 1)) / 2, 1.0))  # half pixels: no gaps between cells
    if figure.annotate:
        w = min(max(w, 38.0), 64.0)
    h = float(min(20, max(6, 480 // R)) if labels else min(16, max(220 // max(R, 1), 2)))
    h = min(h, w * 1.6) if C and not figure.annotate and not labels else h
    names = [visible(name) for name in columns]
    upright = bool(names) and max(text_width(one, SMALL) for one in names) <= w - 1
    deep = 0.0
    if names:
        deep = 16 if upright else min(LONGEST_LABEL, max(text_width(one, SMALL) for one in names)) * 0.75 + 14
    top = 46.0
    width = max(left + C * w + LEGEND, min(380, width), title_width(figure.title) + 2 * MARGIN)
    bottom = top + R * h + deep + (20 if figure.column_title else 0) + 10
    canvas = Canvas(width, max(bottom, top + 80), figure.title)
    canvas.frame = (left, top, w, h, R, C)
    _cells(canvas, figure, values, (left, top, w, h), (low, high))
    skip = max(1, math.ceil(12 / h))
    for row, name in enumerate(labels):
        if row % skip == 0:
            canvas.text(
                left - 6, top + (row + 0.5) * h + 4, shorten(name, LONGEST_LABEL, SMALL), size=SMALL, anchor="end"
            )
    skip = max(1, math.ceil((11 if not upright else 1) / w))
    for column, name in enumerate(names):
        if column % skip:
            continue
        x, y = left + (column + 0.5) * w, top + R * h + 13
        if upright:
            canvas.text(x, y, name, size=SMALL, anchor="middle")
        else:
            canvas.text(x + 3, y - 3, shorten(name, LONGEST_LABEL, SMALL), size=SMALL, anchor="end", turn=-50)
    if figure.row_title:
        middle = top + R * h / 2
        canvas.text(MARGIN + 6, middle, figure.row_title, "faint", size=SMALL, anchor="middle", turn=-90)
    if figure.column_title:
        canvas.text(left + C * w / 2, bottom - 8, figure.column_title, "faint", size=SMALL, anchor="middle")
    canvas.legend(left + C * w + 16, top, min(110, max(R * h, 60)), low, high, figure.scale)
    if figure.label:
        canvas.text(left + C * w, top - 6, figure.label, "faint", size=SMALL, anchor="end")
    return canvas


def _cells(
    canvas: Canvas,
    figure: HeatMap,
    values: Array,
    place: tuple[float, float, float, float],
    ends: tuple[float, float],
) -> None:
    """One path for each level: neighbours of the same level are one rectangle, so that large maps stay small files."""
    (left, top, w, h), (low, high) = place, ends
    paths: dict[str, list[str]] = {}
    for row, line in enumerate(values.tolist()):
        column = 0
        for name, group in groupby(line, key=lambda value: level_class(value, low, high, figure.scale)):
            count = len(list(group))
            if name != "none":
                x, y, wide = left + column * w, top + row * h, count * w
                paths.setdefault(name, []).append(f"M{x:.5g} {y:.5g}h{wide:.5g}v{h:.4g}h-{wide:.5g}z")
            column += count
    for name, parts in paths.items():
        canvas.path("".join(parts), name, extra=' shape-rendering="crispEdges"')
    if figure.annotate:
        for row, line in enumerate(values.tolist()):
            for column, value in enumerate(line):
                if math.isfinite(value):
                    name = level_class(value, low, high, figure.scale)
                    x, y = left + (column + 0.5) * w, top + (row + 0.5) * h + 4
                    canvas.text(x, y, two_decimals(value), f"on-{name}", size=SMALL, anchor="middle")


def shrink(figure: HeatMap) -> tuple[Array, tuple[str, ...], tuple[str, ...]]:
    """The matrix with neighbouring cells averaged until it can be drawn."""
    values, rows, columns = figure.values, figure.rows, figure.columns
    for axis, most in ((1, MOST_COLUMNS), (0, MOST_ROWS)):
        by = math.ceil(values.shape[axis] / most)
        if by > 1:
            begins = np.arange(0, values.shape[axis], by)
            sizes = np.diff(np.append(begins, values.shape[axis]))
            values = np.add.reduceat(values, begins, axis=axis) / (sizes if axis else sizes[:, None])
            if axis:
                columns = columns[::by]
            else:
                rows = rows[::by]
    return values, rows, columns
