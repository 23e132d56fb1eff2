"""Which columns of a table hold its texts: as set, as in the training data, by a usual name, or by their cells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.errors import WeftError, unknown_name
from weft.text.arguments import check_many, check_text
from weft.text.corpus import Document
from weft.text.dataframes import from_python, index_of, is_missing, plain_value
from weft.text.left_out import LeftOut
from weft.text.tables import TEXT_NAMES, Row, Table, location_of, read_table


class ChosenColumns(NamedTuple):
    """Columns by index, and why these were chosen."""

    places: list[int]
    why: str

    def title(self, table: Table) -> str:
        return ", ".join(column_title(table, place) for place in self.places)

    def describe(self, table: Table) -> str:
        return f"{self.title(table)} ({self.why})"


def column_title(table: Table, column: int) -> str:
    """What messages call a column: its name or its number."""
    return f"column {table.names[column]!r}" if table.names else f"column {column + 1}"


def split_names(columns: str) -> list[str]:
    """The names of columns that are given in one string, separated by commas."""
    return [name.strip() for name in columns.split(",")]


def is_name(column: int | str) -> bool:
    """Whether columns are given by names rather than by numbers."""
    return isinstance(column, str) and any(name and not name.isdecimal() for name in split_names(column))


def find_columns(table: Table, columns: int | str, setting: str) -> list[int]:
    """The indices of columns that a setting gives, by names or numbers from 1 that are separated by commas."""
    if not isinstance(columns, str) or columns in (table.names or ()):
        return [_find(table, columns, setting)]
    return [_find(table, name, setting) for name in split_names(columns)]


def _find(table: Table, column: int | str, setting: str) -> int:
    if not is_name(column):
        if not 1 <= int(column) <= table.width:
            raise WeftError(
                f"{setting} is {column}, and {table.location} has {table.width} columns", expected="one of them"
            )
        return int(column) - 1
    if table.names is None:
        raise WeftError(
            f"{setting} is {column!r}, and the columns of {table.location} have no names", expected="a number from 1"
        )
    if column not in table.names:
        raise unknown_name(f"{table.location}: {setting}: column", str(column), table.names)
    return table.names.index(str(column))


def usual_column(table: Table, names: Sequence[str], *, but: Collection[int] = ()) -> int | None:
    """The column with the first of these names that there is."""
    lowered = [name.strip().lower() for name in table.names or ()]
    places = (lowered.index(name.lower()) for name in names if name.lower() in lowered)
    return next((place for place in places if place not in but), None)


class Role(NamedTuple):
    """What columns may hold: texts, labels, words."""

    name: str  # in messages
    wanted: int | str  # the columns that are set; empty: none
    setting: str  # what messages call the setting
    like: str  # the names of the columns of the training data, separated by commas; empty: unknown
    usual: Sequence[str]  # usual names, in order of preference


def choose_columns(table: Table, *roles: Role) -> list[ChosenColumns | None]:
    """The columns of each role: as set, named as those of the training data, or with a usual name; None: none."""
    found: list[ChosenColumns | None] = [
        None if role.wanted == "" else ChosenColumns(find_columns(table, role.wanted, role.setting), "as set")
        for role in roles
    ]
    for at, role in enumerate(roles):
        names = [role.like] if role.like in (table.names or ()) else split_names(role.like)
        known = [place for name in names if (place := usual_column(table, [name], but=_taken(found))) is not None]
        if found[at] is None and role.like and len(known) == len(names):
            found[at] = ChosenColumns(known, "as in the training data")
    for at, role in enumerate(roles):
        place = usual_column(table, role.usual, but=_taken(found))
        if found[at] is None and place is not None:
            found[at] = ChosenColumns([place], "a usual name")
    if len(roles) == 2 and found[0] and found[1] and (shared := set(found[0].places) & set(found[1].places)):
        called = f"{column_title(table, min(shared))} of {table.location}"
        raise WeftError(f"{roles[0].name} and {roles[1].name} are both {called}", expected="two different columns")
    return found


def _taken(found: Iterable[ChosenColumns | None]) -> set[int]:
    return {place for chosen in found if chosen is not None for place in chosen.places}


def longest_column(table: Table, free: Sequence[int]) -> ChosenColumns:
    """Of the columns that are free, the one with the longest texts."""
    if len(free) == 1:
        return ChosenColumns([*free], "the only one" if table.width == 1 else "the only other one")
    return ChosenColumns([max(free, key=lambda column: column_length(table, column))], "the longest texts")


def column_length(table: Table, column: int) -> int:
    """The length of all texts of a column."""
    return sum(len(cells[column] or "") for _, cells in table.rows)


def joined_cells(row: Row, columns: Sequence[int]) -> str:
    """The text of a row; of several columns, those that are not empty."""
    return " ".join(cell for column in columns if (cell := (row[1][column] or "").strip()))


def is_blank(table: Table, row: Row) -> bool:
    """Whether a row is none: all its cells are empty, as spreadsheets write them below a table."""
    return table.format in ("csv", "tsv") and table.width > 1 and not any(cell and cell.strip() for cell in row[1])


def read_column(document: Document, column: str, left_out: LeftOut) -> list[str]:
    """The cells of one column of a table, which a header or JSON names, or of a column by its number from 1."""
    table = read_table(document, "auto", "yes" if is_name(column) else "auto", names=frozenset())
    if table.format == "lines":
        raise WeftError(f"{document.location} is no table with columns", expected="CSV, TSV or JSON lines")
    if is_name(column) and column not in (table.names or ()):
        raise unknown_name(f"{document.location}: column", column, table.names or (), "`column={}`")
    return column_texts(table, find_columns(table, column, "`column`"), left_out)


def column_texts(table: Table, columns: Sequence[int], left_out: LeftOut) -> list[str]:
    """The texts of a table; rows without one are left out."""
    found = []
    for row in table.rows:
        if text := " ".join(cell for column in columns if (cell := row[1][column] or "").strip()):
            found.append(text)
        elif not is_blank(table, row):
            left_out.add(location_of(table, row), "text", expected="a text in every row")
    return found


@dataclass(frozen=True)
class TextRows:
    """What a model is to read: a value for each row, and the index of the rows, if they have one."""

    values: list[Any]  # of a table or a Series as text, or as lists of words
    index: Any  # of pandas

    def texts(self) -> list[str]:
        """The values as texts, "" where one is missing."""
        return [
            "" if is_missing(value) else check_text(value, f"text {number}")
            for number, value in enumerate(self.values, start=1)
        ]


def read_rows(source: Iterable[Any], like: str = "", names: Sequence[str] = TEXT_NAMES) -> TextRows:
    """What a model is to read, from a list, a generator, a Series, an array, or a column of a DataFrame.

    Args:
        source: the texts, or a table that has them.
        like: the column of the training data, or several, separated by commas.
        names: usual names of such a column, which is read where there is none of the training data.

    >>> read_rows({"id": [1, 2], "text": ["good", None]}).texts()
    ['good', '']
    """
    check_many(source)
    data = from_python(source, "the texts")
    if isinstance(data, list):
        return TextRows(data, index_of(source))
    table = data.table()
    (chosen,) = choose_columns(table, Role("text", "", "", like, names))
    if chosen is None and table.width != 1:
        raise WeftError(
            f"the texts are a {data.kind} with the columns {', '.join(table.names or ())}",
            expected=f"a column {like or names[0]!r}",
            hint=f"one of its columns, as data[{(table.names or names)[0]!r}]",
        )
    places = [0] if chosen is None else chosen.places
    if len(places) > 1:
        return TextRows([joined_cells(row, places) for row in table.rows], index_of(source))
    return TextRows([plain_value(value) for value in data.values[places[0]]], index_of(source))
