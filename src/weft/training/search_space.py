"""The space of settings that a hyper-parameter search looks in: a table in each task's `search.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Range(NamedTuple):
    """Values between two limits; on a logarithmic scale where only their ratio matters. Integers if the limits are."""

    low: float
    high: float
    log: bool = False


class Choice(NamedTuple):
    """One of several values."""

    values: tuple[str | int | float | bool, ...]


# By setting. A key `model.hidden_size = model.embedding_dim` gives both the same value.
SearchSpace = Mapping[str, Range | Choice]


def names_of(key: str) -> list[str]:
    """The settings that a key of a search space stands for.

    >>> names_of("model.hidden_size = model.embedding_dim")
    ['model.hidden_size', 'model.embedding_dim']
    """
    return key.split(" = ")
