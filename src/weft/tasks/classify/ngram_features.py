"""N-gram features of texts, identified by 64-bit hash keys.

Groups: n-grams of tokens; character n-grams within words, with `<` and `>` at the ends of the word; of a long text
also the token n-grams of its beginning and of its end, where reviews say what they think. Tokens that the network's
vocabulary lacks are features too. Each group is scaled to equal length, so that the many character n-grams of a long
text do not outweigh its words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Keys = np.ndarray[Any, np.dtype[np.uint64]]

PAIRS = 2  # the longest n-grams of tokens in general
RUNS = 4  # the longest n-grams of tokens of one character each, as Chinese text has them
CHARACTERS = (3, 5)  # the lengths of character n-grams
PASSAGE = 40  # tokens at the beginning and at the end of a text that is longer than both
LONGEST_KEPT = (
    100  # characters of a token whose key is kept for other texts: those of an attacker would fill the memory
)
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))  # multipliers that spread the bits
_BEGINNING, _END = np.uint64(0x165667B19E3779F9), np.uint64(0xD6E8FEB86659FD93)  # mark the keys of these passages


class TextKeys(NamedTuple):
    """The distinct features of a text."""

    tokens: Keys
    characters: Keys
    beginning: Keys
    end: Keys

    def only_tokens(self) -> TextKeys:
        """The n-grams of tokens alone."""
        return TextKeys(self.tokens, *(group[:0] for group in self[1:]))


class Occurrence(NamedTuple):
    """A feature at its place in a text: the tokens from `begin` up to, not including, `end`."""

    key: int
    begin: int
    end: int
    in_word: bool  # a character n-gram


class SparseFeatures(NamedTuple):
    """The features of N texts: of each text, the ids of those among F features, and their values."""

    ids: Tensor  # (total,) sorted by text
    offsets: Tensor  # (N,) where each text begins
    values: Tensor  # (total,)


class NgramKeys:
    """Turns tokens into feature keys; remembers the keys of words while it exists."""

    def __init__(self, *, characters: bool) -> None:
        self.characters = characters
        self._words: dict[str, tuple[int, list[int]]] = {}

    def of(self, tokens: Sequence[str]) -> TextKeys:
        """The distinct features of a text."""
        words = [self._word(token) for token in dict.fromkeys(tokens)]
        inside = np.array([key for _, keys in words for key in keys], dtype=np.uint64)
        first, last = (
            np.unique(np.concatenate([keys ^ mark for keys, _ in self._ngrams(tokens[begin:end])]))
            for begin, end, mark in _passages(len(tokens))
        )
        return TextKeys(
            np.unique(np.concatenate([keys for keys, _ in self._ngrams(tokens)])), np.unique(inside), first, last
        )

    def occurrences(self, tokens: Sequence[str]) -> list[Occurrence]:
        """All features of a text at their places."""
        found = [
            Occurrence(int(key ^ mark), start + int(begin), start + int(begin) + n, False)
            for start, end, mark in ((0, len(tokens), np.uint64(0)), *_passages(len(tokens)))
            for n, (keys, begins) in enumerate(self._ngrams(tokens[start:end]), start=1)
            for key, begin in zip(keys, begins, strict=True)
        ]
        for place, token in enumerate(tokens):
            found += (Occurrence(key, place, place + 1, True) for key in self._word(token)[1])
        return found

    def _word(self, token: str) -> tuple[int, list[int]]:
        found = self._words.get(token)
        if found is None:
            inside: list[int] = []
            if self.characters and len(token) > 1:
                word = f"<{token}>"
                low, high = CHARACTERS
                inside = [_key("c", word[i : i + n]) for n in range(low, high + 1) for i in range(len(word) - n + 1)]
            found = self._words[token] = (_key("t", token), inside)
        return found

    def _ngrams(self, tokens: Sequence[str]) -> Iterable[tuple[Keys, np.ndarray[Any, Any]]]:
        """The keys of the n-grams of each length, and where they begin."""
        single = run = np.array([len(token) == 1 for token in tokens], dtype=bool)
        keys = unigrams = np.array([self._word(token)[0] for token in tokens], dtype=np.uint64)
        yield unigrams, np.arange(len(tokens))
        for n in range(2, RUNS + 1):
            if len(keys) < 2:
                return
            keys = ((keys[:-1] * _ODD[0]) ^ (unigrams[n - 1 :] * _ODD[1])) * _ODD[0] + np.uint64(n)
            run = run[:-1] & single[n - 1 :]  # whether all n tokens are single characters
            begins = np.arange(len(keys)) if n <= PAIRS else np.flatnonzero(run)
            yield keys[begins], begins


def _passages(length: int) -> tuple[tuple[int, int, np.uint64], tuple[int, int, np.uint64]]:
    """Where the beginning and the end of a text of so many tokens begin and end; both are empty in a short text."""
    size = PASSAGE if length > 2 * PASSAGE else 0
    return (0, size, _BEGINNING), (length - size, length, _END)


def mostly_long(texts: Sequence[TextKeys]) -> bool:
    """Whether most of the texts have a beginning and an end of their own."""
    return 2 * sum(len(text.beginning) > 0 for text in texts) > len(texts)


def _key(group: str, text: str) -> int:
    return _hash(group, text) if len(text) > LONGEST_KEPT else _kept_hash(group, text)


def _hash(group: str, text: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(f"{group}{text}".encode(errors="surrogatepass"), digest_size=8).digest(), "little"
    )


_kept_hash = lru_cache(maxsize=1 << 18)(_hash)


def most_frequent(texts: Sequence[TextKeys], most: int) -> Keys:
    """The features of the texts, sorted; if there are more than `most`, those in the most texts."""
    keys, counts = np.unique(np.concatenate([np.concatenate(text) for text in texts]), return_counts=True)
    if len(keys) <= most:
        return keys
    return np.sort(keys[np.argsort(-counts, kind="stable")[:most]])


def scaled_features(texts: Sequence[TextKeys], keys: Keys) -> SparseFeatures:
    """Features of texts whose values make each group a vector of length 1.

    A group of fewer features than the tokens, such as the few character n-grams of Chinese text, counts less: it is
    divided by the length of theirs.
    """
    return _features(texts, keys, lambda known, tokens: 1 / np.sqrt(np.maximum(np.maximum(known, tokens), 1)))


def binary_features(texts: Sequence[TextKeys], keys: Keys) -> SparseFeatures:
    """Features of texts with values of 1."""
    return _features(texts, keys, lambda known, tokens: np.ones(len(known)))


def _features(texts: Sequence[TextKeys], keys: Keys, scale: Any) -> SparseFeatures:
    groups = []
    tokens = np.zeros(len(texts), dtype=np.int64)
    for group in range(len(TextKeys._fields)):
        parts = [text[group] for text in texts]
        rows = np.repeat(np.arange(len(texts)), [len(part) for part in parts])
        found = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
        ids = np.searchsorted(keys, found).clip(max=len(keys) - 1)
        known = keys[ids] == found
        ids, rows = ids[known].astype(np.int32), rows[known].astype(np.int32)
        counts = np.bincount(rows, minlength=len(texts))
        tokens = tokens if group else counts
        groups.append((ids, rows, scale(counts, tokens)[rows].astype(np.float32)))
    ids, rows, values = (np.concatenate(parts) for parts in zip(*groups, strict=True))
    order = np.argsort(rows, kind="stable")
    offsets = np.searchsorted(rows[order], np.arange(len(texts))).astype(np.int32)
    return SparseFeatures(torch.from_numpy(ids[order]), torch.from_numpy(offsets), torch.from_numpy(values[order]))
