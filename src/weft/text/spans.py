"""Spans encoded as tags: a letter gives the position of a token in its span, and the rest of the tag its label.

    BIO      B-PER I-PER O         B begins a span, I continues it
    BIOES    B-PER E-PER O S-LOC   E ends a span, S is a span of one token

BILOU, BMES and BMEWO are BIOES with other letters. Words in a text without spaces are spans of characters, without
labels and without O: B M E S. Tags are read as conlleval reads them, so that every sequence of tags has spans; a
sequence is valid if its spans, written in the scheme, give the same tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from weft.errors import WeftError

OUTSIDE = "O"


class Span(NamedTuple):
    """The tokens from `start` up to, but not including, `end`, with one label such as PER."""

    label: str
    start: int
    end: int


class Scheme(NamedTuple):
    """The letters of a tagging scheme: of the first token of a span, inner tokens, the last one, and a single one."""

    name: str
    begin: str
    inside: str
    end: str
    single: str

    @property
    def marks_end(self) -> bool:
        """Whether the last token of a span has a letter of its own."""
        return self.end != self.inside


SCHEMES = {
    "bio": Scheme("bio", "B", "I", "I", "B"),
    "bioes": Scheme("bioes", "B", "I", "E", "S"),
    "bilou": Scheme("bilou", "B", "I", "L", "U"),
    "bmes": Scheme("bmes", "B", "M", "E", "S"),
    "bmewo": Scheme("bmewo", "B", "M", "E", "W"),
}
WORD_SCHEME = SCHEMES["bmes"]  # of words in a text without spaces

# The BIOES letter of each letter.
_BIOES = {"O": "O", "B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}


def split_tag(tag: str) -> tuple[str, str] | None:
    """Split a tag into its BIOES letter and its label; None if it is not a span tag.

    >>> split_tag("U-creative-work"), split_tag("B"), split_tag("NOUN")
    (('S', 'creative-work'), ('B', ''), None)
    """
    letter, dash, label = tag.partition("-")
    if letter not in _BIOES or (letter == OUTSIDE) != (tag == OUTSIDE) or (dash and not label):
        return None
    return _BIOES[letter], label


def detect_scheme(tags: Iterable[str], locations: Mapping[str, str] | None = None) -> Scheme | None:
    """Detect the scheme of the tags of a corpus; None if they are not span tags.

    Raises:
        WeftError: if some tags are span tags and others are not, or if they belong to different schemes, with the
            locations where they first occur.

    >>> detect_scheme(["O", "B-PER", "I-PER"]).name, detect_scheme(["O", "S-PER"]).name, detect_scheme(["DET", "NOUN"])
    ('bio', 'bioes', None)
    """
    known = locations or {}
    different = [tag for tag in dict.fromkeys(tags) if tag != OUTSIDE]
    dashed = [tag for tag in different if "-" in tag and split_tag(tag)]
    bare = [tag for tag in different if tag not in dashed]
    if not dashed:
        # Single letters could be arbitrary tags; they count as span tags only if B and no other tag is among them.
        if "B" not in bare or not all(split_tag(tag) for tag in bare):
            return None
    elif bare:
        if not any(tag[0] in "BI" for tag in dashed):
            return None  # a part of speech may look like S-X
        raise WeftError(
            f"{_at(bare[0], known)} the tag {bare[0]} is not a span tag, but {_has(dashed[0], known)}",
            expected="all tags to be O or a letter and a label, as B-PER, or none of them",
            hint="`data.scheme=none` to use the tags unchanged",
        )
    for number, tag in enumerate(different):
        if not _schemes(different[: number + 1]):
            other = next(one for one in different if not _schemes([one, tag]))
            raise WeftError(
                f"{_at(tag, known)} the tag {tag} is of another scheme than others: {_has(other, known)}",
                expected="the letters of one scheme: "
                + ", ".join("".join(dict.fromkeys(one[1:])) for one in SCHEMES.values()),
            )
    return _schemes(different)[0]


def _schemes(tags: Sequence[str]) -> list[Scheme]:
    """The schemes that have the letters of all these tags."""
    letters = {tag[0] for tag in tags}
    return [scheme for scheme in SCHEMES.values() if letters <= set(scheme[1:])]


def _at(tag: str, locations: Mapping[str, str]) -> str:
    return f"{locations[tag]}:" if tag in locations else "among the tags,"


def _has(tag: str, locations: Mapping[str, str]) -> str:
    return f"{locations[tag]} has {tag}" if tag in locations else f"there is {tag}"


def tags_to_spans(tags: Sequence[str]) -> list[Span]:
    """Decode tags into spans as conlleval and seqeval do: an I without a B before it begins a span as well.

    >>> tags_to_spans(["I-A", "I-A", "I-B", "B-B", "O"])
    [Span(label='A', start=0, end=2), Span(label='B', start=2, end=3), Span(label='B', start=3, end=4)]
    """
    spans: list[Span] = []
    label, start = "", -1  # of the open span; start is -1 if none is open

    def close(end: int) -> None:
        nonlocal start
        if start >= 0:
            spans.append(Span(label, start, end))
        start = -1

    for index, tag in enumerate(tags):
        parts = split_tag(tag)
        if parts is None:
            raise WeftError(f"the tag is {tag!r}", expected="O, or a letter such as B or I and a label, as B-PER")
        letter, tag_label = parts
        if not (start >= 0 and letter in "IE" and tag_label == label):
            close(index)
            if letter != OUTSIDE:
                label, start = tag_label, index
        if letter in "ES":
            close(index + 1)
    close(len(tags))
    return spans


def spans_to_tags(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Encode spans that do not overlap as the tags of `length` tokens.

    >>> spans_to_tags([Span("A", 0, 2), Span("B", 3, 4)], 4, SCHEMES["bioes"])
    ['B-A', 'E-A', 'O', 'S-B']
    """
    tags = [OUTSIDE] * length
    for label, start, end in spans:
        letters = [scheme.begin, *scheme.inside * (end - start - 2), scheme.end] if end - start > 1 else scheme.single
        tags[start:end] = [f"{letter}-{label}" if label else letter for letter in letters]
    return tags


def repair_tags(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same spans as valid tags of the scheme; valid tags are returned unchanged."""
    return spans_to_tags(tags_to_spans(tags), len(tags), scheme)


def to_bioes(tag: str) -> str:
    """Convert a tag of any scheme to BIOES; a missing label becomes "_".

    >>> to_bioes("M"), to_bioes("U-PER")
    ('I-_', 'S-PER')
    """
    parts = split_tag(tag)
    assert parts is not None
    letter, label = parts
    return letter if letter == OUTSIDE else f"{letter}-{label or '_'}"


def words_to_tags(words: Sequence[str]) -> list[str]:
    """The BMES tags of the characters of words.

    >>> "".join(words_to_tags(["我们", "去", "图书馆"]))
    'BESBME'
    """
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word))
    spans = [Span("", start, end) for start, end in pairwise(ends)]
    return spans_to_tags(spans, ends[-1], WORD_SCHEME)


def tags_to_words(characters: Sequence[str], tags: Sequence[str]) -> list[str]:
    """Join characters to words by their BMES tags.

    >>> tags_to_words("我们去", "BES")
    ['我们', '去']
    """
    boundaries = {span.start for span in tags_to_spans(tags)}
    words: list[str] = []
    for index, character in enumerate(characters):
        if index in boundaries or not words:
            words.append(character)
        else:
            words[-1] += character
    return words
