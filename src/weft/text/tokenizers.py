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
from weft.text.subword_tokenizer import SubwordTokenizer
from weft.text.word_tokenizer import SpaceTokenizer, WhitespaceTokenizer, WordTokenizer

__all__ = [
    "FORMS",
    "TOKENIZERS",
    "CharTokenizer",
    "Normalizer",
    "SpaceTokenizer",
    "SubwordTokenizer",
    "Tokenizer",
    "WhitespaceTokenizer",
    "WordTokenizer",
    "tokenizer_from_json",
]

FORMS = ("NFC", "NFKC", "none")  # Unicode normalization forms
_NOT_LETTERS = re.compile(r"[^A-Za-z]+")


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
        if self.form not in FORMS:
            raise unknown_name("normalization", self.form, FORMS)

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
        line = self._formed(line)
        # Lower-casing can enable a composition: J with a caron has no code point of its own, j with a caron has.
        return self._formed(line.lower()) if self.lower else line

    def _letters(self, line: str) -> str:
        letters = _NOT_LETTERS.sub(" ", line if line.isascii() else self._formed(line)).strip(" ")
        return letters.lower() if self.lower else letters

    def _formed(self, text: str) -> str:
        if self.form == "none":
            return text
        form: Literal["NFC", "NFKC"] = "NFC" if self.form == "NFC" else "NFKC"
        return unicodedata.normalize(form, text)

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
class CharTokenizer:
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

    def to_json(self) -> dict[str, object]:
        return {"name": self.name}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> CharTokenizer:
        return cls()


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
