"""A text with blanks in it: where they are, and what stands between them.

A blank is written `___`: three underscores or more, wide ones (＿) too, or `_ _ _` with spaces between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from weft.errors import WeftError
from weft.text.codec import Codec
from weft.text.subword_tokenizer import SubwordTokenizer

_BLANK = re.compile(r"_{3,}|＿{3,}|(?<!_)_(?: _){2,}(?!_)")
# What a blank is while a text is normalised: a letter, so that a space beside it stays. No mark merges with a q.
_LETTER = "q"


@dataclass(frozen=True)
class Blanked:
    """The text before, between and after the blanks, as it was given, and how many underscores each blank has."""

    pieces: tuple[str, ...]
    underscores: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> Blanked:
        """
        >>> Blanked.read("i ___ hungry, i could eat _____ a pig")
        Blanked(pieces=('i ', ' hungry, i could eat ', ' a pig'), underscores=(3, 5))
        """
        blanks = _BLANK.findall(text)
        if not blanks:
            raise WeftError(
                f"there is no blank in {text!r}",
                expected="___ (three underscores) where something is missing",
                hint='"i ___ hungry"',
            )
        return cls(tuple(_BLANK.split(text)), tuple(sum(c in "_＿" for c in blank) for blank in blanks))

    def widths(self, tokens: int) -> list[int]:
        """How many tokens each blank stands for: `tokens`, or as many as it has underscores if that is 0."""
        if tokens < 0:
            raise WeftError(f"a blank is to stand for {tokens} tokens", expected="1 or more, or 0 for its underscores")
        return [tokens or count for count in self.underscores]

    def ids(self, codec: Codec, blank: int, tokens: int = 1) -> list[int]:
        """The text as a model reads it, with the id `blank` for every token that is missing."""
        found: list[int] = []
        for piece, width in zip(self._read_pieces(codec), [*self.widths(tokens), 0], strict=True):
            found += codec.vocabulary.encode(codec.tokenizer.split(piece)) + [blank] * width
        return found

    def unknown(self, codec: Codec) -> list[str]:
        """The different tokens around the blanks that have no number."""
        pieces = self._read_pieces(codec)
        return list(
            dict.fromkeys(token for piece in pieces for token in codec.vocabulary.unknown(codec.tokenizer.split(piece)))
        )

    def filled(self, codec: Codec, fills: Sequence[str]) -> str:
        """The text as it was given, with these in place of the blanks."""
        parts = [part for pair in zip(self._spaced(codec), [*fills, ""], strict=True) for part in pair]
        return "".join(parts)

    def _read_pieces(self, codec: Codec) -> list[str]:
        """The pieces normalised, each as if letters stood where the blanks are."""
        found = []
        for number, piece in enumerate(self._spaced(codec)):
            before, after = _LETTER * (number > 0), _LETTER * (number < len(self.underscores))
            normal = codec.normalizer(before + piece + after)
            found.append(normal[len(before) : len(normal) - len(after)])
        return found

    def _spaced(self, codec: Codec) -> list[str]:
        """The pieces; where tokens carry the space before them, without the one before a blank."""
        if not isinstance(codec.tokenizer, SubwordTokenizer):
            return list(self.pieces)
        return [*(piece.removesuffix(" ") for piece in self.pieces[:-1]), self.pieces[-1]]
