"""The contract of a field: one kind of value that an example has, such as a text, a label, or a series of numbers.

A field is learnt from data, turns values into rows of columns and back, names the steps of a value, and is stored with
a run in fields.json. What shows the inside of a model asks the field for the names of its steps, and for nothing else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from weft.data.column import Array
from weft.errors import WeftError

FieldValue = TypeVar("FieldValue")


class Field(ABC, Generic[FieldValue]):
    """One kind of value that an example has."""

    @classmethod
    @abstractmethod
    def fit(cls, values: Iterable[FieldValue], settings: Any = None) -> Any:
        """The field of given values, such as the vocabulary of texts.

        Args:
            values: the values to train on.
            settings: those of the field's kind, if it has any.
        """

    @abstractmethod
    def encode(self, value: FieldValue) -> Sequence[int] | Array:
        """The steps of a value (T, ...), a row of a column."""

    @abstractmethod
    def decode(self, row: Any) -> FieldValue:
        """The value of a row: the inverse of `encode`, as far as that loses nothing."""

    @abstractmethod
    def names(self, value: FieldValue) -> tuple[str, ...]:
        """The name of each of the T steps of a value: its token, its label, its time."""

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON schema of a value."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain data from which `from_json` restores the field."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: Mapping[str, Any]) -> Any:
        """The inverse of `to_json`. A ValueError, KeyError or TypeError says that the data is not that of a field."""

    def parse(self, text: str) -> FieldValue:
        """A value from what somebody types: JSON, unless the field knows better."""
        try:
            value: FieldValue = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise WeftError(f"{text[:60]!r} is not JSON: {error}", expected=f"a value as {self.schema}") from error
        return value


def fields_content(fields: Mapping[str, Any], **reading: Any) -> dict[str, Any]:
    """The content of a run's fields.json.

    Args:
        fields: the fields of its examples by name; each has `to_json`.
        reading: how the data were read: `columns` of a table, a `description`, `notes`.
    """
    return {"fields": {name: field.to_json() for name, field in fields.items()}, "reading": reading}
