"""Fields: what a damaged run can say of one is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.checks.test_fields import CASES, SERIES
from weft.data.values import Values
from weft.errors import WeftError
from weft.text.fields import Tags


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
