"""The word tokenizer, the space tokenizer, and the white-space tokenizer of text that is tokenized already.

Splitting is one regular expression. Joining restores spaces by typographic rules: none before a comma, none inside
brackets, none between Chinese or Japanese characters. Rules that differ between languages, such as the space before !
and ? in French, are learned from text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, lru_cache
from typing import ClassVar, TypeVar

from weft.errors import WeftError
from weft.text.vocabulary import EOS

# Scripts without spaces between words, where each character is a token: Han, kana, bopomofo. (Korean has spaces.)
HAN = (
    "\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3040-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)


def _marks() -> str:
    """The body of a character class of combining marks and the zero-width joiners of Indic and Arabic scripts.

    They belong to the character before them, but Python's `\\w` does not match them.
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
    | \S{MARK}*                                  # a Chinese character, a punctuation mark, a symbol
    """,
    re.VERBOSE,
)
_HAN_START = re.compile(f"(?!{MARK})[{HAN}]")
_WORD_START = re.compile(f"(?!{MARK}){_IN_WORD}")
_MARK_START = re.compile(MARK)


class _Kind(Enum):
    """How a token is spaced."""

    NEWLINE = auto()
    WORD = auto()  # also a symbol such as + or &, which is spaced like a word
    HAN = auto()  # no space next to another HAN
    WIDE = auto()  # Chinese and Japanese punctuation, whose glyphs include the space
    OPENING = auto()  # space before, none after
    CLOSING = auto()  # space after, none before
    BOTH_OPENING = auto()  # used in Western and Chinese typography: no space next to Chinese
    BOTH_CLOSING = auto()
    LINKING = auto()  # no space on either side
    QUOTE = auto()  # straight: opening or closing, depending on its position in the line
    STRAY = auto()  # begins with a combining mark, which would attach to the character before it


_OPENING = frozenset("([{«„¿¡$£€¥#@")
_CLOSING = frozenset(",.;:!?)]}»%°™®")
_BOTH_OPENING = frozenset("“‘")
_BOTH_CLOSING = frozenset("”’…")
_LINKING = frozenset("-‐‑–—/")
_STRAIGHT = frozenset("\"'")


@lru_cache(maxsize=1 << 16)
def _kind(token: str) -> _Kind:
    """The kind of a token, which its first two characters show."""
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
    """The kind of each token, with straight quotes resolved to opening or closing ones.

    The first quote in a line opens and the last one closes, as does one before a comma; the others alternate. An
    unclosed single quote after a word is an apostrophe, as in "the dogs' tails".
    """
    kinds = [*(_kind(token[:2]) for token in tokens), _Kind.NEWLINE]
    opened: dict[str, int] = {}
    left = _Kind.NEWLINE
    for index, kind in enumerate(kinds):
        if kind is _Kind.QUOTE:
            token, right = tokens[index], kinds[index + 1]
            ends = token in opened or right in (_Kind.NEWLINE, _Kind.CLOSING, _Kind.BOTH_CLOSING)
            if ends and left is not _Kind.NEWLINE:
                kinds[index] = _Kind.CLOSING
                opened.pop(token, None)
            else:
                kinds[index] = _Kind.OPENING
                opened[token] = index
        elif kind is _Kind.NEWLINE:
            apostrophe = opened.get("'", 0)
            if apostrophe and kinds[apostrophe - 1] is _Kind.WORD:
                kinds[apostrophe] = _Kind.CLOSING
            opened.clear()
        left = kinds[index]
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


# Marks whose spacing depends on the language: the space before them, or after the opening one.
_GAP = re.compile(r"(?<=[^\s.,;:!?…])([ \u00a0\u202f]?)([;:!?»%])(?![\w;:!?])|(«)([ \u00a0\u202f]?)(?=\S)")
_STOPS = frozenset(".,;:!?…")

_SPACED = {(left, right): _space_between(left, right) for left in _Kind for right in _Kind}


@dataclass(frozen=True)
class WordTokenizer:
    """Tokens are words, numbers, Chinese characters, punctuation marks, symbols and line ends.

    Other white space is dropped. `join` inserts spaces by rule, such that `split` restores the same tokens. `gaps` are
    pairs of a mark and the space before it (after it, for an opening mark), where these differ from the rules.

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
    line_end: ClassVar[str] = "\n"

    @classmethod
    def train(cls, texts: Iterable[str]) -> WordTokenizer:
        """Learn the most frequent gap of each mark from texts."""
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
            raise WeftError(f"the gaps of a stored word tokenizer are {gaps!r}", expected="a space for each mark")
        return cls(tuple(gaps.items()))


_Stored = TypeVar("_Stored", bound="StoredByName")


class StoredByName:
    """A tokenizer without settings."""

    name: ClassVar[str]

    def to_json(self) -> dict[str, object]:
        return {"name": self.name}

    @classmethod
    def from_json(cls: type[_Stored], data: Mapping[str, object]) -> _Stored:
        return cls()


# A run without white space; each of the four marks begins a new token.
_PLAIN = re.compile(r"\n|[,.!?][^\s,.!?]*|[^\s,.!?]+")


@dataclass(frozen=True)
class SpaceTokenizer(StoredByName):
    """Splits at white space and before every , . ! and ?, as textbooks often do.

    A no-break space counts as a space. `join` puts one space between all tokens.

    >>> SpaceTokenizer().split("Va\u202f! Non, j'ai «\u00a0faim\u00a0».")
    ['Va', '!', 'Non', ',', "j'ai", '«', 'faim', '»', '.']
    """

    name: ClassVar[str] = "space"
    line_end: ClassVar[str] = "\n"

    def split(self, text: str) -> list[str]:
        return _PLAIN.findall(text)

    def join(self, tokens: Sequence[str]) -> str:
        return " ".join(tokens).replace(" \n", "\n").replace("\n ", "\n")


# A word of pre-tokenized text, or a line end.
_SPACELESS = re.compile(r"\n|\S+")


@dataclass(frozen=True)
class WhitespaceTokenizer(StoredByName):
    """Splits at white space only: for text that is tokenized already, such as WikiText.

    A line end is the token "<eos>", as in the literature on such texts, so that perplexities can be compared with it.
    Reserved tokens that occur in the text, such as "<unk>", are those of the vocabulary.

    >>> WhitespaceTokenizer().split("the U.S. @-@ led <unk> ,\\n")
    ['the', 'U.S.', '@-@', 'led', '<unk>', ',', '<eos>']
    """

    name: ClassVar[str] = "whitespace"
    line_end: ClassVar[str] = EOS

    def split(self, text: str) -> list[str]:
        return [EOS if token == "\n" else token for token in _SPACELESS.findall(text)]

    def join(self, tokens: Sequence[str]) -> str:
        return " ".join("\n" if token == EOS else token for token in tokens).replace(" \n", "\n").replace("\n ", "\n")
