"""The texts that a model is given in Python, checked: what is none is named before a model stumbles over it."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import WeftError


def check_text(text: str, what: str = "the text") -> str:
    """The text itself, if it is one."""
    if not isinstance(text, str):
        raise WeftError(f"{what} is {short_repr(text)}", expected="a text, which is a str")
    return text


def check_texts(texts: Iterable[str]) -> list[str]:
    """Texts as a list, whatever they come from: a list, a tuple, a generator.

    >>> check_texts(word for word in ("one", "two"))
    ['one', 'two']
    """
    if isinstance(texts, str):
        raise WeftError(f"the texts are one text, {short_repr(texts)}", expected="a list of texts", hint="[text]")
    if not isinstance(texts, Iterable):
        raise WeftError(f"the texts are {short_repr(texts)}", expected="a list of texts")
    return [check_text(text, f"text {number}") for number, text in enumerate(texts, start=1)]


def short_repr(value: object) -> str:
    """What was given, as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
