"""Words as tokens: where a text is cut between words, and where spaces go back when they are joined.

Cutting is one regular expression. Joining cannot know the spaces that were there, so it follows the rules of
print: none before a comma, none inside brackets, none between Chinese or Japanese characters. Where print differs,
as with the space that French puts before ! and ?, a tokenizer learns it from text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, lru_cache
from typing import ClassVar

from weft.errors import WeftError

# Scripts written without spaces, a character at a time: Han, kana, bopomofo. (Korean puts spaces between words.)
HAN = (
    "\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3040-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)


def _marks() -> str:
    """Combining marks, and the two joiners of Indic and Arabic scripts, as the inside of a character class.

    They continue the character before them, but Python's `\\w` leaves them out.
    """
    codes = [0x200C, 0x200D]
    for block in (range(0x300, 0x1F000), range(0xE0100, 0xE01F0)):
        codes += (code for code in block if unicodedata.category(chr(code))[0] == "M")
    ranges: list[list[int]] = []
    for code in sorted(codes):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


MARK = f"[{_marks()}]"
_LETTER = rf"[^\W\d_{HAN}]"
_IN_WORD = rf"[^\W{HAN}]"
_RUN = rf"{_IN_WORD}+(?:{MARK}+{_IN_WORD}*)*"
_TOKEN = re.compile(
    rf"""
    \n
    | \d+(?:[.,:]\d+)*(?!{_IN_WORD}|{MARK})      # 42   3.14   1,000   10:30
    | {_RUN}(?:['’](?={_LETTER}){_RUN})*          # word   3rd   don't   o'clock
    | \S{MARK}*                                  # one Chinese character, one mark of punctuation, one symbol
    """,
    re.VERBOSE,
)
_HAN_START = re.compile(f"(?!{MARK})[{HAN}]")
_WORD_START = re.compile(f"(?!{MARK}){_IN_WORD}")
_MARK_START = re.compile(MARK)


class _Kind(Enum):
    """What a token is to its neighbours."""

    NEWLINE = auto()
    WORD = auto()  # also a symbol such as + or &, which stands alone as a word does
    HAN = auto()  # no space beside another one
    WIDE = auto()  # Chinese and Japanese punctuation: carries its own space
    OPENING = auto()  # a space before, none after
    CLOSING = auto()  # none before, a space after
    BOTH_OPENING = auto()  # the same, in Western and in Chinese print: no space beside Chinese
    BOTH_CLOSING = auto()
    LINKING = auto()  # none on either side
    QUOTE = auto()  # straight, so opening or closing by its place in the line
    STRAY = auto()  # begins with a combining mark, which would cling to the character before it


_OPENING = frozenset("([{«„¿¡$£€¥#@")
_CLOSING = frozenset(",.;:!?)]}»%°™®")
_BOTH_OPENING = frozenset("“‘")
_BOTH_CLOSING = frozenset("”’…")
_LINKING = frozenset("-‐‑–—/")
_STRAIGHT = frozenset("\"'")


@lru_cache(maxsize=1 << 16)
def _kind(token: str) -> _Kind:
    for kind, members in (
        (_Kind.NEWLINE, "\n"),
        (_Kind.CLOSING, _CLOSING),
        (_Kind.OPENING, _OPENING),
        (_Kind.BOTH_CLOSING, _BOTH_CLOSING),
        (_Kind.BOTH_OPENING, _BOTH_OPENING),
        (_Kind.LINKING, _LINKING),
        (_Kind.QUOTE, _STRAIGHT),
    ):
        if token in members:
            return kind
    if _MARK_START.match(token):
        return _Kind.STRAY
    if _HAN_START.match(token):
        return _Kind.HAN
    if ("\u3001" <= token[:1] <= "\u303f" or "\uff01" <= token[:1] <= "\uff65") and not _WORD_START.match(token):
        return _Kind.WIDE
    return _Kind.WORD


def _resolved(tokens: Sequence[str]) -> list[_Kind]:
    """The kind of every token, with the straight quotes told apart.

    The first in a line opens and the last closes, as does one before a comma; the others take turns. A single quote
    after a word that nothing closes is an apostrophe, as in "the dogs' tails".
    """
    kinds = [*map(_kind, tokens), _Kind.NEWLINE]
    opened: dict[str, int] = {}
    left = _Kind.NEWLINE
    for place, kind in enumerate(kinds):
        if kind is _Kind.QUOTE:
            token, right = tokens[place], kinds[place + 1]
            ends = token in opened or right in (_Kind.NEWLINE, _Kind.CLOSING, _Kind.BOTH_CLOSING)
            if ends and left is not _Kind.NEWLINE:
                kinds[place] = _Kind.CLOSING
                opened.pop(token, None)
            else:
                kinds[place] = _Kind.OPENING
                opened[token] = place
        elif kind is _Kind.NEWLINE:
            apostrophe = opened.get("'", 0)
            if apostrophe and kinds[apostrophe - 1] is _Kind.WORD:
                kinds[apostrophe] = _Kind.CLOSING
            opened.clear()
        left = kinds[place]
    return kinds[:-1]


def _space_between(left: _Kind, right: _Kind) -> bool:
    if _Kind.NEWLINE in (left, right):
        return False
    if right is _Kind.STRAY:
        return True
    if _Kind.WIDE in (left, right) or _Kind.LINKING in (left, right):
        return False
    if left in (_Kind.OPENING, _Kind.BOTH_OPENING) or right in (_Kind.CLOSING, _Kind.BOTH_CLOSING):
        return False
    if left is _Kind.HAN:
        return right not in (_Kind.HAN, _Kind.BOTH_OPENING)
    if right is _Kind.HAN:
        return left is not _Kind.BOTH_CLOSING
    return True


# Marks whose gap differs from language to language: before these, or after the one that opens.
_GAP = re.compile(r"(?<=[^\s.,;:!?…])([ \u00a0\u202f]?)([;:!?»%])(?![\w;:!?])|(«)([ \u00a0\u202f]?)(?=\S)")
_STOPS = frozenset(".,;:!?…")

_SPACED = {(left, right): _space_between(left, right) for left in _Kind for right in _Kind}


@dataclass(frozen=True)
class WordTokenizer:
    """Words, numbers, single Chinese characters, single marks of punctuation, and line ends.

    White space other than line ends is not kept. `join` sets spaces by rule; whatever it does, `split` finds the
    same tokens again. `gaps` are marks with the space that stands before them (after them, if they open).

    >>> words = WordTokenizer()
    >>> words.split("It's 3.5 km (about 2 miles) to 北京。")
    ["It's", '3.5', 'km', '(', 'about', '2', 'miles', ')', 'to', '北', '京', '。']
    >>> words.join(words.split("“No,” she said; 他说：“不！”"))
    '“No,” she said; 他说：“不！”'
    >>> WordTokenizer.train(["Ça va ?", "Oui, ça va !"]).join(["Ah", "?", "Non", ",", "rien", "!"])
    'Ah ? Non, rien !'
    """

    gaps: tuple[tuple[str, str], ...] = ()
    name: ClassVar[str] = "word"

    @classmethod
    def train(cls, texts: Iterable[str]) -> WordTokenizer:
        """With the gap that each mark has most often in these texts."""
        counts: dict[str, Counter[str]] = {}
        for text in texts:
            for before, closing, opening, after in _GAP.findall(text):
                counts.setdefault(closing or opening, Counter())[before or after] += 1
        usual = {mark: found.most_common(1)[0][0] for mark, found in sorted(counts.items())}
        return cls(tuple((mark, gap) for mark, gap in usual.items() if gap))

    @cached_property
    def _gap(self) -> dict[str, str]:
        return dict(self.gaps)

    def split(self, text: str) -> list[str]:
        return _TOKEN.findall(text)

    def join(self, tokens: Sequence[str]) -> str:
        pieces: list[str] = []
        left, last = _Kind.NEWLINE, ""
        for token, kind in zip(tokens, _resolved(tokens), strict=True):
            if _SPACED[left, kind]:
                pieces.append(" ")
            elif self.gaps and _Kind.NEWLINE not in (left, kind):
                pieces.append(self._learned_gap(last, token))
            pieces.append(token)
            left, last = kind, token
        return "".join(pieces)

    def _learned_gap(self, left: str, right: str) -> str:
        if right in _CLOSING and not (left in _STOPS and right in _STOPS):
            return self._gap.get(right, "")
        return self._gap.get(left, "") if left in _OPENING else ""

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "gaps": dict(self.gaps)}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> WordTokenizer:
        gaps = data.get("gaps", {})
        if not isinstance(gaps, Mapping) or not all(
            isinstance(gap, str) and gap.isspace() and gap != "\n" for gap in gaps.values()
        ):
            raise WeftError(f"the stored gaps of words are {gaps!r}", expected="a space for each mark")
        return cls(tuple(gaps.items()))


# A run without spaces; the four marks begin a new one.
_PLAIN = re.compile(r"\n|[,.!?][^\s,.!?]*|[^\s,.!?]+")


@dataclass(frozen=True)
class SpaceTokenizer:
    """What stands between spaces, cut before every , . ! and ? too: the plainest words, as study texts cut them.

    A no-break space counts as a space. `join` puts one space between all tokens, so it is the form that `split`
    reads, not that of print.

    >>> SpaceTokenizer().split("Va\u202f! Non, j'ai «\u00a0faim\u00a0».")
    ['Va', '!', 'Non', ',', "j'ai", '«', 'faim', '»', '.']
    """

    name: ClassVar[str] = "space"

    def split(self, text: str) -> list[str]:
        return _PLAIN.findall(text)

    def join(self, tokens: Sequence[str]) -> str:
        return " ".join(tokens).replace(" \n", "\n").replace("\n ", "\n")

    def to_json(self) -> dict[str, object]:
        return {"name": self.name}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> SpaceTokenizer:
        return cls()
