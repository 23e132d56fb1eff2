"""`--cell FILE.py:CLASS`: custom cells on the command line.

Code is loaded only from a file that the user names in the command, never because a run asks for it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.commands import as_command, keyword, own_parameters

if TYPE_CHECKING:
    from weft.cells import Cell

_HELP = "A custom cell, as FILE.py:CLASS. The file is executed. Repeatable."
_given: dict[type[Cell], str] = {}  # what --cell was for each class


def with_cells(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option --cell: the cells are known while it runs."""

    @functools.wraps(command)
    def with_option(*, custom_cells: list[str] | None, **given: Any) -> None:
        if not custom_cells:
            command(**given)
            return
        from weft.cells import using_cells

        with using_cells([_load(one) for one in custom_cells]):
            command(**given)

    option = keyword("custom_cells", Annotated[list[str] | None, typer.Option("--cell", help=_HELP)], None)
    return as_command(with_option, command.__name__, inspect.getdoc(command) or "", [*own_parameters(command), option])


def _load(given: str) -> type[Cell]:
    from weft.cells import load_cell

    cell = load_cell(given, "--cell")
    _given[cell] = given
    return cell


def cell_options(names: Collection[str]) -> list[str]:
    """The options --cell that the command was given for the classes of these names."""
    from weft.cells import custom_cells

    given = [_given[cell] for cell in custom_cells().values() if cell in _given and cell.__name__ in names]
    return [part for one in given for part in ("--cell", one)]
