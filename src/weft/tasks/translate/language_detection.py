"""Which of a translator's two languages a text is in: for each side a naive Bayes model of its character n-grams.

A run keeps both in languages.json. A run without that file, of an earlier version, detects nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.text.parallel import Pairs
from weft.training.run import Run, read_json, write_json

PROFILES_FILE = "languages.json"
ORDERS = (1, 2, 3)  # the characters of an n-gram
MOST_TEXTS = 10_000  # that are counted
MOST_NGRAMS = 1000  # the most frequent ones of each order that are kept
DETECTED_CHARACTERS = 2000  # characters of a text that are read to detect its language


@dataclass(frozen=True)
class LanguageProfile:
    """Character n-grams of a language."""

    counts: Mapping[str, int]  # of the most frequent n-grams
    totals: Sequence[int]  # the number of all n-grams that were counted, for each order

    @classmethod
    def fit(cls, texts: Iterable[str]) -> LanguageProfile:
        """Counts the n-grams of texts.

        >>> english = LanguageProfile.fit(["the cat sat on the mat", "a dog ran"])
        >>> french = LanguageProfile.fit(["le chat est sur le tapis", "un chien"])
        >>> english.log_prob("the dog") > french.log_prob("the dog")
        True
        """
        counts: dict[int, Counter[str]] = {order: Counter() for order in ORDERS}
        for text in islice(texts, MOST_TEXTS):
            for order in ORDERS:
                counts[order].update(_ngrams(text, order))
        kept = {ngram: count for each in counts.values() for ngram, count in each.most_common(MOST_NGRAMS)}
        return cls(kept, tuple(sum(each.values()) for each in counts.values()))

    def log_prob(self, text: str) -> float:
        """The log-probability of the n-grams of a text."""
        known, unknown = self._log_probs
        found = sum(known.get(ngram, unknown[order]) for order in ORDERS for ngram in _ngrams(text, order))
        return found / len(ORDERS)  # n-grams that overlap say the same again

    @cached_property
    def _log_probs(self) -> tuple[dict[str, float], dict[int, float]]:
        """Of the n-grams that are known, and of another one of each order."""
        space = {
            order: math.log(total + 0.5 * (MOST_NGRAMS + 1)) for order, total in zip(ORDERS, self.totals, strict=True)
        }
        known = {ngram: math.log(count + 0.5) - space[len(ngram)] for ngram, count in self.counts.items()}
        return known, {order: math.log(0.5) - value for order, value in space.items()}

    def to_json(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "totals": list(self.totals)}

    @classmethod
    def from_json(cls, data: Any) -> LanguageProfile:
        """The inverse of `to_json`.

        Raises:
            ValueError: The data is something else.
        """
        counts, totals = (data.get(name) for name in ("counts", "totals")) if isinstance(data, dict) else (None, None)
        if not isinstance(counts, dict) or not isinstance(totals, list) or len(totals) != len(ORDERS):
            raise ValueError("no counts of character n-grams")
        if not all(type(count) is int and count >= 0 for count in [*counts.values(), *totals]):
            raise ValueError("a count of character n-grams is no count")
        if not all(len(ngram) in ORDERS for ngram in counts):
            raise ValueError("an n-gram has a wrong number of characters")
        return cls(counts, totals)


def _ngrams(text: str, order: int) -> Iterator[str]:
    padded = f" {' '.join(text[:DETECTED_CHARACTERS].lower().split())} "
    return (padded[at : at + order] for at in range(len(padded) - order + 1))


def store_profiles(folder: Path, pairs: Pairs) -> None:
    """Writes the profiles of both sides into the folder of a run."""
    sides = {"source": pairs.sources, "target": pairs.targets}
    write_json(folder / PROFILES_FILE, {side: LanguageProfile.fit(texts).to_json() for side, texts in sides.items()})


def load_profiles(run: Run) -> tuple[LanguageProfile, LanguageProfile] | None:
    """The profiles of source and target, or None if the run has none.

    Raises:
        WeftError: The file is damaged.
    """
    if not run.has(PROFILES_FILE):
        return None
    found = read_json(run.path / PROFILES_FILE)
    try:
        return LanguageProfile.from_json(found.get("source")), LanguageProfile.from_json(found.get("target"))
    except ValueError as error:
        raise WeftError(
            f"{run.path / PROFILES_FILE} is damaged: {error}",
            expected="the character n-grams of both languages",
            hint="copy the run anew, or train again",
        ) from error
