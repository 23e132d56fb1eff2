"""Vocabulary: order of ids, dropped tokens, JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import WeftError
from weft.text.vocabulary import EOS, RESERVED, UNK, Vocabulary

counts = st.dictionaries(st.text(max_size=3) | st.sampled_from(RESERVED), st.integers(0, 9), max_size=20)


def test_order_is_count_then_code_points() -> None:
    vocabulary = Vocabulary.build({"b": 2, "中": 2, "a": 2, "文": 7, "Z": 1})
    assert vocabulary.tokens == (*RESERVED, "文", "a", "b", "中", "Z")
    assert vocabulary.counts == (0, 0, 0, 0, 7, 2, 2, 2, 1)
    assert (vocabulary.unk_id, vocabulary.eos_id) == (RESERVED.index(UNK), RESERVED.index(EOS)) == (0, 3)
    assert [vocabulary.tokens[i] for i in range(4)] == list(RESERVED)


def test_order_does_not_depend_on_the_order_of_counting() -> None:
    items = [("c", 1), ("a", 1), ("b", 3)]
    assert Vocabulary.build(dict(items)) == Vocabulary.build(dict(reversed(items)))
    assert hash(Vocabulary.build(dict(items))) == hash(Vocabulary.build(dict(reversed(items))))


def test_dropped_tokens_count_as_unk() -> None:
    counted = {"a": 5, "b": 3, "c": 2, "d": 1, "<eos>": 4, "<unk>": 10}
    rare = Vocabulary.build(counted, min_count=2)
    assert rare.tokens[4:] == ("a", "b", "c")
    assert rare.counts == (11, 0, 0, 4, 5, 3, 2)
    small = Vocabulary.build(counted, max_size=6)
    assert small.tokens[4:] == ("a", "b")
    assert small.counts[0] == 13
    assert len(small) == 6


@given(counts, st.integers(1, 5), st.none() | st.integers(5, 12))
def test_no_count_is_lost(counted: dict[str, int], min_count: int, max_size: int | None) -> None:
    vocabulary = Vocabulary.build(counted, min_count=min_count, max_size=max_size)
    assert sum(vocabulary.counts) == sum(counted.values())
    assert len(vocabulary) <= (max_size or 1000)


@given(counts, st.lists(st.text(max_size=3)))
def test_encode_and_decode(counted: dict[str, int], tokens: list[str]) -> None:
    vocabulary = Vocabulary.build(counted)
    ids = vocabulary.encode(tokens)
    assert ids == [vocabulary.id(token) for token in tokens]
    assert vocabulary.decode(ids) == [token if token in vocabulary else UNK for token in tokens]
    assert vocabulary.unknown(tokens) == list(dict.fromkeys(t for t in tokens if t not in set(vocabulary)))


def test_decode_takes_the_integers_of_arrays() -> None:
    vocabulary = Vocabulary.build({"猫": 2, "狗": 1})
    assert vocabulary.decode(np.array([4, 5, 0], dtype=np.uint16)) == ["猫", "狗", "<unk>"]
    assert vocabulary.encode(iter("狗鸟猫")) == [5, 0, 4]
    assert vocabulary.unknown("鸟狗鱼鸟") == ["鸟", "鱼"]


@given(counts)
def test_json(counted: dict[str, int]) -> None:
    vocabulary = Vocabulary.build(counted)
    again = Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)


def test_is_immutable() -> None:
    with pytest.raises(AttributeError):
        Vocabulary.build({"a": 1}).tokens = ()  # type: ignore[misc]


def test_mistakes() -> None:
    vocabulary = Vocabulary.build({"a": 1})
    with pytest.raises(WeftError, match="min_count is 0"):
        Vocabulary.build({}, min_count=0)
    with pytest.raises(WeftError, match="max_size is 4; expected more than the 4"):
        Vocabulary.build({}, max_size=4)
    with pytest.raises(WeftError, match="no token with id 5; expected 0 to 4"):
        vocabulary.decode([0, 5])
    with pytest.raises(WeftError, match="no token with id -1"):
        vocabulary.decode([-1])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "not a stored vocabulary"),
        ({"tokens": "abc", "counts": [1]}, "not a stored vocabulary"),
        ({"tokens": [*RESERVED, 5], "counts": [0] * 5}, "not a stored vocabulary"),
        ({"tokens": [*RESERVED, "a"], "counts": [0, 0, 0, 0, True]}, "not a stored vocabulary"),
        ({"tokens": [*RESERVED, "猫", "猫"], "counts": [0] * 6}, "has '猫' twice"),
        ({"tokens": [*RESERVED, "<pad>"], "counts": [0] * 5}, "has '<pad>' twice"),
        ({"tokens": [*RESERVED, "a"], "counts": [0] * 4}, "5 tokens and 4 counts"),
        ({"tokens": [*RESERVED, "a"], "counts": [0, 0, 0, 0, -1]}, "0 or more"),
        ({"tokens": ["a"], "counts": [1]}, "begins with 'a'; expected <unk>"),
        ({"tokens": [], "counts": []}, "begins with nothing"),
    ],
)
def test_stored_vocabularies_are_checked(data: dict[str, object], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        Vocabulary.from_json(data)
