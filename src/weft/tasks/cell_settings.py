"""Custom cells in the settings of a task: classes become names, and a new run records the names of its classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.cells import Cell, find_cell, is_custom
from weft.config import dotted
from weft.training.build import CELL_SETTINGS


def take_cells(config: Any) -> tuple[Any, list[type[Cell]]]:
    """Replaces cell classes in a dict of settings, such as `{"model.cell": MyCell}`, by their names.

    Returns:
        The settings, and the classes.
    """
    if not isinstance(config, Mapping):
        return config, []
    classes = {key: value for key, value in dotted(config).items() if _is_cell(value)}
    if not classes:
        return config, []
    return {**dotted(config), **{key: cell.__name__ for key, cell in classes.items()}}, list(classes.values())


def record_cells(config: Any) -> dict[str, str]:
    """The custom cells of a configuration: their names in the settings, and the names of their classes.

    Raises:
        WeftError: If a cell is not known.
    """
    names = {getattr(getattr(config, "model", None), key, "") for key in CELL_SETTINGS} - {"", "auto"}
    found = {name: find_cell(name) for name in names}
    return {name: cell.__name__ for name, cell in found.items() if is_custom(cell)}


def _is_cell(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Cell)
