"""`--cell FILE.py:CLASS`: custom cells on the command line.

Code is loaded only from a file that the user names in the command, never because a run asks for it.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.commands import as_command, keyword, own_parameters
from weft.errors import WeftError, check_path, unknown_name

if TYPE_CHECKING:
    from weft.cells import Cell

_HELP = "A custom cell, as FILE.py:CLASS. The file is executed. Repeatable."
_EXAMPLE = "--cell examples/own_cell.py:PeepholeLSTMCell"
_given: dict[type[Cell], str] = {}  # what --cell was for each class


def with_cells(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option --cell: the cells are known while it runs."""

    @functools.wraps(command)
    def with_option(*, custom_cells: list[str] | None, **given: Any) -> None:
        if not custom_cells:
            command(**given)
            return
        from weft.cells import using_cells

        with using_cells([load_cell(one) for one in custom_cells]):
            command(**given)

    option = keyword("custom_cells", Annotated[list[str] | None, typer.Option("--cell", help=_HELP)], None)
    return as_command(with_option, command.__name__, inspect.getdoc(command) or "", [*own_parameters(command), option])


def load_cell(given: str) -> type[Cell]:
    """Loads a cell class from a file: `FILE.py:CLASS`.

    Raises:
        WeftError: If there is no such file or class, its code fails, or the class is not a Cell.
    """
    file, colon, name = given.rpartition(":")
    if not colon or not name.isidentifier():
        raise WeftError(f"--cell is {given!r}", expected="FILE.py:CLASS", hint=_EXAMPLE)
    path = check_path(file, "the file of --cell")
    if not path.is_file() or path.suffix != ".py":
        raise WeftError(f"--cell: {path} is not a Python file here", expected="FILE.py:CLASS", hint=_EXAMPLE)
    from weft.cells import Cell

    module = _execute(path)
    classes = {key: value for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Cell)}
    own = [key for key, value in classes.items() if value.__module__ == module.__name__]
    if name not in classes:
        raise unknown_name(f"--cell: in {path} the cell", name, own, f"--cell {path}:{{}}")
    _given[classes[name]] = given
    return classes[name]


def cell_options(names: Collection[str]) -> list[str]:
    """The options --cell that the command was given for the classes of these names."""
    from weft.cells import custom_cells

    given = [_given[cell] for cell in custom_cells().values() if cell in _given and cell.__name__ in names]
    return [part for one in given for part in ("--cell", one)]


def _execute(path: Path) -> Any:
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
            f"--cell: {where}: {type(error).__name__}: {error}", expected="a file that Python can import"
        ) from error
    return module
