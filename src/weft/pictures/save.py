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


def content(path: Path, title: str, figures: Sequence[Figure], data: Any) -> list[tuple[Path, str | bytes]]:
    """The files to write. Of several figures, each .svg and .png has its number in its name.

    Args:
        path: The file that was asked for.
        title: The title of a page.
        figures: What to draw.
        data: The same as plain data, for .json.
    """
    check_suffix(path)
    if path.suffix == ".json":
        return [(path, json.dumps(data, ensure_ascii=False) + "\n")]
    if path.suffix == ".html":
        return [(path, to_html(title, figures))]
    many = len(figures) > 1
    paths = [path.with_stem(f"{path.stem}-{n}") if many else path for n in range(1, len(figures) + 1)]
    drawn: list[str | bytes] = [to_svg(figure) for figure in figures]
    if path.suffix == ".png":
        convert = _converter()
        drawn = [convert.svg2png(bytestring=_with_font(str(svg)).encode(), scale=2) for svg in drawn]
    return list(zip(paths, drawn, strict=True))


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
