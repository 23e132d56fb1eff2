"""Colours: perceptually uniform scales and a set of distinguishable hues, for light and dark pages.

A scale is a straight line in OKLab (Ottosson 2020), in which equal steps look equally large. Its lightness changes
steadily from end to end, so it is read without seeing hues at all; the two arms of the diverging scale are blue and
orange, which no common colour blindness confuses. Figures name levels by CSS classes (`s0` to `s31`, `d0` to `d30`),
and a style sheet gives each class its colour on a light and on a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from weft.pictures.figures import DIVERGING

LEVELS = {"sequential": 32, "diverging": 31}
PREFIX = {"sequential": "s", "diverging": "d"}

# For lines: blue, vermilion, green, purple, amber, sky, grey; distinguishable with all common colour blindnesses.
LIGHT_HUES = ("#0066b3", "#d1495b", "#2a7f3f", "#7a4fa3", "#b07d00", "#2a9fd6", "#6b7280")
DARK_HUES = ("#5aa9ff", "#ff8a80", "#6fce8a", "#c39bf5", "#f0c24b", "#7fd7ff", "#b0b7c3")

# Page, text, faint text, grid.
LIGHT_PAGE = ("#ffffff", "#1d2430", "#5b6472", "#d9dee6")
DARK_PAGE = ("#14181f", "#e8ecf2", "#9aa5b5", "#343c49")


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """A colour of OKLab in polar coordinates (hue in degrees) as #rrggbb, clipped to what a screen shows."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(min(1.0, max(0.0, part)))):02x}" for part in linear)


def luminance(colour: str) -> float:
    """The relative luminance of #rrggbb, by which contrast is measured: white text has more below about 0.18."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _gamma(value: float) -> float:
    return 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055


@cache
def colours(scale: str, dark: bool = False) -> tuple[tuple[str, bool], ...]:
    """The colour of each level, and whether text on it is to be light."""
    count, found = LEVELS[scale], []
    for level in range(count):
        if scale == DIVERGING:
            at = 2 * level / (count - 1) - 1
            lightness = 0.27 + 0.48 * abs(at) if dark else 0.97 - 0.42 * abs(at)
            colour = oklch(lightness, 0.13 * abs(at), 255 if at < 0 else 55)
        else:
            at = level / (count - 1)
            lightness = 0.25 + 0.60 * at if dark else 0.97 - 0.57 * at
            colour = oklch(lightness, 0.012 + 0.12 * at, 255)
        found.append((colour, luminance(colour) < 0.18))
    return tuple(found)


def level(value: float, low: float, high: float, scale: str) -> int:
    """The level of a value between the ends of a scale."""
    count = LEVELS[scale]
    at = (value - low) / (high - low) if high > low else 0.5
    return min(count - 1, max(0, round(at * (count - 1))))


def level_class(value: float, low: float, high: float, scale: str) -> str:
    """The CSS class of a value; "none" for a value that is not finite."""
    return f"{PREFIX[scale]}{level(value, low, high, scale)}" if math.isfinite(value) else "none"


@cache
def variables(dark: bool) -> dict[str, str]:
    """Every colour of a light or a dark page by its name."""
    found = dict(zip(("page", "ink", "faint", "line"), DARK_PAGE if dark else LIGHT_PAGE, strict=True))
    found |= {f"hue{number}": hue for number, hue in enumerate(DARK_HUES if dark else LIGHT_HUES)}
    for scale, prefix in PREFIX.items():
        for number, (colour, light_text) in enumerate(colours(scale, dark)):
            found |= {f"{prefix}{number}": colour, f"on-{prefix}{number}": "#ffffff" if light_text else "#000000"}
    return found


def style_sheet(used: set[str] | None = None) -> str:
    """The rules of all classes, or of those that are used, for files; they follow a reader's light or dark setting."""
    light, dark = (_rules(used, variables(one).__getitem__) for one in (False, True))
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


def page_sheet() -> str:
    """The same for a page with `color-scheme`: its colours are variables, such as `--ink` and `--hue0`."""
    light, dark = variables(False), variables(True)
    root = ";".join(f"--{name}:light-dark({colour},{dark[name]})" for name, colour in light.items())
    return f":root{{{root}}}{_rules(None, 'var(--{})'.format)}"


def _rules(used: set[str] | None, colour: Callable[[str], str]) -> str:
    rules = [f".{name}{{fill:{colour(name)}}}" for name in ("page", "ink", "faint")]
    rules.append(".none{fill:none;background:none}")
    rules += [f".{name}{{stroke:{colour(own)};fill:none}}" for name, own in (("grid", "line"), ("axis", "faint"))]
    for name in variables(False):
        hue = name.removeprefix("hue")
        if name != hue and (used is None or {f"line{hue}", f"dot{hue}"} & used):
            rules.append(f".line{hue}{{stroke:{colour(name)};fill:none}}.dot{hue}{{fill:{colour(name)}}}")
        elif f"on-{name}" in variables(False) and (used is None or name in used):
            ink = colour(f"on-{name}")
            rules.append(
                f".{name}{{fill:{colour(name)};background:{colour(name)};color:{ink}}}.on-{name}{{fill:{ink}}}"
            )
    return "".join(rules)
