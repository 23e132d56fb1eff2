"""Custom cells: classes of a user's own that settings name.

A run stores the name of its cell and never its code. So a model with a custom cell is built inside `using_cells`, which
makes the class known by its name: to the thread that is inside, and to threads that are given a copy of its context
(`contextvars.copy_context`), as the server's are. Other threads may know other classes by the same name.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

from weft.cells.base import Cell
from weft.errors import WeftError, check_path, unknown_name

_EXAMPLE = "examples/own_cell.py:PeepholeLSTMCell"
# By name, of the blocks of `using_cells` that are open.
_known: ContextVar[Mapping[str, type[Cell]]] = ContextVar("cells", default=MappingProxyType({}))


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
    token = _known.set({**_known.get(), **added})
    try:
        yield
    finally:
        _known.reset(token)


def custom_cells() -> dict[str, type[Cell]]:
    """The custom cells that are known here, by name."""
    return dict(_known.get())


def is_custom(cell: type[Cell]) -> bool:
    """Whether a cell is not part of weft."""
    return not cell.__module__.startswith("weft.cells.")


def load_cell(given: str, option: str) -> type[Cell]:
    """Loads a cell class from a file: `FILE.py:CLASS`, as it was given for an option, which messages name.

    Raises:
        WeftError: If there is no such file or class, its code fails, or the class is not a Cell.
    """
    file, colon, name = given.rpartition(":")
    if not colon or not name.isidentifier():
        raise WeftError(f"{option} is {given!r}", expected="FILE.py:CLASS", hint=f"{option} {_EXAMPLE}")
    path = check_path(file, f"the file of {option}")
    if not path.is_file() or path.suffix != ".py":
        raise WeftError(
            f"{option}: {path} is not a Python file here", expected="FILE.py:CLASS", hint=f"{option} {_EXAMPLE}"
        )
    module = _execute(path, option)
    classes = {key: value for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Cell)}
    own = [key for key, value in classes.items() if value.__module__ == module.__name__]
    if name not in classes:
        raise unknown_name(f"{option}: in {path} the cell", name, own, f"{option} {path}:{{}}")
    return classes[name]


def _execute(path: Path, option: str) -> Any:
    name = f"weft_custom_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and NamedTuples look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename) == path.resolve()]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        raise WeftError(
            f"{option}: {where}: {type(error).__name__}: {error}", expected="a file that Python can import"
        ) from error
    return module
