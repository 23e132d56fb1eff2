"""Figures as SVG, HTML and terminal output: well-formed, self-contained, readable, and in safe colours."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import sys
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from rich.console import Console

from weft import probes
from weft.cells import Cell, HiddenState
from weft.errors import WeftError
from weft.nn import make_stack
from weft.pictures import (
    Alignment,
    Bars,
    ColouredText,
    Curve,
    Curves,
    HeatMap,
    Interval,
    Intervals,
    StateDiagram,
    Tree,
    TreeNode,
    plain_lines,
    print_figure,
    to_html,
    to_svg,
)
from weft.pictures.draw_curves import BOTTOM, PLOT_HEIGHT, TOP
from weft.pictures.figures import value_range, visible
from weft.pictures.palette import colours, level, luminance
from weft.pictures.save import check_suffix, content
from weft.pictures.svg import number, percent, shorten, text_width
from weft.tasks.curves import curve_figures, smoothed
from weft.tasks.inspection import Network, StackUse
from weft.tasks.runs import MetricCurve

TOKENS = ("国王", "sees", "<unk>", 'a "dog" & cat', "\n", " ")
FIGURES = [
    ColouredText("Text <1>", TOKENS, np.array([0, 1, np.nan, 2, -1, 3.0]), "nats", "diverging", influence=np.eye(6)),
    HeatMap("Map", np.arange(12.0).reshape(3, 4), ("a", "b", "c"), TOKENS[:4], "value", "rows", "columns"),
    HeatMap("Numbers", np.array([[0.5, np.nan]]), annotate=True),
    HeatMap("Long", np.random.default_rng(0).random((40, 3000)), columns=("x",) * 3000),
    Curves(
        "Curves",
        (
            Curve("one", np.arange(5.0), np.array([5, 4, np.inf, 2, 3.0]), best=3),
            Curve("two", np.arange(2000.0), np.linspace(1, 2, 2000), faint=np.linspace(1, 2, 2000)),
        ),
        "step",
        "loss",
    ),
    Curves("Logarithmic", (Curve("one", np.arange(4.0), 10.0 ** -np.arange(4)),), log=True, ticks=tuple("abcd")),
    Curves("None", (Curve("one", np.zeros(0), np.zeros(0)),)),
    Tree(
        "Tree", (TreeNode(-1, 1, "un", -0.5, "kept", "why", True), TreeNode(0, 2, "<eos>", -1.0, "ended", "why", True))
    ),
    Alignment("Alignment", np.array([[0.9, 0.1], [0.01, 0.99]]), ("le", "<chat>"), ("the", "cat")),
    Bars("Bars", ("a", "<b> & c", ""), np.array([0.9, 0.1, 0.0]), 0),
    Bars("Small bars", ("a",), np.array([0.0002])),
    Intervals("Intervals", (Interval("a", -0.1, -0.2, -0.05, "p < 0.01", True), Interval("b", 0.0, 0.0, 0.0))),
    StateDiagram("States", ("0", "1"), (("a 0.5",), ("b 0.5",)), np.array([[0.9, 0.1], [0.3, 0.7]])),
]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.title)
def test_svg_is_well_formed(figure):
    svg = to_svg(figure)
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    assert root.find("{http://www.w3.org/2000/svg}title").text == figure.title
    assert "nan" not in re.sub(r"<[^>]*>|\{[^}]*\}", "", svg).lower().split()
    assert not re.search(r'="[^"]*\b(nan|inf)\b', svg)
    assert len(svg) < 1_500_000


def test_a_page_loads_nothing():
    page = to_html("All <of> it", FIGURES)
    assert page.startswith("<!doctype html>")
    assert "All &lt;of&gt; it" in page
    links = re.findall(r"(?:src|href|url\(|@import)[^>]{0,40}", page)
    assert links == []
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme:dark" in page


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.title)
@pytest.mark.parametrize("terminal", [True, False])
def test_terminal(figure, terminal):
    stream = io.StringIO()
    print_figure(Console(file=stream, force_terminal=terminal, width=80, color_system="truecolor"), figure)
    shown = stream.getvalue()
    assert figure.title in shown
    assert ("\x1b[" in shown) == terminal
    if not terminal:
        assert shown == "".join(f"{line}\n" for line in plain_lines(figure))


def lightness(colour: str) -> float:
    """The L of OKLab, from #rrggbb."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    long = (
        math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
        if hasattr(math, "cbrt")
        else (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    )
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return 0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short


@pytest.mark.parametrize("dark", [False, True])
def test_scales_are_perceptually_uniform(dark):
    steps = np.diff([lightness(colour) for colour, _ in colours("sequential", dark)])
    assert (np.sign(steps) == (1 if dark else -1)).all()  # read without seeing hues
    assert steps.std() < 0.35 * abs(steps.mean())
    arms = [lightness(colour) for colour, _ in colours("diverging", dark)]
    np.testing.assert_allclose(arms, arms[::-1], atol=0.03)
    assert (arms[15] == max(arms)) != dark


@pytest.mark.parametrize("dark", [False, True])
def test_text_on_every_colour_is_readable(dark):
    for scale in ("sequential", "diverging"):
        for colour, light in colours(scale, dark):
            one, other = sorted([luminance(colour), luminance("#ffffff" if light else "#000000")])
            assert (other + 0.05) / (one + 0.05) >= 4.5, colour


def test_numbers_and_labels():
    assert [number(value) for value in (0, 0.5, 1234, 1e-7, 123456, math.nan)] == [
        "0",
        "0.5",
        "1234",
        "1e-7",
        "1e5",
        "–",
    ]
    assert [percent(value) for value in (1, 0.5, 0.0672, 0.00012, 2e-7, 0)] == [
        "100%",
        "50.0%",
        "6.7%",
        "0.012%",
        "2e-5%",
        "0%",
    ]
    assert visible(" ") == "␣"
    assert visible("a\n") == "a↵"
    assert text_width("国王", 10) == 20
    assert shorten("a very long label", 30).endswith("…")
    assert text_width(shorten("a very long label", 30)) <= 30
    assert level(-1, -1, 1, "diverging") == 0
    assert level(0, -1, 1, "diverging") == 15
    assert value_range(np.array([-1, 3.0]), "diverging") == (-3, 3)
    assert value_range(np.array([np.nan]), "sequential") == (0, 1)


def test_smoothing_has_no_bias():
    np.testing.assert_allclose(smoothed(np.full(5, 2.0), 0.9), 2.0)
    assert smoothed(np.array([1.0, 2.0]), 0.5)[1] == pytest.approx((0.5 * 1 + 1 * 2) / 1.5)


def test_files_by_their_names(tmp_path, monkeypatch):
    assert content(tmp_path / "a.html", "A", FIGURES[:2], {}).startswith(b"<!doctype html>")
    assert content(tmp_path / "a.json", "A", FIGURES[:2], {"x": 1}) == b'{"x": 1}\n'
    with pytest.raises(WeftError, match=r"expected a name that ends with .html, .svg, .png, .json"):
        check_suffix(tmp_path / "a.gif")
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(WeftError, match=r"a .png needs cairosvg, which is not installed"):
        check_suffix(tmp_path / "a.png")


class MinimalGates(NamedTuple):
    f: torch.Tensor
    u: torch.Tensor
    labels = {"f": "forget gate"}  # noqa: RUF012


class MinimalGatedUnit(Cell):
    blocks = 2

    def step(self, x_proj, state):
        (x_f, x_u), (h_f, h_u) = x_proj.chunk(2, -1), self.recur(state.h).chunk(2, -1)
        f = torch.sigmoid(x_f + h_f)
        u = torch.tanh(x_u + f * h_u)
        return HiddenState(state.h + f * (u - state.h)), MinimalGates(f, u)


def test_gates_are_named_by_their_labels():
    """Those of custom cells too; data keeps the names of the fields, and a gate without a label has its name alone."""
    stack = make_stack(MinimalGatedUnit, 3, 4)
    tokens = tuple("abc")
    stacks = {"s": StackUse(stack, tokens)}
    logits = lambda x: stack(x)[0][:, :-1]  # noqa: E731
    network = Network(tokens, torch.randn(1, 3, 3), logits, tokens[1:], (0, 1), tokens, stacks)
    found = probes.activations(network)
    labels = {"h": "hidden state", "f": "forget gate"}
    (layer,) = found.to_dict()["layers"]
    assert list(layer["gates"]) == ["f", "u"]
    assert layer["labels"] == labels
    where = "s layer 0 forward (MinimalGatedUnit)"
    titles = [figure.title for figure in found.gate_figures()]
    assert titles == [f"Forget gate f of {where}", f"u of {where}"]
    (text,) = found.gate_figures(gate="f", unit=2)
    assert text.title == f"Forget gate f of unit 2, {where}"
    with pytest.raises(WeftError, match="there is no gate 'x'; expected one of: f, u"):
        found.gate_figures(gate="x")
    flow = probes.gradient_flow(network)
    assert flow.layers[0].labels == labels
    curves, heat_map, _ = flow.figures()
    assert [curve.name for curve in curves.curves] == ["hidden state h"]
    assert heat_map.title == "Gradient norms of hidden state h, s layer 0 forward"


def test_a_run_has_one_colour_in_all_figures():
    """Also where another run lacks a metric; training is dashed, and no line leaves the axes."""
    steps = np.arange(1.0, 9.0)
    noisy = np.where(steps % 2, 0.1, 3.0)
    runs = [
        {
            name: MetricCurve(f"runs/{run}", name, steps, noisy, None)
            for name in ("train_cross_entropy", "cross_entropy", *extra)
        }
        for run, extra in (("a", ()), ("b", ("accuracy",)))
    ]
    loss, accuracy = curve_figures(runs)
    assert [(curve.name, curve.hue, curve.dashed) for curve in loss.curves] == [
        ("a training", 0, True),
        ("a held-out", 0, False),
        ("b training", 1, True),
        ("b held-out", 1, False),
    ]
    assert [(curve.name, curve.hue) for curve in accuracy.curves] == [("b", 1)]
    paths = re.findall(r'd="M([^"]*)" class="line\d"', to_svg(loss))
    heights = [float(point.split()[1]) for path in paths for point in path.split("L")]
    assert len(paths) == 6  # two of them as they were before smoothing
    assert min(heights) >= TOP
    assert max(heights) <= PLOT_HEIGHT - BOTTOM


def test_the_name_of_a_short_curve_is_joined_to_its_end():
    short, long = (
        Curve(name, np.arange(size), np.arange(size), best=1) for name, size in (("short", 3.0), ("long", 99))
    )
    svg = to_svg(Curves("Curves", (short, long)))
    assert svg.count('stroke-dasharray="1 3"') == 1
    assert "short, best 1" in svg
    assert "short, kept 1" in to_svg(Curves("Curves", (dataclasses.replace(short, mark="kept"),)))


def test_several_figures_are_one_file(tmp_path):
    """Below each other, none over another, each with its title."""
    root = ElementTree.fromstring(content(tmp_path / "a.svg", "All", FIGURES, {}))
    panels = root.findall("{*}g")
    assert root.find("{*}title").text == "All"
    assert not root.findall("{*}text"), "what is drawn belongs to a figure"
    assert [panel.find("{*}title").text for panel in panels] == [figure.title for figure in FIGURES]
    single = [ElementTree.fromstring(to_svg(figure)) for figure in FIGURES]
    tops = [float(re.search(r"translate\(0 ([\d.]+)\)", panel.get("transform"))[1]) for panel in panels]
    bottoms = [top + float(one.get("height")) for top, one in zip(tops, single, strict=True)]
    assert [0, *bottoms] == pytest.approx([*tops, float(root.get("height"))], abs=1)
    assert float(root.get("width")) == max(float(one.get("width")) for one in single)


def test_png(tmp_path):
    try:
        import cairosvg  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(f"cairosvg or the library cairo is not installed: {error}")
    chinese = ColouredText("国王", ("国王", "看见"), np.array([0.5, 1.0]))
    for figure in (FIGURES[0], chinese):
        image = content(tmp_path / "a.png", "A", [figure], {})
        assert image[:8] == b"\x89PNG\r\n\x1a\n"
        size = [int.from_bytes(image[at : at + 4], "big") for at in (16, 20)]
        svg = ElementTree.fromstring(to_svg(figure))
        assert size == pytest.approx([2 * float(svg.get(name)) for name in ("width", "height")], abs=2)
