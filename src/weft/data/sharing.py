"""Work on many items that several processes may share: an evaluation during distributed training.

`shared_map` is a plain loop unless the code runs inside `sharing`, where the given function computes the results of
some items here and receives the others. Which items belong together never depends on the number of processes, so
neither do the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _Sharing(NamedTuple):
    parts: int  # into how many parts work is divided that could be one part
    map: Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]


_ALONE = _Sharing(1, lambda function, items: [function(item) for item in items])
_current = ContextVar("sharing", default=_ALONE)


@contextmanager
def sharing(parts: int, map: Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]) -> Iterator[None]:
    """Inside the block, `shared_map` calls `map`, and `shared_parts` returns `parts`."""
    token = _current.set(_Sharing(parts, map))
    try:
        yield
    finally:
        _current.reset(token)


def shared_map(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Returns the results of `function` for all items, in their order.

    >>> shared_map(len, ["one", "three"])
    [3, 5]
    """
    return _current.get().map(function, items)


def shared_parts() -> int:
    """Into how many parts work is divided that could be one part."""
    return _current.get().parts
