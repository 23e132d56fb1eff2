"""Beam trees and state diagrams as SVG."""

from __future__ import annotations

import math

from weft.pictures.figures import Alignment, StateDiagram, Tree, visible
from weft.pictures.svg import MARGIN, NORMAL, SMALL, Canvas, at, number, shorten, text_width, title_width

STEP, ROW = 118, 26  # pixels between the steps of a tree, and between its rows
BOX = 92
TOKEN, GAP, ABOVE, BELOW = 15, 18, 58, 184  # of an alignment: the size of its text, and where its two rows stand
LEAST_WEIGHT = 0.03  # lines below are not drawn


def draw_tree(figure: Tree, _width: float = 0) -> Canvas:
    """A tree that grows to the right; kept hypotheses in boxes, dropped ones faint, the best path in colour."""
    rows = _rows(figure)
    depth = max((node.depth for node in figure.nodes), default=0)
    left, top = 24 + max(BOX * 0.4, text_width(figure.root, SMALL)), 74.0
    *names, note = figure.key
    legend = tuple(zip(("line1", "line0", "axis"), names, strict=True))
    explained = 32 + sum(44 + text_width(name, SMALL) for _, name in legend) + text_width(note, SMALL)
    width = max(left + depth * STEP + 24, title_width(figure.title) + 32, explained)
    height = top + (max(rows, default=0) + 1) * ROW + 16
    canvas = Canvas(width, height, figure.title)
    x = 16.0
    for css, name in legend:
        canvas.line(x, 46, x + 22, 46, css, 2.5 if css == "line1" else 1.2)
        canvas.text(x + 28, 50, name, "faint", size=SMALL)
        x += 44 + text_width(name, SMALL)
    canvas.text(x, 50, note, "faint", size=SMALL)
    root_row = _root_row(figure, rows)

    def place(number_: int) -> tuple[float, float]:
        if number_ < 0:
            return left - 26, top + (root_row + 0.5) * ROW
        node = figure.nodes[number_]
        return left + (node.depth - 1) * STEP, top + (rows[number_] + 0.5) * ROW

    for at_, node in enumerate(figure.nodes):
        x1, y1 = place(node.parent)
        x2, y2 = place(at_)
        begin = x1 + (BOX if node.parent >= 0 else 10)
        middle = (begin + x2) / 2
        css, thick = ("line1", 2.4) if node.best else ("line0", 1.2) if node.kind == "kept" else ("grid", 1)
        canvas.path(f"M{at(begin)} {at(y1)}C{at(middle)} {at(y1)} {at(middle)} {at(y2)} {at(x2)} {at(y2)}", css, thick)
    canvas.circle(place(-1)[0] + 5, place(-1)[1], 5, "dot0", note=figure.root)
    if figure.root:
        canvas.text(place(-1)[0] - 4, place(-1)[1] + 4, figure.root, size=SMALL, anchor="end")
    for at_, node in enumerate(figure.nodes):
        x, y = place(at_)
        css = "dot1" if node.best else "ink" if node.kind in ("kept", "ended", "cut") else "faint"
        note = f"{node.text}: {node.kind}. {node.note}"
        canvas.rect(x, y - ROW / 2 + 2, BOX, ROW - 4, "page", note=note, radius=4, place=str(at_))
        mark = " ◦" if node.kind in ("ended", "cut") else ""
        shown = shorten(visible(node.text), BOX - 46, NORMAL) + mark
        canvas.text(x + 4, y + 4, shown, css, weight="600" if node.best else "")
        canvas.text(x + BOX - 2, y + 4, f"{node.value:.2f}", "faint", size=SMALL - 1, anchor="end")
    return canvas


def draw_alignment(figure: Alignment, width: float) -> Canvas:
    """Two rows of tokens, the shorter one in the middle of the longer one, and a line for each weight that counts."""
    rows = [[text_width(visible(name), TOKEN) for name in names] for names in (figure.columns, figure.rows)]
    wide = [sum(widths) + GAP * max(0, len(widths) - 1) for widths in rows]
    canvas = Canvas(max(*wide, min(width, 320) - 2 * MARGIN) + 2 * MARGIN, 208, figure.title)
    middles = []
    for names, widths, size, y, side in zip(
        (figure.columns, figure.rows), rows, wide, (ABOVE, BELOW), "cr", strict=True
    ):
        x, found = (canvas.width - size) / 2, []
        for place, (name, token) in enumerate(zip(names, widths, strict=True)):
            canvas.rect(x - GAP / 2, y - TOKEN - 3, token + GAP, TOKEN + 11, "page", place=f"{side}{place}")
            canvas.text(x, y, visible(name), size=TOKEN)
            found.append(x + token / 2)
            x += token + GAP
        middles.append(found)
    half = (ABOVE + BELOW) / 2
    for row, line in enumerate(figure.values.tolist()):
        for column, weight in enumerate(line):
            if weight >= LEAST_WEIGHT:
                a, b = at(middles[0][column]), at(middles[1][row])
                d = f"M{a} {ABOVE + 7}C{a} {at(half)} {b} {at(half)} {b} {BELOW - 17}"
                extra = f' opacity="{0.12 + 0.8 * weight:.2f}" stroke-linecap="round" data-joins="r{row} c{column}"'
                canvas.path(d, "line0", 0.6 + 5 * weight, extra=extra)
    return canvas


def _rows(figure: Tree) -> list[int]:
    """The row of each node: within a step by log P, the best on top."""
    rows = [0] * len(figure.nodes)
    for depth in {node.depth for node in figure.nodes}:
        there = [n for n, node in enumerate(figure.nodes) if node.depth == depth]
        there.sort(key=lambda n: (figure.nodes[n].kind in ("outranked", "pruned"), -figure.nodes[n].value))
        for row, n in enumerate(there):
            rows[n] = row
    return rows


def _root_row(figure: Tree, rows: list[int]) -> float:
    first = [rows[n] for n, node in enumerate(figure.nodes) if node.parent < 0]
    return sum(first) / len(first) if first else 0.0


def draw_states(figure: StateDiagram, _width: float = 0) -> Canvas:
    """States in a circle, arrows as wide as their probability; most probable tokens outside the circle."""
    K = len(figure.states)
    radius = max(110.0, K * 26.0)
    node = 22.0
    side = 170.0
    deep = 13.0 * max((len(lines) for lines in figure.notes), default=0)  # of the notes above and below
    width, height = 2 * (radius + side), 2 * (radius + node + 62 + deep) + 30
    cx, cy = width / 2, height / 2 + 15
    canvas = Canvas(width, height, figure.title)
    angles = [2 * math.pi * k / K - math.pi / 2 for k in range(K)]
    spots = [(cx + radius * math.cos(angle), cy + radius * math.sin(angle)) for angle in angles]
    for a in range(K):
        for b in range(K):
            probability = float(figure.transition[a, b])
            if probability >= figure.least:
                _arrow(canvas, spots, angles, a, b, probability, node)
    for k, (x, y) in enumerate(spots):
        canvas.circle(x, y, node, "page")
        canvas.path(
            f"M{at(x - node)} {at(y)}a{node} {node} 0 1 0 {2 * node} 0a{node} {node} 0 1 0 -{2 * node} 0", "line0", 1.6
        )
        canvas.text(x, y + 5, shorten(figure.states[k], 2 * node - 6), anchor="middle", weight="600")
        if k < len(figure.notes):
            upright = abs(math.cos(angles[k])) < 0.3
            out = node + (46 + deep / 2 if upright else 62)  # beyond the arrow to itself
            tx, ty = cx + (radius + out) * math.cos(angles[k]), cy + (radius + out) * math.sin(angles[k])
            anchor = "middle" if upright else "start" if math.cos(angles[k]) > 0 else "end"
            lines = figure.notes[k]
            for row, line in enumerate(lines):
                y0 = ty + (row - (len(lines) - 1) / 2) * 13 + 4
                canvas.text(tx, y0, shorten(line, side - 24, SMALL), "faint", size=SMALL, anchor=anchor)
    return canvas


def _arrow(
    canvas: Canvas,
    spots: list[tuple[float, float]],
    angles: list[float],
    a: int,
    b: int,
    probability: float,
    node: float,
) -> None:
    thick = 0.6 + 5 * probability
    (x1, y1), (x2, y2) = spots[a], spots[b]
    css = "line0"
    opacity = f' opacity="{0.25 + 0.75 * probability:.2f}"'
    if a == b:
        out = angles[a]
        left, right = out - 0.45, out + 0.45
        sx, sy = x1 + node * math.cos(left), y1 + node * math.sin(left)
        ex, ey = x1 + node * math.cos(right), y1 + node * math.sin(right)
        d = f"M{at(sx)} {at(sy)}C{at(x1 + 62 * math.cos(left))} {at(y1 + 62 * math.sin(left))} "
        d += f"{at(x1 + 62 * math.cos(right))} {at(y1 + 62 * math.sin(right))} {at(ex)} {at(ey)}"
        canvas.path(d, css, thick, extra=opacity)
        canvas.text(
            x1 + 54 * math.cos(out),
            y1 + 54 * math.sin(out) + 4,
            number(round(probability, 2)),
            "ink",
            size=10,
            anchor="middle",
        )
        return
    dx, dy = x2 - x1, y2 - y1
    length = math.hypot(dx, dy)
    bend = 0.14
    mx, my = (x1 + x2) / 2 - dy * bend, (y1 + y2) / 2 + dx * bend
    sx, sy = _toward(x1, y1, mx, my, node)
    ex, ey = _toward(x2, y2, mx, my, node + 4)
    canvas.path(f"M{at(sx)} {at(sy)}Q{at(mx)} {at(my)} {at(ex)} {at(ey)}", css, thick, extra=opacity)
    angle = math.atan2(y2 - my, x2 - mx)
    size = 5 + thick
    points = []
    for turn in (0.0, 2.6, -2.6):
        tip = 4 if turn == 0 else size
        points.append(f"{at(ex + tip * math.cos(angle + turn))} {at(ey + tip * math.sin(angle + turn))}")
    canvas.path("M" + "L".join(points) + "z", "dot0", extra=opacity)
    if probability >= 0.15 and length:
        # Nearer to its beginning than to its end, since arrows cross in the middle.
        tx, ty = 0.4225 * sx + 0.455 * mx + 0.1225 * ex, 0.4225 * sy + 0.455 * my + 0.1225 * ey
        label = number(round(probability, 2))
        canvas.rect(tx - 3 * len(label) - 2, ty - 7, 6 * len(label) + 4, 13, "page", radius=3)  # readable on any arrow
        canvas.text(tx, ty + 3, label, "ink", size=10, anchor="middle")


def _toward(x: float, y: float, tx: float, ty: float, by: float) -> tuple[float, float]:
    length = math.hypot(tx - x, ty - y) or 1.0
    return x + (tx - x) / length * by, y + (ty - y) / length * by
