"""How good tags are: word by word, span by span as conlleval counts, and words found in a text without spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.text.spans import read_spans


@dataclass(frozen=True)
class Hits:
    """How many of how many were right."""

    right: int = 0
    count: int = 0

    def __add__(self, other: Hits) -> Hits:
        return Hits(self.right + other.right, self.count + other.count)

    @property
    def share(self) -> float:
        return self.right / self.count if self.count else math.nan


@dataclass(frozen=True)
class Found:
    """Things looked for: how many there are, how many were found, how many of those are right."""

    right: int = 0
    found: int = 0
    true: int = 0

    def __add__(self, other: Found) -> Found:
        return Found(self.right + other.right, self.found + other.found, self.true + other.true)

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of the two; 0 where nothing is right, as conlleval has it."""
        return 2 * self.right / (self.found + self.true) if self.right else 0.0


@dataclass(frozen=True)
class TokenScores:
    """Right tags, of words that the model knows and of those it does not."""

    known: Hits = Hits()
    unknown: Hits = Hits()

    @classmethod
    def of(cls, true: Sequence[str], tags: Sequence[str], known: Sequence[int]) -> TokenScores:
        """Of one sentence; `known` tells of each word whether it is."""
        right, count = [0, 0], [0, 0]
        for one, other, seen in zip(true, tags, known, strict=True):
            count[seen] += 1
            right[seen] += one == other
        hits = [Hits(*pair) for pair in zip(right, count, strict=True)]
        return cls(hits[1], hits[0])

    def __add__(self, other: TokenScores) -> TokenScores:
        return TokenScores(self.known + other.known, self.unknown + other.unknown)

    @property
    def all(self) -> Hits:
        return self.known + self.unknown

    @property
    def accuracy(self) -> float:
        return self.all.share

    def score(self) -> float:
        return self.accuracy

    def signature(self) -> str:
        """What exactly was measured, to stand beside the number."""
        return f"accuracy|per:word|words:{self.all.count}|unknown:{self.unknown.count}"

    def facts(self) -> dict[str, float]:
        named = {"accuracy": self.all, "accuracy_known": self.known, "accuracy_unknown": self.unknown}
        return {name: hits.share for name, hits in named.items() if hits.count}


@dataclass(frozen=True)
class SpanScores:
    """Spans found with both ends and the kind right, by kind."""

    kinds: Mapping[str, Found] = field(default_factory=dict)

    @classmethod
    def of(cls, true: Sequence[str], tags: Sequence[str]) -> SpanScores:
        """Of one sentence, its spans read as conlleval reads them."""
        there, found = set(read_spans(true)), set(read_spans(tags))
        kinds: dict[str, Found] = {}
        for span in there | found:
            here = Found(int(span in there and span in found), int(span in found), int(span in there))
            kinds[span.kind] = kinds.get(span.kind, Found()) + here
        return cls(kinds)

    def __add__(self, other: SpanScores) -> SpanScores:
        kinds = {**self.kinds, **other.kinds}
        return SpanScores({kind: self.kinds.get(kind, Found()) + other.kinds.get(kind, Found()) for kind in kinds})

    @property
    def all(self) -> Found:
        return sum(self.kinds.values(), Found())

    def score(self) -> float:
        return self.all.f1

    def signature(self) -> str:
        """What exactly was measured, to stand beside the number."""
        return f"f1|per:span|micro|read:conlleval|spans:{self.all.true}"

    def facts(self) -> dict[str, float]:
        return {"precision": self.all.precision, "recall": self.all.recall, "f1": self.all.f1}


@dataclass(frozen=True)
class WordScores:
    """Words found in a text without spaces, both ends right; and how many of the known and unknown ones there were."""

    words: Found = Found()
    known: Hits = Hits()
    unknown: Hits = Hits()

    @classmethod
    def of(cls, true: Sequence[str], tags: Sequence[str], known: Sequence[int]) -> WordScores:
        """Of one sentence in B M E S; `known` tells of each true word whether it was seen in training."""
        there, found = read_spans(true), set(read_spans(tags))
        right = [span in found for span in there]
        hits = [
            Hits(sum(one for one, seen in zip(right, known, strict=True) if seen == which), known.count(which))
            for which in (0, 1)
        ]
        return cls(Found(sum(right), len(found), len(there)), hits[1], hits[0])

    def __add__(self, other: WordScores) -> WordScores:
        return WordScores(self.words + other.words, self.known + other.known, self.unknown + other.unknown)

    def score(self) -> float:
        return self.words.f1

    def signature(self) -> str:
        """What exactly was measured, to stand beside the number."""
        return f"f1|per:word|words:{self.words.true}|unknown:{self.unknown.count}"

    def facts(self) -> dict[str, float]:
        found = {"precision": self.words.precision, "recall": self.words.recall, "f1": self.words.f1}
        named = {"recall_known": self.known, "recall_unknown": self.unknown}
        return found | {name: hits.share for name, hits in named.items() if hits.count}
