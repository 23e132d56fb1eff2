"""Results as HTML, for notebooks: shaded tables, marked text, bars.

Colours are transparent layers over the page, and text has the page's colour, so a result is legible in light and dark
themes. Everything is in `style` attributes: a notebook may drop style sheets. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

STRONGEST = 0.6  # opacity; text on it has a contrast of 4.5 or more on a light and on a dark page
TOKENS_SHOWN, MOST_BARS, MOST_LABELS, MOST_RESULTS = 400, 8, 40, 50

_BOX = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;margin:4px 0;overflow-x:auto"
_FAINT = "opacity:.7"
_CELL = "padding:3px 8px;border:0;text-align:center;white-space:nowrap;background:none"


def below_each_other(results: Sequence[object]) -> str:
    """Results below each other: the HTML of each that has one, otherwise its repr."""
    shown = [
        str(item._repr_html_()) if hasattr(item, "_repr_html_") else f"<code>{escape(repr(item))}</code>"
        for item in results[:MOST_RESULTS]
    ]
    left = len(results) - len(shown)
    note = f'<div style="{_FAINT}">and {left:,} more</div>' if left else ""
    return box("".join(f'<div style="margin:0 0 12px">{one}</div>' for one in shown) + note)


def box(content: str) -> str:
    """The outermost element of a result."""
    return f'<div style="{_BOX}">{content}</div>'


def layer(share: float, hue: int = 0, strongest: float = STRONGEST) -> str:
    """The background of a value between 0 and 1."""
    from weft.pictures.palette import LIGHT_HUES  # all that draws is loaded with it

    colour = LIGHT_HUES[hue % len(LIGHT_HUES)]  # keeps its contrast as a transparent layer on white and on black
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"background:rgba({red},{green},{blue},{strongest * min(1.0, max(0.0, share)):.2f})"


def heading(title: str, facts: Mapping[str, str] | None = None) -> str:
    """A title and a few facts, in one line."""
    shown = "".join(
        f'<span style="margin-left:16px"><span style="{_FAINT}">{escape(name)}</span> {escape(value)}</span>'
        for name, value in (facts or {}).items()
    )
    return f"<div><b>{escape(title)}</b>{shown}</div>"


def score_line(metrics: Mapping[str, float]) -> str:
    """The name and value of each metric, in one line."""
    return heading("Scores", {name.replace("_", " "): f"{value:.3f}" for name, value in metrics.items()})


def table(
    rows: Iterable[tuple[str, Iterable[tuple[str, float, str]]]], columns: Sequence[str], corner: str = ""
) -> str:
    """A table of shaded cells.

    Args:
        rows: For each row its label, and its cells: text, shade from 0 to 1, and a note shown on hover.
        columns: The labels of the columns.
        corner: What stands above the row labels.
    """
    head = "".join(f'<th style="{_CELL};font-weight:600">{escape(name)}</th>' for name in columns)
    lines = [
        f'<tr style="background:none"><th style="{_CELL};{_FAINT};text-align:right">{escape(corner)}</th>{head}</tr>'
    ]
    for name, cells in rows:
        shown = "".join(
            f'<td style="{_CELL};{layer(share) if share > 0 else ""}" title="{escape(note)}">{escape(text)}</td>'
            for text, share, note in cells
        )
        label = f'<th style="{_CELL};text-align:right;font-weight:600">{escape(name)}</th>'
        lines.append(f'<tr style="background:none">{label}{shown}</tr>')
    return (
        f'<table style="border-collapse:separate;border-spacing:2px;margin:6px 0;width:auto">{"".join(lines)}</table>'
    )


def score_table(scores: Iterable[tuple[str, float, float, float, int]], counted: str) -> str:
    """A table of label, precision, recall, F1 and how many there are of what is counted."""
    rows = [
        (label, [*((f"{value:.3f}", 0.0, "") for value in values), (f"{count:,}", 0.0, "")])
        for label, *values, count in scores
    ]
    return table(rows, ("precision", "recall", "F1", counted), "label")


def confusion_matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """A confusion matrix: a row for each true label, shaded by its share of the row."""
    rows = []
    for label, row in zip(labels, counts, strict=True):
        total = max(1, sum(row))
        cells = [
            (f"{count:,}", count / total, f"true {label}, predicted {other}: {count:,} of {sum(row):,}")
            for other, count in zip(labels, row, strict=True)
        ]
        rows.append((label, cells))
    return table(rows, labels, "true \\ predicted")


def shaded_tokens(
    tokens: Sequence[str], values: Sequence[float], notes: Sequence[str] = (), *, largest: float = 1.0
) -> str:
    """Tokens, each on a background by its value; `largest` is the value of the strongest."""
    spans = []
    for place, token in enumerate(tokens[:TOKENS_SHOWN]):
        value = values[place] if place < len(values) else 0.0
        note = notes[place] if place < len(notes) else f"{value:.3f}"
        style = f"padding:2px 4px;border-radius:3px;white-space:pre-wrap;{layer(value / largest)}"
        spans.append(f'<span style="{style}" title="{escape(note)}">{escape(token)}</span>')
    rest = f' <span style="{_FAINT}">… {len(tokens) - TOKENS_SHOWN:,} more</span>' if len(tokens) > TOKENS_SHOWN else ""
    return f'<div style="line-height:2">{" ".join(spans)}{rest}</div>'


def marked_spans(words: Sequence[str], spans: Sequence[tuple[str, int, int]], notes: Sequence[str] = ()) -> str:
    """Words of which some are marked as spans: (label, start, end), each label in a colour of its own."""
    hues = {label: number for number, label in enumerate(dict.fromkeys(label for label, _, _ in spans))}
    starts = {start: (label, end) for label, start, end in spans}
    parts, place = [], 0
    while place < len(words):
        label, end = starts.get(place, ("", place + 1))
        inside = " ".join(_noted(words[one], notes[one] if one < len(notes) else "") for one in range(place, end))
        if label:
            name = f'<span style="font-size:10px;font-weight:600;margin-left:6px;{_FAINT}">{escape(label)}</span>'
            style = f"padding:3px 6px;border-radius:4px;{layer(0.7, hues[label])}"
            inside = f'<span style="{style}">{inside}{name}</span>'
        parts.append(inside)
        place = end
    return f'<div style="line-height:2.2">{" ".join(parts)}</div>'


def words_with_tags(words: Sequence[str], tags: Sequence[str], notes: Sequence[str] = ()) -> str:
    """Words with a tag below each."""
    hues = {tag: number for number, tag in enumerate(sorted(set(tags)))}
    parts = []
    for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
        note = escape(notes[place] if place < len(notes) else "")
        style = f"font-size:10px;border-radius:3px;padding:0 4px;{layer(0.5, hues[tag])}"
        below = f'<span style="{style}">{escape(tag)}</span>'
        column = "display:inline-flex;flex-direction:column;align-items:center;margin:2px 5px 2px 0"
        parts.append(f'<span style="{column}" title="{note}"><span>{escape(word)}</span>{below}</span>')
    return f"<div>{''.join(parts)}</div>"


def bars(values: Mapping[str, float]) -> str:
    """Probabilities as bars, the largest first."""
    ordered = sorted(values, key=lambda name: -values[name])
    lines = []
    for name in ordered[:MOST_BARS]:
        share = values[name]
        bar = f'<div style="{layer(1, strongest=0.9)};height:10px;border-radius:2px;width:{160 * share:.0f}px"></div>'
        lines.append(
            f'<div style="display:flex;align-items:center;gap:8px"><span style="min-width:80px;text-align:right">'
            f"{escape(name)}</span>{bar}<span>{share:.3f}</span></div>"
        )
    rest = len(ordered) - MOST_BARS
    note = f'<div style="{_FAINT}">and {rest} more labels</div>' if rest > 0 else ""
    return f'<div style="margin:4px 0">{"".join(lines)}{note}</div>'


def progress_bar(share: float, text: str) -> str:
    """A bar that is filled up to `share`, and a line of text."""
    track = "flex:0 0 160px;height:8px;border-radius:4px;background:rgba(128,128,128,.25)"
    done = f"height:8px;border-radius:4px;width:{160 * min(1.0, max(0.0, share)):.0f}px;{layer(1, strongest=0.9)}"
    bar = f'<div style="{track}"><div style="{done}"></div></div>'
    return box(f'<div style="display:flex;align-items:center;gap:12px">{bar}<span>{escape(text)}</span></div>')


def _noted(text: str, note: str) -> str:
    return f'<span title="{escape(note)}">{escape(text)}</span>' if note else escape(text)
