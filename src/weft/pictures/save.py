"""Figures into a file: .html, .svg, .png or .json, by its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.pictures.figures import Figure
from weft.pictures.page import to_html, to_svg

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
        drawn = [convert.svg2png(bytestring=str(svg).encode(), scale=2) for svg in drawn]
    return list(zip(paths, drawn, strict=True))


def _converter() -> Any:
    try:
        import cairosvg
    except (ImportError, OSError) as error:
        raise WeftError(
            "a .png needs cairosvg, which is not installed", expected=".svg or .html", hint="pip install 'weft[png]'"
        ) from error
    return cairosvg
