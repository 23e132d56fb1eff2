"""Custom cells: classes of a user's own that settings name.

A run stores the name of its cell and never its code. So a model with a custom cell is built inside `using_cells`, which
makes the class known by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from weft.cells.base import Cell
from weft.errors import WeftError

_known: dict[str, type[Cell]] = {}  # by name, of the blocks of `using_cells` that are open


@contextmanager
def using_cells(cells: Iterable[type[Cell]] | Mapping[str, type[Cell]]) -> Iterator[None]:
    """Makes custom cells known inside the block: by their class names, or by the keys of a mapping.

    Raises:
        WeftError: If one is not a subclass of `Cell`, or two have the same name.

    >>> class PlainCell(Cell):
    ...     blocks = 1
    >>> with using_cells([PlainCell]):
    ...     list(custom_cells())
    ['PlainCell']
    """
    added: dict[str, type[Cell]] = {}
    for name, cell in cells.items() if isinstance(cells, Mapping) else ((None, cell) for cell in cells):
        if not (isinstance(cell, type) and issubclass(cell, Cell)):
            raise WeftError(f"`cells` has {cell!r}", expected="classes that are subclasses of weft.cells.Cell")
        key = name or cell.__name__
        if added.setdefault(key, cell) is not cell:
            raise WeftError(f"`cells` has two classes named {key}", expected="different names")
    before = _known.copy()
    _known.update(added)
    try:
        yield
    finally:
        _known.clear()
        _known.update(before)


def custom_cells() -> dict[str, type[Cell]]:
    """The custom cells that are known now, by name."""
    return _known.copy()


def is_custom(cell: type[Cell]) -> bool:
    """Whether a cell is not part of weft."""
    return not cell.__module__.startswith("weft.cells.")
