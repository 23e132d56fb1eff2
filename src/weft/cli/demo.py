"""`weft demo`: the whole story in about a minute."""

from __future__ import annotations


def demo() -> None:
    """The whole story in about a minute, on text that every Python carries."""
