"""Spans as tags: what begins, goes on and ends is written in the letter before each tag's kind.

    BIO      B-PER I-PER O         a span begins with B and goes on with I
    BIOES    B-PER E-PER O S-LOC   what is begun is ended with E, and a span of one is S

Others write BIOES with other letters (BILOU, BMES, BMEWO). Words in a text without spaces are spans, too, without a
kind and with nothing outside: B M E S. Reading is as conlleval does it, so any sequence of tags has spans; a sequence
is broken if writing its spans gives other tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from weft.errors import WeftError

OUTSIDE = "O"


class Span(NamedTuple):
    """A stretch of places of one kind, from `begin` to before `end`."""

    kind: str
    begin: int
    end: int


class Scheme(NamedTuple):
    """The letters of a way to write spans: of a span's first place, those inside, its last, and of a span of one."""

    name: str
    begin: str
    inside: str
    end: str
    single: str

    @property
    def closes(self) -> bool:
        """Whether a span's end can be seen at its last place."""
        return self.end != self.inside


SCHEMES = {
    "bio": Scheme("bio", "B", "I", "I", "B"),
    "bioes": Scheme("bioes", "B", "I", "E", "S"),
    "bilou": Scheme("bilou", "B", "I", "L", "U"),
    "bmes": Scheme("bmes", "B", "M", "E", "S"),
    "bmewo": Scheme("bmewo", "B", "M", "E", "W"),
}
WORDS = SCHEMES["bmes"]  # how words are written on characters

# What each letter means, in the letters of BIOES.
_MEANING = {"O": "O", "B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}


def split_tag(tag: str) -> tuple[str, str] | None:
    """The letter of BIOES that a tag's own letter stands for, and its kind; None if it is no tag of a span.

    >>> split_tag("U-creative-work"), split_tag("B"), split_tag("NOUN")
    (('S', 'creative-work'), ('B', ''), None)
    """
    letter, dash, kind = tag.partition("-")
    if letter not in _MEANING or (letter == OUTSIDE) != (tag == OUTSIDE) or (dash and not kind):
        return None
    return _MEANING[letter], kind


def find_scheme(tags: Iterable[str], where: Mapping[str, str] | None = None) -> Scheme | None:
    """The scheme that the tags are written in; None if they are not spans; an error if they are of several.

    `where` tells of each tag where it stands first, for the error.

    >>> find_scheme(["O", "B-PER", "I-PER"]).name, find_scheme(["O", "S-PER"]).name, find_scheme(["DET", "NOUN"])
    ('bio', 'bioes', None)
    """
    places = where or {}
    different = [tag for tag in dict.fromkeys(tags) if tag != OUTSIDE]
    dashed = [tag for tag in different if "-" in tag and split_tag(tag)]
    bare = [tag for tag in different if tag not in dashed]
    if not dashed:
        # Letters alone could be any tags; only with B among them and nothing else are they taken for spans.
        if "B" not in bare or not all(split_tag(tag) for tag in bare):
            return None
    elif bare:
        if not any(tag[0] in "BI" for tag in dashed):
            return None  # a part of speech may look like S-X by chance
        raise WeftError(
            f"{_at(bare[0], places)} the tag {bare[0]} is no tag of a span, but {_has(dashed[0], places)}",
            expected="all of them O or a letter and a kind, as B-PER, or none of them",
            hint="--set data.scheme=none to take them as they are",
        )
    for number, tag in enumerate(different):
        if not _schemes(different[: number + 1]):
            other = next(one for one in different if not _schemes([one, tag]))
            raise WeftError(
                f"{_at(tag, places)} the tag {tag} is of another scheme than others: {_has(other, places)}",
                expected="the letters of one: "
                + ", ".join("".join(dict.fromkeys(one[1:])) for one in SCHEMES.values()),
            )
    return _schemes(different)[0]


def _schemes(tags: Sequence[str]) -> list[Scheme]:
    """The schemes that have the letters of all these tags."""
    letters = {tag[0] for tag in tags}
    return [scheme for scheme in SCHEMES.values() if letters <= set(scheme[1:])]


def _at(tag: str, places: Mapping[str, str]) -> str:
    return f"{places[tag]}:" if tag in places else "among the tags,"


def _has(tag: str, places: Mapping[str, str]) -> str:
    return f"{places[tag]} has {tag}" if tag in places else f"there is {tag}"


def read_spans(tags: Sequence[str]) -> list[Span]:
    """The spans of a sequence of tags, as conlleval and seqeval see them: I without a beginning begins one, too.

    >>> read_spans(["I-A", "I-A", "I-B", "B-B", "O"])
    [Span(kind='A', begin=0, end=2), Span(kind='B', begin=2, end=3), Span(kind='B', begin=3, end=4)]
    """
    spans: list[Span] = []
    kind, begin = "", -1  # of the span that is open, if begin is not -1

    def close(end: int) -> None:
        nonlocal begin
        if begin >= 0:
            spans.append(Span(kind, begin, end))
        begin = -1

    for place, tag in enumerate(tags):
        parts = split_tag(tag)
        if parts is None:
            raise WeftError(f"the tag is {tag!r}", expected="O, or a letter such as B or I and a kind, as B-PER")
        letter, now = parts
        if not (begin >= 0 and letter in "IE" and now == kind):
            close(place)
            if letter != OUTSIDE:
                kind, begin = now, place
        if letter in "ES":
            close(place + 1)
    close(len(tags))
    return spans


def write_spans(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The tags of spans that do not overlap, over `length` places.

    >>> write_spans([Span("A", 0, 2), Span("B", 3, 4)], 4, SCHEMES["bioes"])
    ['B-A', 'E-A', 'O', 'S-B']
    """
    tags = [OUTSIDE] * length
    for kind, begin, end in spans:
        letters = [scheme.begin, *scheme.inside * (end - begin - 2), scheme.end] if end - begin > 1 else scheme.single
        tags[begin:end] = [f"{letter}-{kind}" if kind else letter for letter in letters]
    return tags


def mended(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same spans, written as the scheme has it; the tags themselves if they are not broken."""
    return write_spans(read_spans(tags), len(tags), scheme)


def canonical(tag: str) -> str:
    """A tag of any scheme in the letters of BIOES, with some kind.

    >>> canonical("M"), canonical("U-PER")
    ('I-_', 'S-PER')
    """
    parts = split_tag(tag)
    assert parts is not None
    letter, kind = parts
    return letter if letter == OUTSIDE else f"{letter}-{kind or '_'}"


def word_tags(words: Sequence[str]) -> list[str]:
    """B M E S for the characters of words.

    >>> "".join(word_tags(["我们", "去", "图书馆"]))
    'BESBME'
    """
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word))
    spans = [Span("", begin, end) for begin, end in pairwise(ends)]
    return write_spans(spans, ends[-1], WORDS)


def join_words(characters: Sequence[str], tags: Sequence[str], starts: Iterable[int] = ()) -> list[str]:
    """The words that the tags of characters tell; at `starts` one begins whatever the tags say.

    >>> join_words("我们去", "BES"), join_words("我们去", "BMM", [2])
    (['我们', '去'], ['我们', '去'])
    """
    begins = {span.begin for span in read_spans(tags)} | set(starts)
    words: list[str] = []
    for place, character in enumerate(characters):
        if place in begins or not words:
            words.append(character)
        else:
            words[-1] += character
    return words
