"""The space of settings that a hyper-parameter search looks in: `search_space` of a task's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


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


def nearest(way: Range | Choice, value: Any) -> Any:
    """The value of a search space that is nearest to a default, which a task may have chosen outside of it.

    >>> nearest(Choice((128, 256)), 160), nearest(Range(0.1, 0.5), 0.6), nearest(Choice(("lstm", "gru")), "gru")
    (128, 0.5, 'gru')
    """
    if isinstance(way, Range):
        return min(max(value, way.low), way.high)
    if isinstance(value, str | bool) or value in way.values:
        return value
    return min((one for one in way.values if not isinstance(one, str)), key=lambda one: abs(one - value))
