"""What a tagger knows of its words: their numbers, those of their characters, or of the characters of a text.

It is stored with the model, so that later text is read exactly as the first was.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

from weft.config.tag import TagDataConfig
from weft.text.columns import Sentence
from weft.text.spans import join_words
from weft.text.vocabulary import Vocabulary

LONGEST_WORD = 40  # characters of a word that are read: of a longer one its beginning and its end
EDGE = "\n"  # what stands before a sentence and after it, in pairs of characters

# Rows of numbers by name. Rows of "words" are sentences; those of "spelling" are different words.
Rows = dict[str, list[list[int]]]


def normal(text: str, form: str) -> str:
    return text if form == "none" else unicodedata.normalize(form, text)  # type: ignore[arg-type]


@dataclass(frozen=True)
class WordLexicon:
    """Words, and the characters that they are spelled with."""

    form: str
    lower: bool
    words: Vocabulary
    characters: Vocabulary
    task: ClassVar[str] = "tags"

    @classmethod
    def build(cls, sentences: Sequence[Sentence], config: TagDataConfig) -> WordLexicon:
        """Everything that the sentences have in them."""
        counts = Counter(normal(word, config.normal_form) for sentence in sentences for word in sentence.words)
        words: Counter[str] = Counter()
        characters: Counter[str] = Counter()
        for word, count in counts.items():
            words[word.lower() if config.lower else word] += count
            for character in word:
                characters[character] += count
        vocabulary = Vocabulary.build(words, min_count=config.min_count)
        return cls(config.normal_form, config.lower, vocabulary, Vocabulary.build(characters))

    def encode(self, sentences: Sequence[Sequence[str]]) -> Rows:
        """ "words": the number of each word; "forms": which spelling it has; "spelling": those."""
        numbers: dict[str, int] = {}
        forms = [[numbers.setdefault(word, len(numbers)) for word in words] for words in sentences]
        spelled = [normal(word, self.form) for word in numbers]
        ids = self.words.encode(word.lower() if self.lower else word for word in spelled)
        words = [[ids[form] for form in row] for row in forms]
        return {"words": words, "forms": forms, "spelling": [self.characters.encode(_cut(word)) for word in spelled]}

    def known(self, sentence: Sentence) -> list[int]:
        """Whether each word has a number of its own, as 0 or 1."""
        spelled = (normal(word, self.form) for word in sentence.words)
        return [int((word.lower() if self.lower else word) in self.words) for word in spelled]

    def to_json(self) -> dict[str, Any]:
        return {
            "form": self.form,
            "lower": self.lower,
            "words": self.words.to_json(),
            "characters": self.characters.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WordLexicon:
        words, characters = (Vocabulary.from_json(data[name]) for name in ("words", "characters"))
        return cls(data["form"], data["lower"], words, characters)


def _cut(word: str) -> str:
    return word if len(word) <= LONGEST_WORD else word[: LONGEST_WORD // 2] + word[-LONGEST_WORD // 2 :]


@dataclass(frozen=True)
class CharacterLexicon:
    """Characters, pairs of them, and the words that a text without spaces was made of."""

    form: str
    lower: bool
    words: Vocabulary  # of characters, which are what has a tag here
    pairs: Vocabulary
    seen: tuple[str, ...]  # the words of the text that was trained on
    task: ClassVar[str] = "segments"

    @classmethod
    def build(cls, sentences: Sequence[Sentence], config: TagDataConfig) -> CharacterLexicon:
        """Everything that the sentences, which are of characters, have in them."""
        empty = Vocabulary.build({})
        bare = cls(config.normal_form, config.lower, empty, empty, ())
        characters: Counter[str] = Counter()
        pairs: Counter[str] = Counter()
        seen: dict[str, None] = {}
        for sentence in sentences:
            row = bare.read(sentence.words)
            characters.update(row)
            pairs.update(map("".join, pairwise([EDGE, *row, EDGE])))
            seen.update(dict.fromkeys(join_words(sentence.words, sentence.tags)))
        vocabulary = Vocabulary.build(characters, min_count=config.min_count)
        pair_vocabulary = Vocabulary.build(pairs, min_count=config.pair_count)
        return cls(config.normal_form, config.lower, vocabulary, pair_vocabulary, tuple(seen))

    def read(self, characters: Sequence[str]) -> list[str]:
        """Each character as it is looked up. What becomes several is left as it is: places must not move."""
        found = [normal(one, self.form) for one in characters]
        found = [one.lower() if self.lower else one for one in found]
        return [one if len(one) == 1 else old for one, old in zip(found, characters, strict=True)]

    def encode(self, sentences: Sequence[Sequence[str]]) -> Rows:
        """ "words": the number of each character; "pairs": of each pair, from the one that ends in the first."""
        rows = [self.read(characters) for characters in sentences]
        pairs = [self.pairs.encode(map("".join, pairwise([EDGE, *row, EDGE]))) for row in rows]
        return {"words": [self.words.encode(row) for row in rows], "pairs": pairs}

    @cached_property
    def _seen(self) -> frozenset[str]:
        return frozenset(self.seen)

    def known(self, sentence: Sentence) -> list[int]:
        """Whether each word that the sentence's tags tell was seen in training, as 0 or 1."""
        return [int(word in self._seen) for word in join_words(sentence.words, sentence.tags)]

    def to_json(self) -> dict[str, Any]:
        return {
            "form": self.form,
            "lower": self.lower,
            "words": self.words.to_json(),
            "pairs": self.pairs.to_json(),
            "seen": list(self.seen),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CharacterLexicon:
        words, pairs = (Vocabulary.from_json(data[name]) for name in ("words", "pairs"))
        return cls(data["form"], data["lower"], words, pairs, tuple(data["seen"]))


Lexicon = WordLexicon | CharacterLexicon
LEXICONS: dict[str, type[WordLexicon] | type[CharacterLexicon]] = {
    "tags": WordLexicon,
    "segments": CharacterLexicon,
}
