"""The prose of the Python language reference, which every Python installation includes for `help()`.

It needs no download. The text differs slightly between versions of Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LIST_MARK = re.compile(r"^(?:\*|\d+\.) +")
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}(\w[^*]*?)\*{1,2}(?![\w*])")
_NOT_PROSE = ("::=", ">>>", " = ", "()\n", "...     ")


def prose() -> str:
    """The different paragraphs of the language reference, one per line, without code and grammar."""
    from pydoc_data.topics import topics

    # Topics overlap; a paragraph in both training and held-out text would distort the evaluation.
    paragraphs = dict.fromkeys(line for name in sorted(topics) for line in _paragraphs(topics[name]))
    return "".join(f"{paragraph}\n" for paragraph in paragraphs)


def _paragraphs(topic: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", topic):
        if any(sign in block for sign in _NOT_PROSE):
            continue
        lines = [line.strip() for line in block.strip().splitlines()]
        text = _LIST_MARK.sub("", " ".join(lines))
        # A hyphen at the end of a line is part of the word, so the two halves are joined without a space.
        text = re.sub(r"(?<=\w)- (?=\w)", "-", re.sub(r"\s+", " ", text))
        text = _EMPHASIS.sub(r"\1", text)
        if _reads_as_prose(text):
            yield text


def _reads_as_prose(text: str) -> bool:
    """Prose has several words, mostly letters, and final punctuation; headings, tables and code lack one of these."""
    letters = sum(character.isalpha() or character == " " for character in text)
    return len(text.split()) >= 6 and letters >= 0.85 * len(text) and text[0].isupper() and text[-1] in '.:?!)"'
