"""Figures in the language of the page: what weft writes into them, by templates such as "Attention of {}".

A table `page/words/figures-LANGUAGE.json` has the templates. What stands for {} is kept as it is, a token for example;
what stands for {~} is translated by itself.
"""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from pathlib import Path

from weft.pictures.figures import Curves, Figure

FOLDER = Path(__file__).parent / "page" / "words"
WRITTEN = ("title", "label", "row_title", "column_title", "x_label", "y_label")  # fields that are translated
PAGE_LANGUAGES = ("en", "zh")  # figures are drawn in English


def translate_figure(figure: Figure, language: str) -> Figure:
    """The figure with its own words, not those of its data, in another language."""
    if language == "en":
        return figure
    names = {field.name for field in dataclasses.fields(figure)}
    changes: dict[str, object] = {
        name: translate_phrase(getattr(figure, name), language) for name in WRITTEN if name in names
    }
    for name in ("notes", "key"):
        if isinstance(found := getattr(figure, name, None), tuple) and all(isinstance(one, str) for one in found):
            changes[name] = tuple(translate_phrase(one, language) for one in found)
    if isinstance(figure, Curves):
        changes["curves"] = tuple(
            dataclasses.replace(one, name=translate_phrase(one.name, language)) for one in figure.curves
        )
    return dataclasses.replace(figure, **changes)  # type: ignore[arg-type]


def translate_phrase(text: str, language: str) -> str:
    """A phrase in another language; one that no template fits stays as it is."""
    for one in (text, text[:1].lower() + text[1:]):
        for pieces, recursive, template in _templates(language):
            if (found := _places(one, pieces)) is not None:
                parts = zip(found, recursive, strict=True)
                return template.format(*(translate_phrase(part, language) if again else part for part, again in parts))
    return text


def _places(text: str, pieces: list[str]) -> list[str] | None:
    """What stands between the pieces of a template, in linear time; None: the template does not fit the text.

    >>> _places("norm, layer 1", ["norm, ", ""])
    ['layer 1']
    """
    first, *between, last = pieces if len(pieces) > 1 else (*pieces, "")
    found, start = [], len(first)
    for piece in between:
        end = text.find(piece, start + 1)
        if end < 0:
            return None
        found.append(text[start:end])
        start = end + len(piece)
    if not text.startswith(first) or not text.endswith(last):
        return None
    if len(pieces) == 1:
        return found if text == first else None
    rest = text[start : len(text) - len(last)]
    return [*found, rest] if rest else None


@cache
def _templates(language: str) -> list[tuple[list[str], list[bool], str]]:
    """For each template its pieces, which of its places are translated, and its translation; the longest first."""
    table: dict[str, str] = json.loads((FOLDER / f"figures-{language}.json").read_text(encoding="utf-8"))
    found = []
    for english, other in sorted(table.items(), key=lambda item: -len(item[0])):
        pieces = re.split(r"(\{~?\})", english)
        found.append((pieces[::2], [piece == "{~}" for piece in pieces[1::2]], other))
    return found
