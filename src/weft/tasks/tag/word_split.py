"""Splits raw text into the words that a tagger assigns tags to.

The word tokenizer splits into words, numbers and marks, and keeps URLs and @mentions whole. Words of the training
sentences take precedence: `U.S.` and `...` may be one word, `don't` may be `do` and `n't`. Or text is split at spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from weft.errors import unknown_name
from weft.text.web import WHOLE
from weft.text.word_tokenizer import MARK, WordTokenizer

LONGEST_PIECE = 100  # characters between spaces within which words of training are looked for

_APOSTROPHE = re.compile("['’]")
_NOT = re.compile(r"n['’]t$", re.IGNORECASE)
_MARKS = rf"((?!{MARK})[^\w\s])\1*"  # of punctuation: one, or the same again
_AT_END, _AT_BEGINNING = re.compile(rf"{_MARKS}$"), re.compile(rf"{_MARKS}(?!{MARK})")

Count = Callable[[str], int]  # how often a word was seen in training


class Split(Protocol):
    """Cuts a text into words."""

    def __call__(self, text: str) -> list[str]: ...


class PrintedWords:
    """What print shows to be a word; what stands between spaces is one if training had it as one.

    >>> seen = {"U.S.": 9, "do": 5, "n't": 5, "'s": 3, "...": 2, "us": 1, "sat.": 1, "sat": 4}
    >>> split = PrintedWords(lambda word: seen.get(word, 0))
    >>> split("Don't ask @weft (of the U.S.)... It sat. See http://t.co/a, weft's #page.")
    ['Do', "n't", 'ask', '@weft', '(', 'of', 'the', 'U.S.', ')', '...', 'It', 'sat', '.', 'See', 'http://t.co/a', ',', \
'weft', "'s", '#page', '.']
    """

    def __init__(self, count: Count) -> None:
        self.count = count
        self.print = WordTokenizer().split
        self.words_of = lru_cache(maxsize=1 << 16)(self._words)  # most pieces come again and again

    def __call__(self, text: str) -> list[str]:
        return [word for piece in text.split() for word in self.words_of(piece)]

    def _words(self, piece: str) -> list[str]:
        if self._whole(piece):
            return [piece]
        words: list[str] = []
        done = 0
        for found in WHOLE.finditer(piece):
            words += [*self._cut(piece[done : found.start()]), found[0]]
            done = found.end()
        return words + self._cut(piece[done:])

    def _whole(self, piece: str) -> bool:
        """Whether a piece was a word in training, and more often so than without its final mark."""
        seen = self.count(piece) if len(piece) <= LONGEST_PIECE else 0
        stopped = not piece[-1].isalnum() and piece[-2:-1].isalnum()
        return seen > (self.count(piece[:-1]) if stopped else 0)

    def _cut(self, piece: str) -> list[str]:
        """A piece without addresses: marks are taken off both ends until what is left was a word in training."""
        if len(piece) > LONGEST_PIECE:
            return self.print(piece)
        before: list[str] = []
        after: list[str] = []
        while piece and not self._whole(piece):
            if found := _AT_END.search(piece):
                piece, after = piece[: found.start()], self._marks(found[0]) + after
            elif found := _AT_BEGINNING.match(piece):
                piece, before = piece[found.end() :], before + self._marks(found[0])
            else:
                return [*before, *(part for word in self.print(piece) for part in self._parts(word)), *after]
        return [*before, *([piece] if piece else []), *after]

    def _marks(self, run: str) -> list[str]:
        """A mark, or the same one several times: one word if training had it as one."""
        return [run] if self.count(run) else self.print(run)

    def _parts(self, word: str) -> list[str]:
        """A word with an apostrophe, cut where training has what is on one side of it as a word of its own."""
        if not _APOSTROPHE.search(word) or self.count(word):
            return [word]
        ends = [found.start() for found in (_NOT.search(word), *_APOSTROPHE.finditer(word)) if found]
        for at in ends:
            if at and self.count(word[at:].replace("’", "'")):
                return [word[:at], word[at:]]
        for found in _APOSTROPHE.finditer(word):
            if found.end() < len(word) and self.count(word[: found.end()].replace("’", "'")):
                return [word[: found.end()], word[found.end() :]]
        return [word]


class SpacedWords:
    """What stands between spaces: the text is cut already, by hand or by a segmenter.

    >>> SpacedWords(lambda word: 0)("看似 簡單 ， @weft")
    ['看似', '簡單', '，', '@weft']
    """

    def __init__(self, count: Count) -> None:
        pass

    def __call__(self, text: str) -> list[str]:
        return text.split()


SPLITS: dict[str, Callable[[Count], Split]] = {"word": PrintedWords, "space": SpacedWords}


def make_split(name: str, count: Count) -> Split:
    """The split of this name; `count` returns the count of a word in training."""
    if name not in SPLITS:
        raise unknown_name("split", name, SPLITS)
    return SPLITS[name](count)
