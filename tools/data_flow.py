"""Draws docs/data-flow.svg, the diagram of docs/architecture.md: `python -m tools.data_flow`.

Boxes stand on a grid; each names a package of src/weft. A test checks that the file is current and that every package
it names exists.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

COLUMN, ROW = 216, 132  # distance between the left, and upper, edges of neighbouring boxes
WIDTH, HEIGHT = 168, 84  # of a box
LEFT, TOP = 16, 50


class Box(NamedTuple):
    column: int
    row: int
    group: str
    title: str
    package: str
    note: str

    @property
    def x(self) -> int:
        return LEFT + self.column * COLUMN

    @property
    def y(self) -> int:
        return TOP + self.row * ROW


BOXES = {
    "text": Box(0, 0, "data", "Text", "text/", "read, split, encode"),
    "data": Box(1, 0, "data", "Batches", "data/", "windows, buckets"),
    "model": Box(2, 0, "model", "Model", "tasks/*/model.py", "one per task"),
    "training": Box(3, 0, "train", "Trainer", "training/", "a generator of steps"),
    "run": Box(4, 0, "train", "Run directory", "training/run.py", "weights, checkpoint"),
    "chains": Box(1, 1, "model", "Chains", "chains/", "forward, Viterbi"),
    "nn": Box(2, 1, "model", "Layers", "nn/", "RNNs, attention, CRF"),
    "decoding": Box(3, 1, "use", "Decoding, scores", "decoding/ metrics/", "beam search, BLEU, F1"),
    "predictor": Box(4, 1, "use", "Predictor", "tasks/*/predictor.py", "a loaded model"),
    "cells": Box(0, 2, "model", "Cells", "cells/", "equations of one step"),
    "compiler": Box(1, 2, "model", "Compiler", "compiler/", "step to program"),
    "engine": Box(2, 2, "model", "Engine", "engine/", "C++ loop over time"),
    "probes": Box(3, 2, "use", "Probes, pictures", "probes/ pictures/", "gates, gradients"),
    "cli": Box(4, 2, "use", "Command line", "cli/", "made from the tasks"),
}
ARROWS = [  # from, to, label
    ("text", "data", "ids"),
    ("data", "model", "(B, T)"),
    ("model", "training", "Loss"),
    ("training", "run", "save"),
    ("run", "predictor", "load"),
    ("predictor", "cli", "results"),
    ("decoding", "predictor", ""),
    ("predictor", "probes", ""),
    ("chains", "nn", ""),
    ("nn", "model", ""),
    ("engine", "nn", ""),
    ("cells", "compiler", "trace"),
    ("compiler", "engine", "lower"),
]
GROUPS = {"data": "Data", "model": "Model", "train": "Training", "use": "Use"}

STYLE = """
    .page { fill: #ffffff; } .title, .label { fill: #1f2328; } .note { fill: #57606a; }
    .arrow { stroke: #57606a; } .head { fill: #57606a; }
    .data { fill: #ddf0ff; stroke: #0969da; } .model { fill: #fff3d6; stroke: #9a6700; }
    .train { fill: #dcf7e3; stroke: #1a7f37; } .use { fill: #f3e8ff; stroke: #8250df; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; } .title, .label { fill: #e6edf3; } .note { fill: #9ea7b3; }
      .arrow { stroke: #9ea7b3; } .head { fill: #9ea7b3; }
      .data { fill: #10243e; stroke: #58a6ff; } .model { fill: #33270d; stroke: #d29922; }
      .train { fill: #10301a; stroke: #3fb950; } .use { fill: #2a1b45; stroke: #bc8cff; }
    }
    text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 12px; }
    .title { font-size: 15px; font-weight: 600; }
    .package { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
"""


def text(x: float, y: float, content: str, kind: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(content)}</text>'


def draw_box(box: Box) -> list[str]:
    middle = box.x + WIDTH / 2
    return [
        f'<rect x="{box.x}" y="{box.y}" width="{WIDTH}" height="{HEIGHT}" rx="8" class="{box.group}"/>',
        text(middle, box.y + 25, box.title, "title"),
        text(middle, box.y + 47, box.package, "label package"),
        text(middle, box.y + 69, box.note, "note"),
    ]


def draw_arrow(start: Box, end: Box, label: str) -> list[str]:
    """An arrow between neighbours: straight along a row or a column, else diagonal between two corners."""
    right, down = end.column - start.column, end.row - start.row
    x1, y1 = start.x + WIDTH / 2 * (1 + right), start.y + HEIGHT / 2 * (1 + down)
    x2, y2 = end.x + WIDTH / 2 * (1 - right), end.y + HEIGHT / 2 * (1 - down)
    drawn = [f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="arrow" stroke-width="1.5" marker-end="url(#head)"/>']
    if label and down:
        drawn.append(text(x1 + 8, (y1 + y2) / 2 + 4, label, "note", anchor="start"))
    elif label:
        drawn.append(text((x1 + x2) / 2 - 2, y1 - 8, label, "note"))
    return drawn


def draw_legend() -> list[str]:
    x, y = LEFT, TOP + ROW + 4
    drawn = []
    for number, (group, name) in enumerate(GROUPS.items()):
        top = y + number * 21
        drawn.append(f'<rect x="{x}" y="{top}" width="14" height="14" rx="3" class="{group}"/>')
        drawn.append(text(x + 22, top + 11, name, "note", anchor="start"))
    return drawn


def draw() -> str:
    """The diagram as SVG, readable on a light and on a dark page."""
    width, height = 2 * LEFT + 4 * COLUMN + WIDTH, TOP + 2 * ROW + HEIGHT + 18
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="name">',
        '<title id="name">How data flows through weft, from text to a model in use</title>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" class="head"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="10" class="page"/>',
        text(LEFT, 28, "From text to a model in use", "title", anchor="start"),
    ]
    for start, end, label in ARROWS:
        parts += draw_arrow(BOXES[start], BOXES[end], label)
    for box in BOXES.values():
        parts += draw_box(box)
    return "\n".join([*parts, *draw_legend(), "</svg>"]) + "\n"


if __name__ == "__main__":
    (Path(__file__).parents[1] / "docs" / "data-flow.svg").write_text(draw(), encoding="utf-8")
