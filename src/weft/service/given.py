"""The texts that a model is given in Python, checked: what is none is named before a model stumbles over it."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import WeftError


def checked_text(text: str, what: str = "the text") -> str:
    """The text itself, if it is one."""
    if not isinstance(text, str):
        raise WeftError(f"{what} is {_shown(text)}", expected="a text, which is a str")
    return text


def checked_texts(texts: Iterable[str]) -> list[str]:
    """Texts as a list, whatever they come from: a list, a tuple, a generator.

    >>> checked_texts(word for word in ("one", "two"))
    ['one', 'two']
    """
    if isinstance(texts, str):
        raise WeftError(f"the texts are one text, {_shown(texts)}", expected="a list of texts", hint="[text]")
    if not isinstance(texts, Iterable):
        raise WeftError(f"the texts are {_shown(texts)}", expected="a list of texts")
    return [checked_text(text, f"text {number}") for number, text in enumerate(texts, start=1)]


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
