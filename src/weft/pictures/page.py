"""Figures as SVG, and as one HTML page that needs no network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from weft.pictures.draw_bars import draw_bars, draw_intervals
from weft.pictures.draw_cells import FIGURE_WIDTH, draw_heat_map, draw_text
from weft.pictures.draw_curves import draw_curves
from weft.pictures.draw_graphs import draw_alignment, draw_states, draw_tree
from weft.pictures.figures import (
    Alignment,
    Bars,
    ColouredText,
    Curves,
    Figure,
    HeatMap,
    Intervals,
    StateDiagram,
    Tree,
    value_range,
    visible,
)
from weft.pictures.palette import DARK_PAGE, LIGHT_PAGE, PREFIX, level, level_class, style_sheet
from weft.pictures.svg import FONT, Canvas, at, number

TITLE_HEIGHT = 30  # of a title above a figure


DRAWING: Mapping[type[Any], Callable[[Any, float], Canvas]] = {
    ColouredText: draw_text,
    HeatMap: draw_heat_map,
    Curves: draw_curves,
    Tree: draw_tree,
    StateDiagram: draw_states,
    Alignment: draw_alignment,
    Bars: draw_bars,
    Intervals: draw_intervals,
}


def draw(figure: Figure, width: float = FIGURE_WIDTH) -> Canvas:
    """The figure as shapes; those that can fit the width, in pixels."""
    return DRAWING[type(figure)](figure, width)


def to_svg(*figures: Figure, title: str = "") -> str:
    """Figures below each other as a file of its own, which follows the reader's light or dark setting.

    Args:
        figures: What to draw, one or more.
        title: The title of several, for screen readers: each figure has a title of its own.
    """
    panels = [draw(figure) for figure in figures]
    if len(panels) == 1:
        return panels[0].render()
    whole = Canvas(max(panel.width for panel in panels), sum(panel.height for panel in panels), "")
    whole.title = title
    y = 0.0
    for panel in panels:
        whole.parts.append(f'<g transform="translate(0 {at(y)})"><title>{escape(panel.title)}</title>')
        whole.parts += [*panel.parts, "</g>"]
        y += panel.height
    return whole.render()


def to_html(title: str, figures: Sequence[Figure]) -> str:
    """One page with all figures, its style and its script; it loads nothing from anywhere."""
    sections = []
    for figure in figures:
        body = _text(figure) if isinstance(figure, ColouredText) else _scroll(draw(figure))
        sections.append(f"<section>{body}</section>")
    script = f"<script>{_SCRIPT}</script>" if any("data-influence" in part for part in sections) else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<style>{_STYLE}{style_sheet()}</style></head><body><main><h1>{escape(title)}</h1>{''.join(sections)}</main>"
        f"{script}</body></html>\n"
    )


def to_embedded(figure: Figure, width: float) -> tuple[str, tuple[float, ...]]:
    """The figure for a page that has its style sheet and shows its title, and where its values stand in it."""
    canvas = draw(replace(figure, title=""), width)
    return canvas.render(standalone=False, crop=TITLE_HEIGHT), canvas.frame


def to_fragment(figure: Figure) -> str:
    """The figure as an element of a page that need not have its style sheet, such as a notebook."""
    svg = draw(figure).render().replace("<style>", "<style>.weft-figure{", 1).replace("</style>", "}</style>", 1)
    return f'<div class="weft-figure" style="overflow-x:auto">{svg}</div>'


def _scroll(canvas: Canvas) -> str:
    """The figure in a box that scrolls, by the arrow keys too, where the page is narrower."""
    svg = canvas.render(standalone=False)
    return f'<div class="figure" tabindex="0" role="group" aria-label="{escape(canvas.title)}">{svg}</div>'


def _text(figure: ColouredText) -> str:
    """Coloured text as HTML, which wraps with the page; values of a token's influence appear on hover."""
    low, high = value_range(figure.values, figure.scale, figure.limits)
    spans = []
    for place, token in enumerate(figure.tokens):
        value = float(figure.values[place])
        name = level_class(value, low, high, figure.scale)
        end = "<br>" if "\n" in token else ""
        spans.append(
            f'<span class="token {name}" title="{escape(figure.note(place))}">{escape(visible(token))}</span>{end}'
        )
    single = max((len(token) for token in figure.tokens), default=0) <= 1
    kind = "text characters" if single else "text"
    data = ""
    if figure.rows:
        own_low, own_high = value_range(figure.influence, figure.scale)
        levels = [
            [level(one, own_low, own_high, figure.scale) if np.isfinite(one) else -1 for one in row]
            for row in (figure.influence[at] if at >= 0 else np.full(len(spans), np.nan) for at in figure.rows)
        ]
        rows = escape(json.dumps(levels, separators=(",", ":")))
        data = f' data-influence="{rows}" data-prefix="{PREFIX[figure.scale]}"'
    steps = "".join(f'<i class="{PREFIX[figure.scale]}{one}"></i>' for one in range(0, 31, 2))
    legend = f'<p class="legend">{escape(figure.label)} {number(low)} <span>{steps}</span> {number(high)}</p>'
    return f'<h2>{escape(figure.title)}</h2>{legend}<p class="{kind}"{data}>{"".join(spans)}</p>'


_STYLE = (
    f":root{{--page:{LIGHT_PAGE[0]};--text:{LIGHT_PAGE[1]};--faint:{LIGHT_PAGE[2]};--grid:{LIGHT_PAGE[3]}}}"
    f"@media (prefers-color-scheme:dark){{:root{{--page:{DARK_PAGE[0]};--text:{DARK_PAGE[1]};"
    f"--faint:{DARK_PAGE[2]};--grid:{DARK_PAGE[3]}}}}}"
    f"body{{margin:0 auto;max-width:900px;padding:24px 16px 64px;background:var(--page);color:var(--text);"
    f"font:15px/1.5 {FONT}}}h1{{font-size:20px;margin:0 0 20px}}h2{{font-size:15px;margin:0 0 6px}}"
    "section{margin:0 0 36px}svg text{pointer-events:none}"
    ".figure{overflow-x:auto;margin-left:-16px}.figure svg{max-width:none}"
    ".text{line-height:2.1;margin:0}"
    ".token{padding:3px 4px;margin:0 2px;border-radius:3px;white-space:pre;cursor:default}"
    ".characters .token{padding:3px 1px;margin:0;border-radius:0;font-family:ui-monospace,Menlo,Consolas,monospace}"
    ".token.none{color:var(--faint)}.token:hover{outline:2px solid var(--text)}"
    ".legend{color:var(--faint);font-size:12px;margin:0 0 10px}.legend span{display:inline-flex;vertical-align:-1px}"
    ".legend i{width:9px;height:11px;display:block}"
)

# On hover, a token's row of the influence matrix colours all tokens.
_SCRIPT = (
    "document.querySelectorAll('[data-influence]').forEach(function(box){"
    "var rows=JSON.parse(box.dataset.influence),prefix=box.dataset.prefix,"
    "tokens=[].slice.call(box.querySelectorAll('.token')),own=tokens.map(function(t){return t.className});"
    "tokens.forEach(function(token,i){token.addEventListener('mouseenter',function(){"
    "if(!rows[i]||!rows[i].some(function(v){return v>=0}))return;"
    "tokens.forEach(function(t,j){t.className='token '+(rows[i][j]<0?'none':prefix+rows[i][j])})});"
    "token.addEventListener('mouseleave',function(){tokens.forEach(function(t,j){t.className=own[j]})})})});"
)
