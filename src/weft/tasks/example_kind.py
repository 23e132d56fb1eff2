"""Whether examples are texts or series: as set, as a file's name or content says, or by the type of a value."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.inputs import PEEKED, InputKind, input_kind
from weft.series import SeriesSet, TimeSeries
from weft.series.examples import is_table_of_series
from weft.tasks.config import SERIES_EXAMPLES, SERIES_SETTINGS, TEXT_EXAMPLES, ExamplesConfig

LOOKED_AT = 500  # rows of a table


def kind_of_examples(source: Any, data: ExamplesConfig) -> InputKind | None:
    """The kind of a file of examples that `choose_input` reads as series; None of others."""
    if not isinstance(source, str | Path) or not Path(source).is_file() or data.input != "auto":
        return None
    general = input_kind(source)
    if general is not None and general.kind == SERIES_EXAMPLES:
        return general
    found = choose_input(source, data)
    return InputKind(found, "by its columns") if found == SERIES_EXAMPLES else None


def choose_input(source: Any, data: ExamplesConfig) -> str:
    """Whether examples are texts or series: as set, as a file's name or content says, or by the type of a value."""
    if data.input != "auto":
        return data.input
    if any(getattr(data, name) for name in SERIES_SETTINGS):
        return SERIES_EXAMPLES
    if isinstance(source, str | Path):
        found = input_kind(source)
        if found is not None and found.kind == SERIES_EXAMPLES:
            return SERIES_EXAMPLES
        return SERIES_EXAMPLES if Path(source).is_file() and _is_series(_beginning(Path(source))) else TEXT_EXAMPLES
    if isinstance(source, SeriesSet | np.ndarray):
        return SERIES_EXAMPLES
    if isinstance(source, list | tuple) and source and not isinstance(source[0], Mapping | str):
        first = source[0][0] if isinstance(source[0], list | tuple) and len(source[0]) else source[0]
        return TEXT_EXAMPLES if isinstance(first, str) or first is None or not _is_values(first) else SERIES_EXAMPLES
    if isinstance(source, Mapping):
        return (
            SERIES_EXAMPLES
            if _is_series({name: list(column)[:LOOKED_AT] for name, column in source.items()})
            else TEXT_EXAMPLES
        )
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):
        return SERIES_EXAMPLES if _is_series(source[:LOOKED_AT]) else TEXT_EXAMPLES
    return TEXT_EXAMPLES


def _is_values(value: Any) -> bool:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, np.ndarray | np.number | TimeSeries | int | float)


def _beginning(path: Path) -> Any:
    """The first rows of a table as columns; None if a file is none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if not {".csv", ".tsv"} & set(suffixes[-2:]):
        return None
    try:
        with gzip.open(path) if suffixes[-1] == ".gz" else path.open("rb") as file:
            start = file.read(PEEKED)
        lines = start.decode("utf-8", "replace").splitlines()
        lines = lines[:-1] if len(start) == PEEKED else lines
        rows = list(csv.reader(lines, delimiter="\t" if ".tsv" in suffixes[-2:] else ","))
    except (OSError, EOFError, csv.Error):
        return None
    width = len(rows[0]) if rows else 0
    body = [row for row in rows[1:] if len(row) == width]
    if not body or len(set(rows[0])) < width:
        return None
    return {name: [row[place] for row in body] for place, name in enumerate(rows[0])}


def _is_series(table: Any) -> bool:
    return table is not None and is_table_of_series(table)
