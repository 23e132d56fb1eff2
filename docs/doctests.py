"""An extension of the API reference: doctests that stand in the text of a docstring become its examples."""

from __future__ import annotations

import textwrap
from typing import Any

from griffe import Extension, Object


def with_examples(text: str) -> str:
    """Moves every paragraph that begins with `>>>` to an Examples section at the end."""
    paragraphs = text.split("\n\n")
    doctests = [part for part in paragraphs if part.startswith(">>>")]
    if not doctests:
        return text
    rest = [part for part in paragraphs if not part.startswith(">>>")]
    return "\n\n".join([*rest, "Examples:\n" + textwrap.indent("\n\n".join(doctests), "    ")])


class Doctests(Extension):
    """griffe calls `on_object` for everything it finds in the package."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_examples(obj.docstring.value)
