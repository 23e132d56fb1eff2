"""Fields: one battery for texts, labels, tags and values; what a damaged run can say of one is refused."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from weft.data.column import Column, open_column, write_column
from weft.data.field import Field
from weft.data.values import Values
from weft.errors import WeftError
from weft.text.config import TextConfig
from weft.text.fields import Label, Tags
from weft.text.spans import SCHEMES
from weft.text.text_field import Text

SERIES = np.random.default_rng(0).normal(3.0, 7.0, (9, 2))
CASES = {
    "text": (Text, TextConfig(tokenizer="word", min_count=1), ["the cat sat", "a cat"], "the cat", ("the", "cat")),
    "characters": (Text, TextConfig(), ["猫 cat"], "cat猫", ("c", "a", "t", "猫")),
    "label": (Label, None, ["no", "yes", "no"], "yes", ("yes",)),
    "tags": (Tags, None, [["DET", "N"], ["V"]], ("N", "V"), ("N", "V")),
    "spans": (Tags, SCHEMES["bio"], [["B-X", "O"]], ("O", "B-X", "I-X"), ("O", "B-X", "I-X")),
    "values": (Values, ["speed", "load"], [SERIES, SERIES[:3]], SERIES[:4], ("1", "2", "3", "4")),
}
TYPES = {"string": str, "array": (list, tuple), "number": float}


def fits(value, schema):
    """Whether a value has the type, length and alternatives of a JSON schema."""
    if not isinstance(value, TYPES[schema["type"]]) or value not in schema.get("enum", [value]):
        return False
    if schema["type"] != "array":
        return True
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    return least <= len(value) <= most and all(fits(item, schema["items"]) for item in value)


@pytest.mark.parametrize("case", CASES)
def test_a_field(case, tmp_path):
    kind, settings, values, value, names = CASES[case]
    field = kind.fit(values, settings)
    assert isinstance(field, Field)
    again = kind.from_json(json.loads(json.dumps(field.to_json())))
    assert again.to_json() == field.to_json()
    row = np.asarray(again.encode(value))
    assert field.names(value) == names
    assert len(row) == len(names)
    write_column(tmp_path / "x.npy", [row, row[:1]], row.dtype)
    column = open_column(tmp_path / "x.npy")
    assert isinstance(column, Column)
    decoded = field.decode(column[0])
    assert np.allclose(decoded, value, atol=1e-5) if case == "values" else decoded == value
    plain = np.asarray(value).tolist() if case == "values" else value
    assert fits(plain, field.schema)
    assert not fits(7, field.schema)
    typed = value if isinstance(value, str) else json.dumps(list(plain))
    assert field.names(field.parse(typed)) == names


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("damage", [None, [], {}, 7, "x", [None], float("nan")])
def test_a_damaged_field(case, damage):
    kind, settings, values, *_ = CASES[case]
    stored = kind.fit(values, settings).to_json()
    for key in stored:
        if stored[key] == damage:
            continue
        changed = {**copy.deepcopy(stored), key: damage}
        try:
            field = kind.from_json(changed)
        except (WeftError, ValueError, TypeError, LookupError, AttributeError):
            continue
        assert kind is Tags, (key, damage)  # may have no scheme and no tags
        assert not damage
        assert field.schema["type"] == "array"


def test_values_are_standardized_and_refused_by_name():
    field = Values.fit([SERIES], ["speed", "load"])
    stored = field.encode(SERIES)
    assert stored.dtype == np.float32
    assert np.allclose(stored.mean(0), 0, atol=1e-6)
    assert np.allclose(stored.std(0), 1, atol=1e-6)
    assert Values.fit([[1.0, 1.0]]).encode([3.0]).tolist() == [[2.0]]  # one channel that does not change
    with pytest.raises(WeftError, match=r"shape \(1, 3\); expected finite numbers, 2 in each step \(speed, load\)"):
        field.encode([[1.0, 2.0, 3.0]])
    for value in ([[1.0, float("nan")]], [["a", "b"]], "word"):
        with pytest.raises(WeftError, match="a value "):
            field.encode(value)
    with pytest.raises(WeftError, match="is not JSON"):
        field.parse("1, 2")
    with pytest.raises(WeftError, match="not the same channels"):
        Values.fit([[[1.0]], [[1.0, 2.0]]])
