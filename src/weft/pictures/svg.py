"""A small SVG layer: shapes, text of a known width, axes, a colour legend.

A library of our own of this size was chosen over a plotting library: pages need SVG and HTML that follow the reader's
light or dark setting, tokens of any script beside each other, and no dependency of tens of megabytes for five kinds of
figures. Whoever wants another figure has the numbers: `to_dict()` and `to_dataframe()` of every probe.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape

from weft.pictures.figures import number as number
from weft.pictures.palette import LEVELS, PREFIX, style_sheet

FONT = (
    "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','Noto Sans CJK SC','PingFang SC',"
    "'WenQuanYi Micro Hei',sans-serif"
)
SMALL, NORMAL, TITLE = 11, 13, 15
MARGIN = 16
NARROW, WIDE = "iljtf.,:;'|!()[]r ", "mwMWQ@%"


def text_width(text: str, size: float = NORMAL) -> float:
    """The approximate width of a text in pixels; a Chinese character is as wide as it is high."""
    total = 0.0
    for character in text:
        if unicodedata.east_asian_width(character) in "WF":
            total += 1.0
        elif unicodedata.combining(character):
            continue
        elif character in NARROW:
            total += 0.34
        elif character in WIDE or character.isupper():
            total += 0.78
        else:
            total += 0.56
    return total * size


def title_width(text: str) -> float:
    """The width of a title, which is bold."""
    return 1.18 * text_width(text, TITLE)


def shorten(text: str, most: float, size: float = NORMAL) -> str:
    """The text, cut with an ellipsis where it is wider than `most` pixels."""
    if text_width(text, size) <= most:
        return text
    while text and text_width(text + "…", size) > most:
        text = text[:-1]
    return text + "…"


def percent(value: float) -> str:
    """A share as people read it; a small one by its first two digits."""
    if 0 < value < 0.001:
        return f"{number(float(f'{100 * value:.1e}'))}%"
    return f"{value:.0%}" if value >= 0.9995 or value == 0 else f"{value:.1%}"


def two_decimals(value: float) -> str:
    """A number for a cell of a matrix: two decimals, or as few digits as say the same."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    shown = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if shown in ("-0", "") else shown


def at(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Canvas:
    """Shapes in the order in which they are drawn."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []
        self.frame: tuple[float, ...] = ()  # where its values stand, for who points at them
        self.text(MARGIN, 26, shorten(title, width - 2 * MARGIN, TITLE), size=TITLE, weight="600")

    def rect(
        self, x: float, y: float, w: float, h: float, css: str, *, note: str = "", radius: float = 0, place: str = ""
    ) -> None:
        """A rectangle; `place` names what it stands for, for who points at it."""
        round_ = f' rx="{at(radius)}"' if radius else ""
        round_ += f' data-at="{place}"' if place else ""
        shape = f'<rect x="{at(x)}" y="{at(y)}" width="{at(w)}" height="{at(h)}" class="{css}"{round_}'
        self.parts.append(f"{shape}><title>{escape(note)}</title></rect>" if note else f"{shape}/>")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        css: str = "ink",
        *,
        size: float = NORMAL,
        anchor: str = "start",
        turn: float = 0,
        fit: float = 0,
        weight: str = "",
    ) -> None:
        """Text on its baseline; `fit` makes it exactly that wide, whatever the font."""
        if not text:
            return
        extra = "" if anchor == "start" else f' text-anchor="{anchor}"'
        extra += f' transform="rotate({at(turn)} {at(x)} {at(y)})"' if turn else ""
        extra += f' textLength="{at(fit)}" lengthAdjust="spacingAndGlyphs"' if fit else ""
        extra += f' font-weight="{weight}"' if weight else ""
        size_ = "" if size == NORMAL else f' font-size="{at(size)}"'
        self.parts.append(f'<text x="{at(x)}" y="{at(y)}" class="{css}"{size_}{extra}>{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str = "axis", width: float = 1) -> None:
        self.path(f"M{at(x1)} {at(y1)}L{at(x2)} {at(y2)}", css, width)

    def path(self, d: str, css: str, width: float = 0, *, extra: str = "") -> None:
        stroke = f' stroke-width="{at(width)}"' if width else ""
        self.parts.append(f'<path d="{d}" class="{css}"{stroke}{extra}/>')

    def circle(self, x: float, y: float, r: float, css: str, *, note: str = "") -> None:
        shape = f'<circle cx="{at(x)}" cy="{at(y)}" r="{at(r)}" class="{css}"'
        self.parts.append(f"{shape}><title>{escape(note)}</title></circle>" if note else f"{shape}/>")

    def legend(self, x: float, y: float, height: float, low: float, high: float, scale: str) -> None:
        """A colour bar from low (below) to high."""
        count = LEVELS[scale]
        step = height / count
        for level in range(count):
            self.rect(x, y + height - (level + 1) * step, 12, step + 0.5, f"{PREFIX[scale]}{level}")
        middle = (low + high) / 2
        for value, place in ((high, y + 9), (middle, y + height / 2 + 4), (low, y + height)):
            self.text(x + 17, place, number(value), "faint", size=SMALL)

    def render(self, *, standalone: bool = True, crop: float = 0) -> str:
        """The SVG; standalone with its style sheet and page colour, otherwise for a page that has them, which shows the
        title by itself; `crop` is the height that is cut off above."""
        body = "".join(self.parts)
        used = set(re.findall(r'class="([^"]*)"', body))
        names = {name.removeprefix("on-") for group in used for name in group.split()}
        style = f"<style>{style_sheet(names)}text{{pointer-events:none}}</style>" if standalone else ""
        page = f'<rect width="{at(self.width)}" height="{at(self.height)}" class="page"/>' if standalone else ""
        title = f"<title>{escape(self.title)}</title>" if self.title else ""
        role = ' role="img"' if title else ""  # without a title it is a part of something that has one
        height = at(self.height - crop)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {at(crop)} {at(self.width)} {height}" '
            f'width="{at(self.width)}" height="{height}" font-family="{FONT}" font-size="{NORMAL}"{role}>'
            f"{title}{style}{page}{body}</svg>"
        )
