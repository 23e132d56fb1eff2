"""The lexicon of a tagger: ids of words, their shapes and characters, or of characters and bigrams; or channels.

It is stored with the model, so that new text is encoded exactly as the training text was.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, ClassVar

import numpy as np

from weft.errors import WeftError
from weft.series import ScaledSeries, TimeSeries
from weft.tasks.tag.config import LONGEST_MATCH, TagDataConfig
from weft.tasks.tag.word_split import is_mention, is_url
from weft.text.conll import TaggedSentence
from weft.text.spans import tags_to_words
from weft.text.tokenizers import normalize_unicode
from weft.text.vocabulary import RESERVED, Vocabulary
from weft.text.word_tokenizer import HAN

LONGEST_WORD = 40  # characters of a word that are read; of a longer one its beginning and its end
EDGE = "\n"  # padding before and after a sentence, in character bigrams

_HYPHEN = re.compile(r"\w[-‐]\w")
_DIGIT = re.compile(r"\d")
_RUN = re.compile(r"(.)\1\1+", re.DOTALL)
_SEVERAL_HAN = re.compile(f"[{HAN}]{{2}}")
UNSPACED = 0.05  # fraction of unspaced words of several characters above which the word tokenizer does not fit

# Rows of ids by name. Rows of "words" are sentences; those of "spelling" are different words.
Rows = dict[str, list[list[int]]]


def general(word: str) -> str:
    """A word as it is looked up: digits, URLs and mentions, which are unlimited in number, become placeholders.

    >>> [general(word) for word in ("1984", "https://example.org/a", "@weft", "@")]
    ['0000', '://', '@@', '@']
    """
    if is_url(word):
        return "://"
    if is_mention(word):
        return "@@"
    return _DIGIT.sub("0", word)


def shape(word: str) -> str:
    """The shape of a word: which of its characters are upper case, lower case, digits, letters without case.

    Runs of more than two are written as two.

    >>> [shape(word) for word in ("Empire", "I", "NBA", "iPhone7", "@weft", "2,017", "北京")]
    ['Xxx', 'X', 'XX', 'xXxxd', '@@', 'd,dd', 'cc']
    """
    word = general(word)
    kinds = "".join(
        "X" if one.isupper() else "x" if one.islower() else "d" if one.isdigit() else "c" if one.isalpha() else one
        for one in word
    )
    return _RUN.sub(r"\1\1", kinds)


@dataclass(frozen=True)
class WordLexicon:
    """Words, their shapes and their characters."""

    form: str
    lower: bool
    words: Vocabulary
    shapes: Vocabulary
    characters: Vocabulary
    placeholders: bool = True  # whether words are looked up with placeholders; those of an encoder are as they stand
    task: ClassVar[str] = "tags"

    @classmethod
    def build(cls, sentences: Sequence[TaggedSentence], config: TagDataConfig) -> WordLexicon:
        """Builds the lexicon of the training sentences."""
        counts = Counter(
            normalize_unicode(word, config.normalization) for sentence in sentences for word in sentence.words
        )
        words: Counter[str] = Counter()
        shapes: Counter[str] = Counter()
        characters: Counter[str] = Counter()
        for word, count in counts.items():
            words[_numbered(word, config.lower)] += count
            shapes[shape(word)] += count
            for character in word:
                characters[character] += count
        vocabulary = Vocabulary.build(words, min_count=config.min_count)
        return cls(
            config.normalization, config.lower, vocabulary, Vocabulary.build(shapes), Vocabulary.build(characters)
        )

    def with_words(self, words: Vocabulary) -> WordLexicon:
        """The same lexicon with the words of an encoder."""
        return replace(self, words=words, placeholders=False)

    def _key(self, word: str) -> str:
        """A word as the vocabulary has it."""
        if self.placeholders:
            return _numbered(word, self.lower)
        return word.lower() if self.lower else word

    def encode(self, sentences: Sequence[Sequence[str]]) -> Rows:
        """Encodes sentences as "words", "shapes" and "forms", which index "spelling", the characters of each word."""
        numbers: dict[str, int] = {}
        forms = [[numbers.setdefault(word, len(numbers)) for word in words] for words in sentences]
        spelled = [normalize_unicode(word, self.form) for word in numbers]
        ids = self.words.encode(map(self._key, spelled))
        looks = self.shapes.encode(map(shape, map(_cut, spelled)))
        words, shapes = ([[one[form] for form in row] for row in forms] for one in (ids, looks))
        spelling = [self.characters.encode(_cut(word)) for word in spelled]
        return {"words": words, "shapes": shapes, "forms": forms, "spelling": spelling}

    def encode_training(self, sentences: Sequence[TaggedSentence]) -> Rows:
        """Encodes training sentences."""
        return self.encode([sentence.words for sentence in sentences])

    def spell(self, columns: Mapping[str, Any], row: int) -> str:
        """An encoded sentence as text: its words, which may be cut, with spaces between them."""
        words = (self.characters.decode(columns["spelling"][form].tolist()) for form in columns["forms"][row])
        return " ".join("".join(word) for word in words)

    def known(self, sentence: TaggedSentence) -> list[int]:
        """Whether each word is in the vocabulary, as 0 or 1."""
        spelled = (normalize_unicode(word, self.form) for word in sentence.words)
        return [int(self._key(word) in self.words) for word in spelled]

    def count(self, word: str) -> int:
        """The count of a word in the training data; 0 for URLs and mentions, which share placeholders."""
        if is_url(word) or is_mention(word):
            return 0
        number = self.words.id(self._key(normalize_unicode(word, self.form)))
        return self.words.counts[number] if number >= len(RESERVED) else 0

    @cached_property
    def whole_hyphens(self) -> bool:
        """Whether hyphenated words are one word in the training data, and not split at a hyphen that is a word."""
        seen = zip(self.words.tokens, self.words.counts, strict=True)
        return sum(count for word, count in seen if _HYPHEN.search(word)) >= self.count("-")

    @cached_property
    def unspaced(self) -> str | None:
        """A word that the word tokenizer would split, if there are many, as in Chinese and Japanese."""
        seen = list(zip(self.words.tokens, self.words.counts, strict=True))[len(RESERVED) :]
        hidden = [(word, count) for word, count in seen if _SEVERAL_HAN.search(word)]
        many = sum(count for _, count in hidden) > UNSPACED * sum(count for _, count in seen)
        return hidden[0][0] if many else None

    def to_json(self) -> dict[str, Any]:
        return {
            "form": self.form,
            "lower": self.lower,
            "words": self.words.to_json(),
            "shapes": self.shapes.to_json(),
            "characters": self.characters.to_json(),
            "placeholders": self.placeholders,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WordLexicon:
        words, shapes, characters = (Vocabulary.from_json(data[name]) for name in ("words", "shapes", "characters"))
        return cls(data["form"], data["lower"], words, shapes, characters, data["placeholders"])


def _numbered(word: str, lower: bool) -> str:
    return general(word.lower() if lower else word)


def _cut(word: str) -> str:
    return word if len(word) <= LONGEST_WORD else word[: LONGEST_WORD // 2] + word[-LONGEST_WORD // 2 :]


# The matches of a text without spaces with the words of the training text are a feature of its characters: of those
# that begin, end and surround a character, the length of the longest. All words of a training sentence would match,
# unlike those of new text. So a word that occurs in no other training sentence does not match there: each sentence has
# the matches that it would have if it were new.


def number_of_matches(longest: int) -> int:
    """The number of different ids of `match_ids`."""
    return longest**3


def match_ids(characters: Sequence[str], words: Container[str], longest: int, hidden: Container[str] = ()) -> list[int]:
    """The matches of each character, as one id.

    Args:
        characters: the text.
        words: the words to find in it. Those of one character are not looked up.
        longest: the number of characters of the longest words that are looked up.
        hidden: words that do not match.

    >>> match_ids("天安门去", {"天安门", "安门"}, 3)  # begins 3; begins 2, inside 3; ends 3; none
    [18, 11, 6, 0]
    """
    size = len(characters)
    begins, ends, inside = [0] * size, [0] * size, [0] * size
    for length in range(2, longest + 1):  # longer matches replace shorter ones
        for start in range(size - length + 1):
            end = start + length
            word = "".join(characters[start:end])
            if word in words and word not in hidden:
                begins[start] = ends[end - 1] = length - 1
                inside[start + 1 : end - 1] = [length - 1] * (length - 2)
    kinds = zip(begins, ends, inside, strict=True)
    return [(begin * longest + end) * longest + within for begin, end, within in kinds]


def own_words(sentences: Iterable[Iterable[str]]) -> list[frozenset[str]]:
    """The words of each sentence that occur in no other sentence.

    >>> [sorted(words) for words in own_words([["a", "b", "b"], ["a", "c"]])]
    [['b'], ['c']]
    """
    listed = [frozenset(sentence) for sentence in sentences]
    counts = Counter(word for sentence in listed for word in sentence)
    return [frozenset(word for word in sentence if counts[word] == 1) for sentence in listed]


@dataclass(frozen=True)
class CharacterLexicon:
    """Characters, character bigrams, and the words of the training text."""

    form: str
    lower: bool
    words: Vocabulary  # of characters, which are tagged here
    pairs: Vocabulary
    seen: tuple[str, ...]  # the words of the training text
    match_length: int  # 0: they are not looked up in a text
    task: ClassVar[str] = "segments"

    @classmethod
    def build(cls, sentences: Sequence[TaggedSentence], config: TagDataConfig) -> CharacterLexicon:
        """Builds the lexicon of training sentences, whose words are characters."""
        empty = Vocabulary.build({})
        bare = cls(config.normalization, config.lower, empty, empty, (), 0)
        characters: Counter[str] = Counter()
        pairs: Counter[str] = Counter()
        seen: dict[str, None] = {}
        for sentence in sentences:
            row = bare.read(sentence.words)
            characters.update(row)
            pairs.update(map("".join, pairwise([EDGE, *row, EDGE])))
            seen.update(dict.fromkeys(tags_to_words(sentence.words, sentence.tags)))
        vocabulary = Vocabulary.build(characters, min_count=config.min_count)
        pair_vocabulary = Vocabulary.build(pairs, min_count=config.min_bigram_count)
        return cls(config.normalization, config.lower, vocabulary, pair_vocabulary, tuple(seen), config.match_length)

    def with_words(self, words: Vocabulary) -> CharacterLexicon:
        """The same lexicon with the characters of an encoder."""
        return replace(self, words=words)

    def read(self, characters: Sequence[str]) -> list[str]:
        """Each character as it is looked up; one that would become several stays as it is, to keep the positions."""
        found = [normalize_unicode(one, self.form) for one in characters]
        found = [one.lower() if self.lower else one for one in found]
        return [one if len(one) == 1 else old for one, old in zip(found, characters, strict=True)]

    def encode(self, sentences: Sequence[Sequence[str]]) -> Rows:
        """Encodes sentences as "words", "pairs" and "matches".

        The words are the characters, the pairs the bigrams that end at or begin with each of them.
        """
        return self._rows(sentences, repeat(frozenset()))

    def encode_training(self, sentences: Sequence[TaggedSentence]) -> Rows:
        """Encodes training sentences, in which words that no other sentence has do not match."""
        words = ([self._key(word) for word in tags_to_words(one.words, one.tags)] for one in sentences)
        return self._rows([sentence.words for sentence in sentences], own_words(words))

    def _rows(self, sentences: Sequence[Sequence[str]], hidden: Iterable[frozenset[str]]) -> Rows:
        """Encodes sentences; in each of them, some words do not match."""
        read = [self.read(characters) for characters in sentences]
        pairs = [self.pairs.encode(map("".join, pairwise([EDGE, *row, EDGE]))) for row in read]
        rows = {"words": [self.words.encode(row) for row in read], "pairs": pairs}
        if not self.match_length:
            return rows
        found = zip(read, hidden, strict=False)
        return {**rows, "matches": [match_ids(row, self._keys, self.match_length, none) for row, none in found]}

    def _key(self, word: str) -> str:
        """A word as it is looked up."""
        return "".join(self.read(word))

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(map(self._key, self.seen))

    def spell(self, columns: Mapping[str, Any], row: int) -> str:
        """An encoded sentence as text."""
        return "".join(self.words.decode(columns["words"][row].tolist()))

    @cached_property
    def _seen(self) -> frozenset[str]:
        return frozenset(self.seen)

    def known(self, sentence: TaggedSentence) -> list[int]:
        """Whether each word that the tags mark is in the training text, as 0 or 1."""
        return [int(word in self._seen) for word in tags_to_words(sentence.words, sentence.tags)]

    def to_json(self) -> dict[str, Any]:
        return {
            "form": self.form,
            "lower": self.lower,
            "words": self.words.to_json(),
            "pairs": self.pairs.to_json(),
            "seen": list(self.seen),
            "match_length": self.match_length,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CharacterLexicon:
        words, pairs = (Vocabulary.from_json(data[name]) for name in ("words", "pairs"))
        longest = data["match_length"]
        if longest not in range(LONGEST_MATCH + 1):
            raise WeftError(f"match_length is {longest!r}", expected=f"an integer from 0 to {LONGEST_MATCH}")
        return cls(data["form"], data["lower"], words, pairs, tuple(data["seen"]), longest)


@dataclass(frozen=True)
class SeriesLexicon:
    """The channels of series, whose steps are tagged: the words of a sentence are its steps, a tuple of values each."""

    field: ScaledSeries
    task: ClassVar[str] = "series"
    words: ClassVar[Vocabulary] = Vocabulary.build({})  # there are none

    def encode(self, sentences: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Encodes series as "words", the scaled values (T, C) of each."""
        return {"words": [self.field.encode(TimeSeries.of(np.array(steps, np.float64))) for steps in sentences]}

    def encode_training(self, sentences: Sequence[TaggedSentence]) -> dict[str, Any]:
        """Encodes training series."""
        return self.encode([sentence.words for sentence in sentences])

    def spell(self, columns: Mapping[str, Any], row: int) -> str:
        """An encoded series as JSON."""
        return json.dumps(self.field.json_of(self.field.decode(columns["words"][row]))["y"])

    def known(self, sentence: TaggedSentence) -> list[int]:
        """1 for each step: no values are unknown."""
        return [1] * len(sentence.words)

    def to_json(self) -> dict[str, Any]:
        return {"series": self.field.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SeriesLexicon:
        return cls(ScaledSeries.from_json(data["series"]))


TextLexicon = WordLexicon | CharacterLexicon
Lexicon = TextLexicon | SeriesLexicon
TEXT_LEXICONS: dict[str, type[WordLexicon] | type[CharacterLexicon]] = {
    "tags": WordLexicon,
    "segments": CharacterLexicon,
}
LEXICONS: dict[str, type[WordLexicon] | type[CharacterLexicon] | type[SeriesLexicon]] = {
    **TEXT_LEXICONS,
    "series": SeriesLexicon,
}
