"""Figures into a file: .html, .svg, .png or .json, by its name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.pictures.figures import Figure
from weft.pictures.page import to_html, to_svg
from weft.pictures.svg import FONT

# By their letters; Japanese and Korean text may have Han characters too.
SCRIPT_LETTERS = {"ja": "[\u3040-\u30ff]", "ko": "[\uac00-\ud7af]", "zh-cn": "[\u3400-\u9fff]"}
PICTURE_SUFFIXES = (".html", ".svg", ".png", ".json")
MOST_PIXELS = 32_000  # of a .png in one direction: cairo draws no more than 32,767


def check_suffix(path: Path) -> None:
    """Refuses a file name that is not a picture's.

    Raises:
        WeftError: The name ends with something else, or a .png is asked for and cairosvg is not installed.
    """
    if path.suffix not in PICTURE_SUFFIXES:
        raise WeftError(
            f"--out {path}", expected=f"a name that ends with {', '.join(PICTURE_SUFFIXES)}", hint="look.html"
        )
    if path.suffix == ".png":
        _converter()


def content(path: Path, title: str, figures: Sequence[Figure], data: Any) -> bytes:
    """What to write into the file: all figures, one below the other, or the same as plain data for .json.

    Raises:
        WeftError: The name is not a picture's, or the figures are too high for a .png.
    """
    check_suffix(path)
    if path.suffix == ".json":
        return f"{json.dumps(data, ensure_ascii=False)}\n".encode()
    if path.suffix == ".html":
        return to_html(title, figures).encode()
    svg = to_svg(*figures, title=title)
    return _to_png(path, svg) if path.suffix == ".png" else svg.encode()


def _to_png(path: Path, svg: str) -> bytes:
    """The picture with two pixels for one, or fewer where it would be too high."""
    size = max(float(value) for value in re.findall(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', svg)[0])
    if size > MOST_PIXELS:
        raise WeftError(
            f"--out {path}: the picture would have {size:,.0f} pixels", expected=f"at most {MOST_PIXELS:,}",
            hint=f"--out {path.with_suffix('.html')}",
        )  # fmt: skip
    scale = min(2.0, MOST_PIXELS / size)
    found: bytes = _converter().svg2png(bytestring=_with_font(svg).encode(), scale=scale)
    return found


def _with_font(svg: str) -> str:
    """The SVG with a font that has its letters: cairo takes one font for a text, where a browser looks for others."""
    language = next((name for name, letters in SCRIPT_LETTERS.items() if re.search(letters, svg)), None)
    program = shutil.which("fc-list")
    if language is None or program is None:
        return svg
    command = [program, "-f", "%{family[0]}\\n", f":lang={language}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    families = sorted(set(filter(None, found)), key=lambda name: ("Mono" in name, "Sans" not in name, name))
    return svg.replace(f'font-family="{FONT}"', f'font-family="{escape(families[0])}"', 1) if families else svg


def _converter() -> Any:
    try:
        import cairosvg
    except (ImportError, OSError) as error:
        raise WeftError(
            "a .png needs cairosvg, which is not installed", expected=".svg or .html", hint="pip install 'weft[png]'"
        ) from error
    return cairosvg
