"""Checks of the texts that a user passes to a model in Python."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import WeftError, short_repr


def check_text(text: str, what: str = "the text") -> str:
    """Return `text` if it is a string; raise a WeftError that calls it `what` otherwise."""
    if not isinstance(text, str):
        raise WeftError(f"{what} is {short_repr(text)}", expected="a str")
    return text


def check_texts(texts: Iterable[str]) -> list[str]:
    """Return texts from any iterable as a list; raise a WeftError if it is a single string or holds something else.

    >>> check_texts(word for word in ("one", "two"))
    ['one', 'two']
    """
    check_many(texts)
    return [check_text(text, f"text {number}") for number, text in enumerate(texts, start=1)]


def check_many(texts: Iterable[object]) -> None:
    """Raise a WeftError if the texts are a single string, or nothing that has items."""
    if isinstance(texts, str):
        raise WeftError(f"the texts are a single str, {short_repr(texts)}", expected="a list of strings", hint="[text]")
    if not isinstance(texts, Iterable):
        raise WeftError(f"the texts are {short_repr(texts)}", expected="a list of strings")
