"""Figures in a terminal: coloured text and blocks with rich, plain tables where there is no terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.text import Text

from weft.pictures.draw_cells import shrink
from weft.pictures.draw_curves import curve_hue
from weft.pictures.figures import (
    Alignment,
    Bars,
    ColouredText,
    Curve,
    Curves,
    Figure,
    HeatMap,
    StateDiagram,
    Tree,
    value_range,
    visible,
)
from weft.pictures.palette import DARK_HUES, colours, level
from weft.pictures.svg import number, percent

PLOT_ROWS = 12  # of a plot


def print_figure(console: Console, figure: Figure) -> None:
    """Prints a figure: in colours on a terminal, otherwise as lines of tab-separated values."""
    if not console.is_terminal:
        for line in plain_lines(figure):
            print(line, file=console.file)
        return
    console.print(Text(figure.title, style="bold"))
    for text in _coloured(figure, console.width):
        console.print(text, soft_wrap=isinstance(figure, ColouredText))
    console.print()


def plain_lines(figure: Figure) -> Iterator[str]:
    """The figure as lines of text without colours: a heading, then one line per token, cell, point, node or arrow."""
    yield f"# {figure.title}"
    if isinstance(figure, ColouredText):
        for place, token in enumerate(figure.tokens):
            note = f"\t{figure.notes[place]}" if place < len(figure.notes) else ""
            yield f"{visible(token)}\t{number(float(figure.values[place]))}{note}"
    elif isinstance(figure, HeatMap):
        if figure.columns:
            yield "\t".join(["", *map(visible, figure.columns)])
        for row, line in enumerate(figure.values.tolist()):
            yield "\t".join([visible(figure.rows[row]) if figure.rows else str(row), *map(number, line)])
    elif isinstance(figure, Curves):
        for curve in figure.curves:
            for place, (x, y) in enumerate(zip(curve.x.tolist(), curve.y.tolist(), strict=True)):
                best = "\tbest" if place == curve.best else ""
                yield f"{curve.name}\t{_name_of(figure, x)}\t{y:.6g}{best}"
        for band in figure.bands:
            for x, low, high in zip(band.x.tolist(), band.low.tolist(), band.high.tolist(), strict=True):
                yield f"{band.name}\t{_name_of(figure, x)}\t{low:.6g}\t{high:.6g}"
    elif isinstance(figure, Tree):
        for node in figure.nodes:
            mark = "*" if node.best else " "
            yield f"{mark} {node.depth:3} {visible(node.text):16} {node.value:9.3f}  {node.kind:9} {node.note}"
    elif isinstance(figure, StateDiagram):
        yield from _transitions(figure)
    elif isinstance(figure, Alignment):
        yield from list(plain_lines(HeatMap("", figure.values, figure.rows, figure.columns)))[1:]
    elif isinstance(figure, Bars):
        for name, value in zip(figure.names, figure.values.tolist(), strict=True):
            yield f"{visible(name)}\t{percent(value)}"
    else:
        for one in figure.intervals:
            yield f"{one.name}\t{number(one.value)}\t[{number(one.low)}, {number(one.high)}]\t{one.note}"


def _mark(curve: Curve) -> str:
    return "●" if curve.dots else "◦" if curve.dashed else "•"


def _name_of(figure: Curves, x: float) -> str:
    """A place on the axis: its date, or its number."""
    return figure.ticks[int(x)] if figure.dates else f"{x:g}"


def _transitions(figure: StateDiagram) -> Iterator[str]:
    for a, name in enumerate(figure.states):
        notes = f"  {', '.join(figure.notes[a])}" if a < len(figure.notes) else ""
        arrows = [
            f"{figure.states[b]} {figure.transition[a, b]:.2f}"
            for b in np.argsort(-figure.transition[a]).tolist()
            if figure.transition[a, b] >= figure.least
        ]
        yield f"{name} -> {', '.join(arrows)}{notes}"


def _coloured(figure: Figure, width: int) -> Iterator[Text]:
    if isinstance(figure, ColouredText):
        yield _line(figure)
        low, high = value_range(figure.values, figure.scale)
        yield Text(f"{figure.label}: {number(low)} to {number(high)}", style="dim")
    elif isinstance(figure, HeatMap):
        yield from _blocks(figure, width)
    elif isinstance(figure, Curves):
        yield from _plot(figure, width)
    elif isinstance(figure, Tree):
        for node, line in zip(figure.nodes, list(plain_lines(figure))[1:], strict=True):
            style = "bold red" if node.best else "" if node.kind in ("kept", "ended", "cut") else "dim"
            yield Text(line[:width], style=style)
    else:
        yield from map(Text, list(plain_lines(figure))[1:])


def _style(value: float, low: float, high: float, scale: str) -> str:
    if not math.isfinite(value):
        return "dim"
    colour, light = colours(scale, dark=True)[level(value, low, high, scale)]
    return f"{'#ffffff' if light else '#000000'} on {colour}"


def _line(figure: ColouredText) -> Text:
    low, high = value_range(figure.values, figure.scale, figure.limits)
    single = max((len(token) for token in figure.tokens), default=0) <= 1
    text = Text()
    for token, value in zip(figure.tokens, figure.values.tolist(), strict=True):
        shown = token if token == " " else visible(token)
        text.append(shown, style=_style(value, low, high, figure.scale))
        text.append("\n" if "\n" in token else "" if single else " ")
    return text


def _blocks(figure: HeatMap, width: int) -> Iterator[Text]:
    values, rows, columns = shrink(figure)
    low, high = value_range(figure.values, figure.scale, figure.limits)
    wide = max((len(visible(name)) for name in rows), default=4)
    wide = min(wide, 16)
    cell = 2 if values.shape[1] * 2 + wide + 1 <= width else 1
    values = values[:, : max(1, (width - wide - 1) // cell)]
    for row, line in enumerate(values.tolist()):
        name = visible(rows[row])[:wide] if rows else str(row)
        text = Text(f"{name:>{wide}} ", style="dim")
        for value in line:
            text.append(" " * cell, style=_style(value, low, high, figure.scale))
        yield text
    if columns:
        names = [visible(name)[:cell] for name in columns[: values.shape[1]]]
        yield Text(" " * (wide + 1) + "".join(f"{name:{cell}}" for name in names), style="dim")
    yield Text(f"{figure.label or 'value'}: {number(low)} to {number(high)}", style="dim")


def _plot(figure: Curves, width: int) -> Iterator[Text]:
    """A small plot: for each column the mean of a curve's points there, as a mark in one of the rows."""
    curves = [curve for curve in figure.curves if len(curve.x)]
    if not curves:
        yield Text("no points", style="dim")
        return
    label = 10
    columns = max(10, min(100, width - label - 2))
    xs = np.concatenate([*(curve.x for curve in curves), *(band.x for band in figure.bands)])
    ys = np.concatenate([curve.y for curve in curves] + [part for one in figure.bands for part in (one.low, one.high)])
    ys = ys[np.isfinite(ys) & ((ys > 0) | (not figure.log))]
    scale = np.log10 if figure.log else np.asarray
    low, high = float(scale(ys).min()), float(scale(ys).max())
    high = high if high > low else low + 1
    first, last = float(xs.min()), float(xs.max())
    grid: list[list[tuple[str, str]]] = [[(" ", "")] * columns for _ in range(PLOT_ROWS)]
    for shade, band in zip("░▒▓"[: len(figure.bands)], figure.bands, strict=False):
        at = np.round((band.x - first) / ((last - first) or 1) * (columns - 1)).astype(int)
        for column in sorted(set(at.tolist())):
            inside = [float(scale(part[at == column]).mean()) for part in (band.high, band.low)]
            top, bottom = (PLOT_ROWS - 1 - round((value - low) / (high - low) * (PLOT_ROWS - 1)) for value in inside)
            for row in range(max(0, top), min(PLOT_ROWS - 1, bottom) + 1):
                grid[row][column] = (shade, DARK_HUES[band.hue])
    for place, curve in enumerate(curves):
        good = np.isfinite(curve.y) & ((curve.y > 0) | (not figure.log))
        at = np.round((curve.x[good] - first) / ((last - first) or 1) * (columns - 1)).astype(int)
        for column in sorted(set(at.tolist())):
            value = float(scale(curve.y[good][at == column]).mean())
            exact = (value - low) / (high - low) * (PLOT_ROWS - 1)
            row = PLOT_ROWS - 1 - round(exact)
            grid[row][column] = (_mark(curve), DARK_HUES[curve_hue(curve, place)])
    for row, line in enumerate(grid):
        value = high - (high - low) * row / (PLOT_ROWS - 1)
        tick = number(10**value if figure.log else value) if row % 3 == 0 or row == PLOT_ROWS - 1 else ""
        text = Text(f"{tick:>{label}} ", style="dim")
        for mark, colour in line:
            text.append(mark, style=colour)
        yield text
    begin, end = (_name_of(figure, x) if figure.dates else number(x) for x in (first, last))
    yield Text(f"{'':{label}} {begin}{end:>{columns - len(begin)}}  {figure.x_label}", style="dim")
    names = Text(" " * (label + 1))
    for place, curve in enumerate(curves):
        names.append(f"{_mark(curve)} {curve.name}  ", style=DARK_HUES[curve_hue(curve, place)])
    for shade, band in zip("░▒▓", figure.bands, strict=False):
        names.append(f"{shade} {band.name}  ", style=DARK_HUES[band.hue])
    yield names
