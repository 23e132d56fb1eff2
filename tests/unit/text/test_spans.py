"""Span schemes: decoding as conlleval does, encoding, repair, and detection of the scheme."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import WeftError
from weft.text.spans import (
    SCHEMES,
    Span,
    detect_scheme,
    repair_tags,
    spans_to_tags,
    split_tag,
    tags_to_spans,
    tags_to_words,
    to_bioes,
    words_to_tags,
)

ANY_TAG = st.one_of(st.just("O"), st.builds("{}-{}".format, st.sampled_from("BIESMLUW"), st.sampled_from("XY")))


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", []),
        ("B-X I-X O", [("X", 0, 2)]),
        ("O I-X O", [("X", 1, 2)]),  # I after O begins a span
        ("I-X I-X", [("X", 0, 2)]),
        ("B-X I-Y", [("X", 0, 1), ("Y", 1, 2)]),  # another kind is another span
        ("I-X I-Y I-X", [("X", 0, 1), ("Y", 1, 2), ("X", 2, 3)]),
        ("B-X B-X", [("X", 0, 1), ("X", 1, 2)]),  # side by side
        ("B-X I-X B-X I-X", [("X", 0, 2), ("X", 2, 4)]),
        ("S-X S-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-X E-X E-X", [("X", 0, 2), ("X", 2, 3)]),  # nothing goes on after an end
        ("B-X E-X I-X", [("X", 0, 2), ("X", 2, 3)]),
        ("S-X I-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-X I-X S-X", [("X", 0, 2), ("X", 2, 3)]),
        ("B-X I-X O E-X", [("X", 0, 2), ("X", 3, 4)]),
        ("B-X L-X U-Y", [("X", 0, 2), ("Y", 2, 3)]),
        ("B I O B", [("", 0, 2), ("", 3, 4)]),
        ("B-a-b I-a-b I-a", [("a-b", 0, 2), ("a", 2, 3)]),
    ],
)
def test_tags_to_spans(tags, spans):
    assert tags_to_spans(tags.split()) == [Span(*span) for span in spans]


def test_invalid_tag():
    with pytest.raises(WeftError, match="'NOUN'"):
        tags_to_spans(["B-X", "NOUN"])
    assert split_tag("O-X") is None
    assert split_tag("B-") is None
    assert split_tag("") is None


@given(st.lists(ANY_TAG, max_size=8), st.sampled_from(list(SCHEMES.values())))
def test_repair_keeps_the_spans_and_is_idempotent(tags, scheme):
    good = repair_tags(tags, scheme)
    assert tags_to_spans(good) == tags_to_spans(tags)
    assert repair_tags(good, scheme) == good
    assert {tag[0] for tag in good} <= {"O", *scheme[1:]}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from("XY"))),
    st.sampled_from(list(SCHEMES.values())),
)
def test_spans_survive_tags(steps, scheme):
    spans, end = [], 0
    for gap, size, kind in steps:
        spans.append(Span(kind, end + gap, end + gap + size))
        end += gap + size
    assert tags_to_spans(spans_to_tags(spans, end + 1, scheme)) == spans


@pytest.mark.parametrize(
    ("tags", "name"),
    [
        ("O B-X I-X", "bio"),
        ("I-X O", "bio"),
        ("B-X", "bio"),
        ("S-X O", "bioes"),
        ("B-X I-X E-X", "bioes"),
        ("B-X L-X U-X", "bilou"),
        ("B-X M-X E-X O", "bmes"),
        ("B M E S", "bmes"),
        ("B I O", "bio"),
        ("W-X B-X", "bmewo"),
        ("DET NOUN", None),
        ("O", None),
        ("S E", None),  # letters, but no beginning: some other tags
        ("NN S-LRB", None),
    ],
)
def test_detect_scheme(tags, name):
    scheme = detect_scheme(tags.split())
    assert (scheme and scheme.name) == name


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ("B-X O E-X L-X E-X", "f:4: the tag L-X is of another scheme than others: f:3 has E-X"),
        ("S-X M-X B-X I-X", "f:4: the tag I-X is of another scheme than others: f:2 has M-X"),
        ("B-X O PERSON X", "f:3: the tag PERSON is not a span tag, but f:1 has B-X"),
        ("X B-X", "f:1: the tag X is not a span tag, but f:2 has B-X"),
    ],
)
def test_mixed_tags_are_refused(tags, words):
    """The first that does not fit is named, and one that it does not fit to."""
    where = {}
    for line, tag in enumerate(tags.split(), start=1):
        where.setdefault(tag, f"f:{line}")
    with pytest.raises(WeftError) as caught:
        detect_scheme(tags.split(), where)
    assert str(caught.value).startswith(words)


def test_every_mix_of_schemes_has_two_conflicting_letters():
    """So that the error can always name a tag that does not fit beside the other."""
    letters = {letter for scheme in SCHEMES.values() for letter in scheme[1:]}
    for size in range(1, len(letters) + 1):
        for some in itertools.permutations(letters, size) if size < 4 else itertools.combinations(letters, size):
            tags = [f"{letter}-X" for letter in some]
            if any(set(some) <= set(scheme[1:]) for scheme in SCHEMES.values()):
                assert detect_scheme(tags) is not None
            else:
                with pytest.raises(WeftError, match="is of another scheme than others: there is"):
                    detect_scheme(tags)


@given(st.lists(st.text("我们去图", min_size=1, max_size=5)))
def test_words_survive_tags(words):
    tags = words_to_tags(words)
    assert tags_to_words("".join(words), tags) == words
    assert {to_bioes(tag) for tag in tags} <= {"B-_", "I-_", "E-_", "S-_"}


@given(st.text("abc", min_size=1, max_size=9), st.data())
def test_any_tags_of_characters_make_words(text, data):
    tags = data.draw(st.lists(st.sampled_from("BMES"), min_size=len(text), max_size=len(text)))
    words = tags_to_words(text, tags)
    assert "".join(words) == text
    begins = {sum(map(len, words[:number])) for number in range(len(words))}
    assert begins == {span.start for span in tags_to_spans(tags)}
