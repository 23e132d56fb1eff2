"""The kinds of figures, as plain data. `to_svg`, `to_html` and the terminal draw them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

SEQUENTIAL, DIVERGING = "sequential", "diverging"  # from 0 or the least value up; around 0


@dataclass(frozen=True, eq=False)
class ColouredText:
    """A text whose tokens are coloured by a value."""

    title: str  # one line above the figure
    tokens: tuple[str, ...]  # the tokens in order
    values: Array  # one for each token; NaN for a token without a value
    label: str = ""  # what the values are, for the legend
    scale: str = SEQUENTIAL  # "sequential" or "diverging"
    notes: tuple[str, ...] = ()  # for each token what is shown when the pointer is on it; without them its value
    # (P, T) or empty: the values of all tokens for each of P predictions
    influence: Array = field(default_factory=lambda: np.zeros((0, 0)))
    about: tuple[str, ...] = ()  # what each prediction is about
    # for each token the prediction that is shown where one points at it, or -1; empty: none is about a token
    rows: tuple[int, ...] = ()
    # the values of the ends of the scale, where they are not those of the data
    limits: tuple[float, float] | None = None

    def note(self, place: int) -> str:
        """What is shown when the pointer is on a token."""
        return self.notes[place] if self.notes else f"{visible(self.tokens[place])}: {number(self.values[place])}"


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A matrix in colours: gates over time, gradients, attention, a confusion matrix."""

    title: str  # one line above the figure
    values: Array  # (R, C); NaN for a cell without a value
    rows: tuple[str, ...] = ()  # R labels, or none
    columns: tuple[str, ...] = ()  # C labels, or none
    label: str = ""  # what the values are, for the legend
    row_title: str = ""  # what the rows are
    column_title: str = ""  # what the columns are
    scale: str = SEQUENTIAL  # "sequential" or "diverging"
    annotate: bool = False  # write each value into its cell
    # the values of the ends of the scale, where they are not those of the data
    limits: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """One line of `Curves`: its name, its points, the number of the point that is marked, if any, and what that is."""

    name: str
    x: Array
    y: Array
    best: int | None = None
    faint: Array | None = None  # y before smoothing
    hue: int | None = None  # the number of its colour; None: its place among the curves
    dashed: bool = False
    mark: str = "best"
    dots: bool = False  # points without a line


@dataclass(frozen=True, eq=False)
class Band:
    """An area of `Curves`, such as an interval: its name, x, the ends of y, and the number of its colour."""

    name: str
    x: Array
    low: Array
    high: Array
    hue: int = 0


@dataclass(frozen=True, eq=False)
class Curves:
    """Lines over a common x axis."""

    title: str  # one line above the figure
    curves: tuple[Curve, ...]  # the lines
    x_label: str = ""  # what x is
    y_label: str = ""  # what y is
    log: bool = False  # a logarithmic y axis; values that are not positive are left out
    ticks: tuple[str, ...] = ()  # labels of x = 0, 1, ..., where x counts tokens or steps of time
    # the times of x = 0, 1, ... in ISO 8601, where x counts steps of time: the axis has round dates, and a line ends
    # where a step is missing
    dates: tuple[str, ...] = ()
    bands: tuple[Band, ...] = ()  # areas behind the lines, the widest first


@dataclass(frozen=True)
class TreeNode:
    """A node of a tree: its parent's number or -1, its depth from 1, its text, and how it is drawn."""

    parent: int
    depth: int
    text: str
    value: float
    kind: str  # kept, ended, cut, outranked, pruned
    note: str
    best: bool


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree that grows to the right: the hypotheses of a beam search."""

    title: str
    nodes: tuple[TreeNode, ...]
    root: str = ""
    key: tuple[str, str, str, str] = (  # what its lines are, and a note
        "best",
        "kept",
        "dropped",
        "◦ ended or cut; the number is log P; point at a token for the reason",
    )


@dataclass(frozen=True, eq=False)
class StateDiagram:
    """States in a circle with arrows as wide as their transition probabilities."""

    title: str  # one line above the figure
    states: tuple[str, ...]  # the names
    notes: tuple[tuple[str, ...], ...]  # for each state some lines beside it: its most probable tokens
    transition: Array  # (K, K), from, to
    least: float = 0.05  # arrows of lower probability are left out


@dataclass(frozen=True, eq=False)
class Alignment:
    """Two rows of tokens, and lines between them, as thick as their weights: the attention of a translation."""

    title: str  # one line above the figure
    values: Array  # (R, C), from 0 to 1
    rows: tuple[str, ...]  # R tokens, below
    columns: tuple[str, ...]  # C tokens, above


@dataclass(frozen=True, eq=False)
class Bars:
    """Shares from 0 to 1 as bars: the probabilities of labels. `best` is the number of the one in colour, if any."""

    title: str
    names: tuple[str, ...]
    values: Array
    best: int | None = None


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval: what it says, a note with its numbers, and whether 0 lies outside."""

    name: str
    value: float
    low: float
    high: float
    note: str = ""
    marked: bool = False


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals around 0, each on an axis of its own: the differences of a paired test."""

    title: str
    intervals: tuple[Interval, ...]


Figure = ColouredText | HeatMap | Curves | Tree | StateDiagram | Alignment | Bars | Intervals


def value_range(values: Array, scale: str, limits: tuple[float, float] | None = None) -> tuple[float, float]:
    """The values at the ends of a colour scale; a diverging one is symmetric around 0."""
    if limits is not None:
        return limits
    finite = values[np.isfinite(values)]
    if not finite.size:
        return (-1.0, 1.0) if scale == DIVERGING else (0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    if scale == DIVERGING:
        most = max(abs(low), abs(high)) or 1.0
        return -most, most
    low = min(0.0, low) if low > 0 and low < 0.5 * high else low
    return (low, high) if high > low else (low, low + 1.0)


def visible(token: str) -> str:
    """A token with its white space made visible."""
    if token == " ":
        return "␣"
    return token.replace("\n", "↵").replace("\t", "⇥").strip(" ") or "␣"


def number(value: float) -> str:
    """A number for a label: short, without a needless exponent."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10000 or abs(value) < 0.001:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
