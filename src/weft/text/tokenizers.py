"""Normalization and tokenization of text.

Both give the same result on a whole text and line by line, so that a corpus of any size can be streamed through them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from weft.errors import WeftError, unknown_name
from weft.text.config import NORMALIZATIONS
from weft.text.subword_tokenizer import SubwordTokenizer
from weft.text.word_tokenizer import MARK, SpaceTokenizer, StoredByName, WhitespaceTokenizer, WordTokenizer

_NOT_LETTERS = re.compile(r"[^A-Za-z]+")
_MARKS = f"{MARK[:-1]}\uff9e\uff9f]"  # with two Japanese ones that NFKC makes combining
_MANY = 32  # more than any language puts on a letter
_MARK, _MANY_MARKS = re.compile(_MARKS), re.compile(f"{_MARKS}{{{_MANY},}}")


def normalize_unicode(text: str, form: str) -> str:
    """Convert a text to a Unicode normalization form, in linear time whatever the text.

    Python sorts the combining marks of a letter in quadratic time, so many of them are sorted first.

    >>> normalize_unicode("e" + "\u0301\u0323" * 100, "NFC") == "\u1eb9" + "\u0323" * 99 + "\u0301" * 100
    True
    """
    if form == "none":
        return text
    composed: Literal["NFC", "NFKC"] = "NFC" if form == "NFC" else "NFKC"
    if len(text) >= _MANY and _MARK.search(text[::_MANY]):  # where so many stand together, one is at such a place
        text = _MANY_MARKS.sub(lambda found: _sorted_marks(found[0], composed), text)
    return unicodedata.normalize(composed, text)


def _sorted_marks(marks: str, form: Literal["NFC", "NFKC"]) -> str:
    """A run of marks in canonical order."""
    decomposed: Literal["NFD", "NFKD"] = "NFD" if form == "NFC" else "NFKD"
    ordered: list[str] = []
    begin = 0  # of the marks that may change places: not those without a combining class
    for mark in marks:
        for part in unicodedata.normalize(decomposed, mark):
            ordered.append(part)
            if not unicodedata.combining(part):
                ordered[begin:-1] = sorted(ordered[begin:-1], key=unicodedata.combining)
                begin = len(ordered)
    return "".join(ordered[:begin] + sorted(ordered[begin:], key=unicodedata.combining))


@dataclass(frozen=True)
class Normalizer:
    """Unicode normalization, optionally lower-casing, optionally removing everything but English letters.

    Line ends become "\\n". With `letters_only` every run of characters other than A-Z and a-z, line ends included,
    becomes one space, with none at either end; with `lower` as well, the 26 letters and the space remain.

    Args:
        form: a Unicode normalization form: NFC, NFKC or none.
        lower: convert to lower case.
        letters_only: replace everything but English letters by spaces.

    >>> Normalizer(lower=True, letters_only=True)("The Time Machine,\\n\\nby H. G. Wells [1898]\\n")
    'the time machine by h g wells'
    """

    form: str = "NFC"
    lower: bool = False
    letters_only: bool = False

    def __post_init__(self) -> None:
        if self.form not in NORMALIZATIONS:
            raise unknown_name("normalization", self.form, NORMALIZATIONS)

    def __call__(self, text: str) -> str:
        return "".join(self.lines(text.splitlines(keepends=True)))

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Normalize line by line; the concatenated results equal the normalized text.

        This holds because no normalization form and no case mapping depends on characters beyond a line end. With
        `letters_only` each line begins with the space that separates it from the one before, and blank lines vanish.
        """
        if not self.letters_only:
            yield from map(self._line, lines)
            return
        separator = ""
        for line in lines:
            letters = self._letters(line)
            if letters:
                yield separator + letters
                separator = " "

    def _line(self, line: str) -> str:
        if "\r" in line:
            line = line.replace("\r\n", "\n").replace("\r", "\n")
        if line.isascii():  # ASCII text is in every normalization form already
            return line.lower() if self.lower else line
        line = normalize_unicode(line, self.form)
        # Lower-casing can enable a composition: J with a caron has no code point of its own, j with a caron has.
        return normalize_unicode(line.lower(), self.form) if self.lower else line

    def _letters(self, line: str) -> str:
        letters = _NOT_LETTERS.sub(" ", line if line.isascii() else normalize_unicode(line, self.form)).strip(" ")
        return letters.lower() if self.lower else letters

    def to_json(self) -> dict[str, object]:
        return {"form": self.form, "lower": self.lower, "letters_only": self.letters_only}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Normalizer:
        form, lower, letters_only = (data.get(key) for key in ("form", "lower", "letters_only"))
        if not (isinstance(form, str) and isinstance(lower, bool) and isinstance(letters_only, bool)):
            raise WeftError(
                f"a stored normalizer is {dict(data)}", expected="form (str), lower and letters_only (bool)"
            )
        return cls(form, lower, letters_only)


class Tokenizer(Protocol):
    """Splits text into tokens and joins tokens to text.

    The tokens of a text are the tokens of its lines: no token extends across a line end.
    """

    @property
    def name(self) -> str:
        """Its key in TOKENIZERS."""

    @property
    def line_end(self) -> str:
        """The token of a line end."""

    def split(self, text: str) -> list[str]:
        """Split a text into tokens."""

    def join(self, tokens: Sequence[str]) -> str:
        """Join tokens to a text that `split` splits into the same tokens."""

    def to_json(self) -> dict[str, object]:
        """Plain data from which `tokenizer_from_json` restores the tokenizer."""

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Tokenizer:
        """The inverse of `to_json`."""


@dataclass(frozen=True)
class CharTokenizer(StoredByName):
    """Every Unicode code point is a token; `join` is the exact inverse of `split`.

    >>> CharTokenizer().split("人 a")
    ['人', ' ', 'a']
    """

    name: ClassVar[str] = "char"
    line_end: ClassVar[str] = "\n"

    def split(self, text: str) -> list[str]:
        return list(text)

    def join(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)


TOKENIZERS: dict[str, type[Tokenizer]] = {
    "char": CharTokenizer,
    "word": WordTokenizer,
    "space": SpaceTokenizer,
    "whitespace": WhitespaceTokenizer,
    "subword": SubwordTokenizer,
}


def tokenizer_from_json(data: Mapping[str, object]) -> Tokenizer:
    """Restore a tokenizer from its `to_json`."""
    name = data.get("name")
    if not isinstance(name, str) or name not in TOKENIZERS:
        raise unknown_name("tokenizer", str(name), TOKENIZERS)
    return TOKENIZERS[name].from_json(data)
