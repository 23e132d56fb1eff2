"""A text with blanks: the text between them, and its encoding.

A blank is written `___`: three underscores or more, wide ones (＿) too, or `_ _ _` with spaces between them. `<mask>`
and `[MASK]`, as other models write a blank, are the same as `___`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from weft.errors import WeftError
from weft.text.subword_tokenizer import SubwordTokenizer
from weft.text.text_field import Text

MASK = re.compile(r"<mask>|\[MASK\]")
BLANKS = re.compile(rf"_{{3,}}|＿{{3,}}|(?<!_)_(?: _){{2,}}(?!_)|{MASK.pattern}")
# Stands for a blank during normalization: a letter, so that a space beside it is kept. Nothing combines with a q.
_LETTER = "q"


@dataclass(frozen=True)
class Blanked:
    """The text before, between and after the blanks as it was given, and the number of underscores of each blank."""

    pieces: tuple[str, ...]
    underscores: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> Blanked:
        """
        >>> Blanked.read("i ___ hungry, i could eat _____ a pig")
        Blanked(pieces=('i ', ' hungry, i could eat ', ' a pig'), underscores=(3, 5))
        """
        blanks = BLANKS.findall(text)
        if not blanks:
            raise WeftError(
                f"there is no blank in {text!r}",
                expected="___ (three underscores) for each missing part",
                hint='"i ___ hungry"',
            )
        return cls(
            tuple(BLANKS.split(text)),
            tuple(3 if MASK.match(blank) else sum(c in "_＿" for c in blank) for blank in blanks),
        )

    def widths(self, tokens: int) -> list[int]:
        """The number of tokens of each blank: `tokens`, or as many as it has underscores if that is 0."""
        if tokens < 0:
            raise WeftError(f"tokens is {tokens}", expected="1 or more, or 0 for its underscores")
        return [tokens or count for count in self.underscores]

    def ids(self, text_field: Text, blank: int, tokens: int = 1) -> list[int]:
        """The token ids of the text, with the id `blank` for every missing token."""
        found: list[int] = []
        for piece, width in zip(self._read_pieces(text_field), [*self.widths(tokens), 0], strict=True):
            found += text_field.vocabulary.encode(text_field.tokenizer.split(piece)) + [blank] * width
        return found

    def unknown(self, text_field: Text) -> list[str]:
        """The distinct tokens around the blanks that are not in the vocabulary."""
        pieces = self._read_pieces(text_field)
        return list(
            dict.fromkeys(
                token for piece in pieces for token in text_field.vocabulary.unknown(text_field.tokenizer.split(piece))
            )
        )

    def filled(self, text_field: Text, fills: Sequence[str]) -> str:
        """The text as it was given, with the blanks filled."""
        parts = [part for pair in zip(self._spaced(text_field), [*fills, ""], strict=True) for part in pair]
        return "".join(parts)

    def _read_pieces(self, text_field: Text) -> list[str]:
        """The normalized pieces, each as if the blanks were letters."""
        found = []
        for number, piece in enumerate(self._spaced(text_field)):
            before, after = _LETTER * (number > 0), _LETTER * (number < len(self.underscores))
            normal = text_field.normalizer(before + piece + after)
            found.append(normal[len(before) : len(normal) - len(after)])
        return found

    def _spaced(self, text_field: Text) -> list[str]:
        """The pieces; where tokens include the space before them, without the space before a blank."""
        if not isinstance(text_field.tokenizer, SubwordTokenizer):
            return list(self.pieces)
        return [*(piece.removesuffix(" ") for piece in self.pieces[:-1]), self.pieces[-1]]
