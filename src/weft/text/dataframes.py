"""Tables of Python as columns of plain values: DataFrames, data sets of Hugging Face, dicts of columns, lists of dicts.

No library is imported for them: their columns are asked for by name and become lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from weft.errors import WeftError, short_repr
from weft.text.tables import Table


class Columns(NamedTuple):
    """The columns of a table of Python."""

    kind: str  # its type, for messages
    names: tuple[str, ...] | None  # None: the columns have numbers
    values: list[list[Any]]  # of each column
    rows: Sequence[Any]  # what each row is called: by the index of pandas, else by its number from 0

    def table(self) -> Table:
        """The same as texts. What is no single value, such as a list, is missing."""
        cells = [[cell_text(value) for value in column] for column in self.values]
        rows = [(label, [column[row] for column in cells]) for row, label in enumerate(self.rows)]
        return Table(self.kind, "columns", self.names or tuple(map(str, range(1, len(cells) + 1))), rows)


def from_python(
    source: Iterable[Any], what: str = "the data", expected: str = "a list, or a DataFrame"
) -> Columns | list[Any]:
    """The columns of a DataFrame, of a data set, of a dict or of dicts; anything else as a list of its items.

    Messages call it `what`, in the plural.

    >>> from_python({"text": ["good", None], "stars": [5.0, 2.5]}).table().rows
    [(0, ['good', '5']), (1, [None, '2.5'])]
    """
    kind, names = type(source).__name__, _column_names(source)
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise WeftError(f"{what} are {short_repr(source)}", expected=expected)
    if names is None:
        items = [plain_value(value) for value in to_list(source)] if is_series(source) else list(source)
        if not items or not all(isinstance(item, Mapping) for item in items):
            return items
        names = list(dict.fromkeys(name for item in items for name in item))
        columns = [[item.get(name) for item in items] for name in names]
    else:
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise WeftError(f"two columns of the {kind} are called {twice!r}", expected="different names")
        whole: Any = source[:] if hasattr(source, "features") else source  # type: ignore[index]  # not row by row
        columns = [to_list(whole[name]) for name in names]
    if len({len(column) for column in columns}) > 1:
        raise WeftError(f"the columns of the {kind} have unequal lengths", expected="a value in every row")
    features = getattr(source, "features", None)
    if isinstance(features, Mapping):
        columns = [_class_names(column, features.get(name)) for name, column in zip(names, columns, strict=True)]
    names, columns = _flat(names, columns)
    numbered = all(isinstance(name, Integral) for name in names)
    index = index_of(source)
    rows = range(len(columns[0]) if columns else 0) if index is None else index.tolist()
    return Columns(kind, None if numbered else tuple(map(str, names)), columns, rows)


def _flat(names: list[Any], columns: list[list[Any]]) -> tuple[list[Any], list[list[Any]]]:
    """The columns, those of dicts as one for each key: `translation` as `translation.en` and `translation.fr`."""
    found: dict[Any, list[Any]] = {}
    for name, column in zip(names, columns, strict=True):
        keys = dict.fromkeys(key for value in column if isinstance(value, Mapping) for key in value)
        for key in keys:
            found[f"{name}.{key}"] = [value.get(key) if isinstance(value, Mapping) else None for value in column]
        if not keys:
            found[name] = column
    return list(found), list(found.values())


def index_of(source: Any) -> Any:
    """The index of a DataFrame or a Series of pandas; None of anything else."""
    index = getattr(source, "index", None)
    return index if hasattr(index, "tolist") else None


def to_dataframe(records: Iterable[Mapping[str, Any]], index: Any = None) -> Any:
    """Records as a DataFrame of pandas, with an index of the rows or with their numbers.

    Raises:
        WeftError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise WeftError("pandas is not installed", expected="pandas", hint="pip install pandas") from error
    return pandas.DataFrame(list(records), index=index)


def plain_value(value: Any) -> Any:
    """A value of a column as text, None if it is missing, or as a list; a row of a streamed data set as it is."""
    if isinstance(value, Mapping):
        return value
    return cell_text(value) if isinstance(value, str) or not isinstance(value, Iterable) else to_list(value)


def is_series(source: object) -> bool:
    """Whether something is a column, such as a Series, or an array."""
    return any(hasattr(source, name) for name in _TO_LIST)


def to_list(values: Iterable[Any]) -> list[Any]:
    """The values of a column, an array or any other iterable."""
    name = next((name for name in _TO_LIST if hasattr(values, name)), None)
    return list(values) if name is None else list(getattr(values, name)())


_TO_LIST = ("to_list", "to_pylist", "tolist")  # of a Series, of Arrow, of NumPy


def is_missing(value: object) -> bool:
    """Whether a value stands for none: None, NaN, or one of those of pandas."""
    return (
        value is None or (isinstance(value, Real) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def cell_text(value: object) -> str | None:
    """A value of a column as text; None if it is missing or no single value.

    Whole numbers have no decimals, because a column of whole numbers in which some are missing becomes one of floats.

    >>> [cell_text(value) for value in ("a", 1.0, 2.5, True, None, float("nan"), ["a"])]
    ['a', '1', '2.5', 'True', None, None, None]
    """
    if isinstance(value, str):
        return str(value)
    if is_missing(value) or isinstance(value, Iterable):
        return None
    if isinstance(value, Real) and not isinstance(value, Integral):
        number = float(value)
        return str(int(number)) if number.is_integer() else str(number)
    return str(value)


def _column_names(source: Any) -> list[Any] | None:
    """The names of the columns; None if there are none to ask for."""
    if isinstance(source, Mapping):
        if any(hasattr(part, "column_names") for part in source.values()):
            parts = list(map(str, source))
            given = f"the {type(source).__name__} has the parts {', '.join(parts)}"
            raise WeftError(given, expected="one of them", hint=f"data[{parts[0]!r}]")
        return list(source)
    if hasattr(source, "collect"):
        raise WeftError(f"the {type(source).__name__} is not read yet", expected="a DataFrame", hint=".collect()")
    names = getattr(source, "column_names", None)  # of a data set
    names = getattr(source, "columns", None) if names is None else names
    by_name = hasattr(source, "__getitem__") and hasattr(source, "__len__")  # streamed data sets are read by row
    return list(names) if names is not None and by_name else None


def _class_names(values: list[Any], feature: Any) -> list[Any]:
    """The names of classes that a data set stores by number, alone or in lists; -1 is missing."""
    names = getattr(getattr(feature, "feature", feature), "names", None)
    if not isinstance(names, list):
        return values

    def name(value: Any) -> Any:
        if isinstance(value, list):
            return [name(one) for one in value]
        return None if value is None or value < 0 else names[value]

    return [name(value) for value in values]
