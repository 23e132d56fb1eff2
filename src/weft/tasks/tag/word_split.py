"""Splits raw text into words as the training data of a tagger has them.

The word tokenizer finds words, numbers and punctuation, and keeps URLs and mentions whole. The training words take
precedence: `U.S.` and `...` may be one word, `don't` may be `do` and `n't`. Or text is split at spaces alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from weft.errors import unknown_name
from weft.text.word_tokenizer import HAN, MARK, WordTokenizer

# URLs, e-mail addresses, @mentions and #hashtags stay whole.
_BEGINS = r"(?:https?:/|www\.)"
_ADDRESS = re.compile(_BEGINS, re.IGNORECASE)

_IN_WORD = rf"[^\W{HAN}]"
# Chinese has no space after a URL, so its characters and punctuation end one.
_IN_ADDRESS = rf"[^\s(){HAN}\u3000-\u303f\uff00-\uffef]"
_LAST = rf"[^\s(){HAN}\u3000-\u303f\uff00-\uffef.,;:!?'\"\[\]{{}}<>«»“”‘’]"  # a mark at the end belongs to the sentence
_IN_BRACKETS = rf"\({_IN_ADDRESS}*\)"  # en.wikipedia.org/wiki/Weft_(textile)
WHOLE = re.compile(
    rf"""
    (?<!{_IN_WORD})
    (?: {_BEGINS}{_IN_ADDRESS}*(?:{_IN_BRACKETS}{_IN_ADDRESS}*)*(?:{_LAST}|{_IN_BRACKETS})
      | (?<![.+-])(?:{_IN_WORD}|[.+-]){{0,63}}{_IN_WORD}@(?:{_IN_WORD}|-){{1,63}}(?:\.(?:{_IN_WORD}|-){{1,63}})+(?<!-)
      | @{_IN_WORD}+
      | \#(?=\d*[^\W\d])(?:{_IN_WORD})+  # not #1, which is a number
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_url(word: str) -> bool:
    return _ADDRESS.match(word) is not None


def is_mention(word: str) -> bool:
    return len(word) > 1 and word[0] == "@"


LONGEST_PIECE = 100  # longest piece between spaces in which training words are looked up

_APOSTROPHE = re.compile("['’]")
_NOT = re.compile(r"n['’]t$", re.IGNORECASE)
# Punctuation: one mark, or the same repeated. The lookbehind of each pattern lets a match begin only where the longest
# one does: tried at every character of a long word, it would take quadratic time.
_MARK = rf"((?!{MARK})[^\w\s])"
_AT_END, _AT_BEGINNING = re.compile(rf"{_MARK}(?<!\1\1)\1*$"), re.compile(rf"{_MARK}\1*(?!{MARK})")

_PART = rf"(?:[^\W{HAN}]|['’](?=\w))+"
_HYPHENATED = re.compile(rf"(?<![^\W{HAN}])(?:(?=['’])|(?<!['’])){_PART}(?:[-‐]{_PART})+")

Count = Callable[[str], int]  # count of a word in the training data


def _split_around_hyphens(text: str) -> list[str]:
    """The words of a text by the word tokenizer, with hyphenated ones in one piece.

    >>> _split_around_hyphens("a state-of-the-art (e-mail) 2-1")
    ['a', 'state-of-the-art', '(', 'e-mail', ')', '2-1']
    """
    split, words, done = WordTokenizer().split, [], 0
    for found in _HYPHENATED.finditer(text):
        words += [*split(text[done : found.start()]), found[0]]
        done = found.end()
    return words + split(text[done:])


class TokenizedWords:
    """Splits by the word tokenizer, but keeps what is a word in the training data, and with `whole_hyphens` new words.

    >>> seen = {"U.S.": 9, "do": 5, "n't": 5, "'s": 3, "...": 2, "us": 1, "sat.": 1, "sat": 4}
    >>> split = TokenizedWords(lambda word: seen.get(word, 0))
    >>> split("Don't ask @weft (of the U.S.)... It sat. See http://t.co/a, weft's #page.")
    ['Do', "n't", 'ask', '@weft', '(', 'of', 'the', 'U.S.', ')', '...', 'It', 'sat', '.', 'See', 'http://t.co/a', ',', \
'weft', "'s", '#page', '.']
    """

    def __init__(self, count: Count, *, whole_hyphens: bool = False) -> None:
        self.count = count
        self.tokenize = _split_around_hyphens if whole_hyphens else WordTokenizer().split
        self.words_of = lru_cache(maxsize=1 << 16)(self._words)  # most pieces recur

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
        """Whether a piece is a training word, and not merely one that a full stop followed."""
        seen = self.count(piece) if len(piece) <= LONGEST_PIECE else 0
        stopped = not piece[-1].isalnum() and piece[-2:-1].isalnum()
        return seen > (self.count(piece[:-1]) if stopped else 0)

    def _cut(self, piece: str) -> list[str]:
        """Splits a piece without URLs: strip punctuation from both ends until the rest is a training word."""
        if len(piece) > LONGEST_PIECE:
            return self.tokenize(piece)
        before: list[str] = []
        after: list[str] = []
        while piece and not self._whole(piece):
            if found := _AT_END.search(piece):
                piece, after = piece[: found.start()], self._marks(found[0]) + after
            elif found := _AT_BEGINNING.match(piece):
                piece, before = piece[found.end() :], before + self._marks(found[0])
            else:
                return [*before, *(part for word in self.tokenize(piece) for part in self._parts(word)), *after]
        return [*before, *([piece] if piece else []), *after]

    def _marks(self, run: str) -> list[str]:
        """Repeated punctuation: one word if it is a training word."""
        return [run] if self.count(run) else self.tokenize(run)

    def _parts(self, word: str) -> list[str]:
        """Splits a word at an apostrophe where one side of it is a training word."""
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


def make_split(name: str, count: Count, *, whole_hyphens: bool = False) -> Callable[[str], list[str]]:
    """The named way to split text into words: "word", as `TokenizedWords` does, or "space", at spaces."""
    if name not in ("word", "space"):
        raise unknown_name("split", name, ("word", "space"))
    return TokenizedWords(count, whole_hyphens=whole_hyphens) if name == "word" else str.split
