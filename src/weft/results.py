"""Results as plain data with names: dataclasses that become JSON and tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.text.dataframes import to_dataframe

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class PlainResult:
    """Base class of results. Fields are names (strings), numbers, numpy arrays, and tuples and dicts of these."""

    probe: ClassVar[str]  # what it is, the first entry of its JSON

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, strings and numbers, ready for JSON. A value that is not finite is None."""
        return {"probe": self.probe, **self._fields()}

    def records(self) -> Iterator[dict[str, Any]]:
        """One row for each value, with the names of what it is a value of, such as its token, layer and unit."""
        yield self._fields()  # a result that is a single row

    def _fields(self) -> dict[str, Any]:
        return {field.name: to_plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def to_dataframe(self) -> Any:
        """The records as a pandas DataFrame.

        Raises:
            WeftError: pandas is not installed.
        """
        return to_dataframe(self.records())


def to_plain(value: Any) -> Any:
    """Dataclasses, named tuples, arrays and nests of them as dicts, lists and numbers."""
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if dataclasses.is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(part) for part in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
