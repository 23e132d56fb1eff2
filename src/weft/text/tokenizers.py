"""Text into tokens and back: what is kept of a text, and where it is cut.

A Normalizer says what is kept; a Tokenizer cuts. Both work on a whole text or on its lines one after the
other with the same result, so that a corpus of any size passes through them as a stream.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from weft.errors import WeftError, unknown_name
from weft.text.subword_tokenizer import SubwordTokenizer
from weft.text.word_tokenizer import SpaceTokenizer, WordTokenizer

__all__ = [
    "FORMS",
    "TOKENIZERS",
    "CharTokenizer",
    "Normalizer",
    "SpaceTokenizer",
    "SubwordTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "tokenizer_from_json",
]

FORMS = ("NFC", "NFKC", "none")
_NOT_LETTERS = re.compile(r"[^A-Za-z]+")


@dataclass(frozen=True)
class Normalizer:
    """What is kept of a text: one Unicode form, perhaps lower case, perhaps the English letters only.

    Line ends become "\\n". With `letters_only` every run of anything but A-Z and a-z becomes one space, line ends
    included, and none stands at either end; with `lower` that leaves the 26 letters and the space.

    >>> Normalizer(lower=True, letters_only=True)("The Time Machine,\\n\\nby H. G. Wells [1898]\\n")
    'the time machine by h g wells'
    """

    form: str = "NFC"
    lower: bool = False
    letters_only: bool = False

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise unknown_name("normal form", self.form, FORMS)

    def __call__(self, text: str) -> str:
        return "".join(self.lines(text.splitlines(keepends=True)))

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Normalise line by line; the results, put one after the other, are the normalised text.

        That holds because no normal form and no change of case looks across a line end. The lines of
        `letters_only` carry the space that divides them in front, and blank ones vanish.
        """
        if not self.letters_only:
            yield from map(self._line, lines)
            return
        divider = ""
        for line in lines:
            letters = self._letters(line)
            if letters:
                yield divider + letters
                divider = " "

    def _line(self, line: str) -> str:
        if "\r" in line:
            line = line.replace("\r\n", "\n").replace("\r", "\n")
        if line.isascii():  # every ASCII text is already in every normal form
            return line.lower() if self.lower else line
        line = self._formed(line)
        # Lower case can open a new composition: J with a caron has no single code point, j with one has.
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
                f"a stored normalizer is {dict(data)}", expected="form (text), lower and letters_only (true or false)"
            )
        return cls(form, lower, letters_only)


class Tokenizer(Protocol):
    """Cuts text into tokens and puts tokens together again.

    The tokens of a text are those of its lines, one after the other: no token reaches across a line end.
    """

    @property
    def name(self) -> str:
        """Its key in TOKENIZERS."""

    def split(self, text: str) -> list[str]:
        """The tokens of `text`, in order."""

    def join(self, tokens: Sequence[str]) -> str:
        """A text that reads as the tokens do, and that `split` cuts into them again."""

    def to_json(self) -> dict[str, object]:
        """Plain data from which `tokenizer_from_json` makes an equal tokenizer."""

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Tokenizer:
        """The other direction of `to_json`."""


@dataclass(frozen=True)
class CharTokenizer:
    """Every code point is a token; joining is the exact inverse of splitting.

    >>> CharTokenizer().split("人 a")
    ['人', ' ', 'a']
    """

    name: ClassVar[str] = "char"

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
    "subword": SubwordTokenizer,
}


def tokenizer_from_json(data: Mapping[str, object]) -> Tokenizer:
    """The tokenizer whose `to_json` is `data`."""
    name = data.get("name")
    if not isinstance(name, str) or name not in TOKENIZERS:
        raise unknown_name("tokenizer", str(name), TOKENIZERS)
    return TOKENIZERS[name].from_json(data)
