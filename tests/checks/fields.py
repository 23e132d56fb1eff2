"""The battery of fields: learnt, stored, encoded into a column, decoded, named step by step, and parsed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.data.column import Column, open_column, write_column
from weft.data.field import Field

TYPES = {"string": str, "array": (list, tuple), "number": float}


def fits(value: Any, schema: Any) -> bool:
    """Whether a value has the type, length and alternatives of a JSON schema."""
    if not isinstance(value, TYPES[schema["type"]]) or value not in schema.get("enum", [value]):
        return False
    if schema["type"] != "array":
        return True
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    return least <= len(value) <= most and all(fits(item, schema["items"]) for item in value)


def check_field(
    kind: Any, settings: Any, values: Sequence[Any], value: Any, names: Sequence[str], folder: Path
) -> None:
    """Checks a field that is fitted to values, with one value whose steps have these names."""
    field = kind.fit(values, settings)
    assert isinstance(field, Field), "field: no Field"
    again = kind.from_json(json.loads(json.dumps(field.to_json())))
    assert again.to_json() == field.to_json(), "field: stored and read, it is another one"
    row = np.asarray(again.encode(value))
    assert tuple(field.names(value)) == tuple(names), f"field: the steps are {field.names(value)}, expected {names}"
    assert len(row) == len(names), f"field: {len(row)} steps are stored, and {len(names)} have names"
    write_column(folder / "x.npy", [row, row[:1]], row.dtype)
    column = open_column(folder / "x.npy")
    assert isinstance(column, Column)
    decoded, numeric = field.decode(column[0]), isinstance(value, np.ndarray)
    same = np.allclose(decoded, value, atol=1e-5) if numeric else decoded == value
    assert same, f"field: decodes to {decoded}, expected {value}"
    plain = value.tolist() if numeric else value
    assert fits(plain, field.schema), f"field: the schema refuses {plain}"
    assert not fits(7, field.schema), "field: the schema allows 7"
    typed = value if isinstance(value, str) else json.dumps(list(plain))
    assert tuple(field.names(field.parse(typed))) == tuple(names), f"field: {typed} is parsed as another value"
