"""n-gram language models with Kneser-Ney smoothing.

The probability of w after the context h uses the counts c(h w) and the context h' that is one token shorter:

    P(w | h) = (c(h w) - D(c(h w))) / c(h) + b(h) P(w | h'),    b(h) = (total discount of h) / c(h)

At the highest order c counts occurrences. Below it, c is a continuation count: the number of different tokens that
precede the n-gram (the beginning of the text is one of them). The shorter context is used only where the longer one has
little evidence, and "Francisco" is frequent but follows a single word.

- `kneser_ney`: one discount D for all counts, unsmoothed unigrams (Kneser and Ney 1995, interpolated).
- `modified_kneser_ney`: discounts D1, D2, D3 for counts of 1, 2 and 3 or more, estimated for each order from its counts
  of counts; unigrams are interpolated with the uniform distribution, so no token is impossible (Chen and Goodman 1998).

All n-grams of a length are in one sorted array; the index there identifies an n-gram. Its key is the index of its
prefix (the n-gram without its last token) times V plus the last token, so extending a context takes one binary search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions

Array = np.ndarray[Any, np.dtype[Any]]

UNSEEN = -1  # the index of an n-gram that did not occur
FALLBACK = (0.5, 1.0, 1.5)  # discounts where the counts of counts do not determine them
TOKENS_AT_ONCE = 1 << 20  # tokens evaluated at a time


class Level(NamedTuple):
    """All n-grams of one length, sorted by key."""

    keys: Array  # (N,) index of the prefix * V + last token
    probs: Array  # (N,) P(last token | prefix)
    backoffs: Array  # (N,) b, the backoff weight of the n-gram as a context; 1 if nothing follows it


@dataclass(frozen=True)
class NGram:
    """An n-gram language model. It is a `Stepper`; its state holds the indices of each row's contexts, (R, order - 1).

    The first level has an entry for every token of the vocabulary, so there the index is the token id.
    """

    size: int  # V
    levels: tuple[Level, ...]
    discounts: tuple[tuple[float, float, float], ...]  # of each length, for counts of 1, 2, 3 and more

    @property
    def order(self) -> int:
        return len(self.levels)

    def __len__(self) -> int:
        return sum(len(level.keys) for level in self.levels)

    def initial_state(self, rows: int) -> Tensor:
        return torch.full((rows, self.order - 1), UNSEEN)

    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        tokens = _checked(ids.numpy(), self.size)
        contexts = self._advance(tokens, state.numpy())
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(self._table(contexts))), torch.from_numpy(contexts)

    def select(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]

    def evaluate(self, tokens: Array) -> Likelihood:
        if len(tokens) < 2:
            raise WeftError(f"there are {len(tokens)} tokens to evaluate on", expected="at least 2")
        return Likelihood(-float(self.token_log_probs(tokens).sum()), len(tokens) - 1)

    def token_log_probs(self, tokens: Array) -> Array:
        found = [np.zeros(0)]
        with np.errstate(divide="ignore"):
            for begin in range(1, len(tokens), TOKENS_AT_ONCE):
                before = min(begin, self.order - 1)
                probs = self._probs_along(_checked(tokens[begin - before : begin + TOKENS_AT_ONCE], self.size))
                found.append(np.log(probs[before:]))
        return np.concatenate(found)

    context = "left"  # tokens are predicted from those before them

    def predict_tokens(self, tokens: Array) -> TokenPredictions:
        found = self.evaluate(tokens)
        best = np.concatenate([probs.argmax(-1) for probs in self.next_probs(tokens)])
        return TokenPredictions(found, int((best == tokens[1:]).sum()))

    def next_probs(self, tokens: Array) -> Iterator[Array]:
        contexts, rows = np.full((1, self.order - 1), UNSEEN), max(1, TOKENS_AT_ONCE // self.size)
        for begin in range(0, len(tokens) - 1, rows):
            along = [contexts]
            for token in _checked(tokens[begin : min(begin + rows, len(tokens) - 1)], self.size):
                along.append(self._advance(token[None], along[-1]))
            contexts = along[-1]
            yield self._table(np.concatenate(along[1:]))

    def _advance(self, tokens: Array, contexts: Array) -> Array:
        """Returns the indices of the contexts that end with these tokens, given the indices before them."""
        found = np.full_like(contexts, UNSEEN)
        if self.order > 1:
            found[:, 0] = tokens
        for length in range(2, self.order):
            found[:, length - 1] = self._find(length, contexts[:, length - 2], tokens)
        return found

    def _find(self, length: int, contexts: Array, tokens: Array) -> Array:
        """Returns the indices of the n-grams of that length that consist of a context and the token after it."""
        keys = self.levels[length - 1].keys
        wanted = np.where(contexts >= 0, contexts * self.size + tokens, UNSEEN)
        indices = np.searchsorted(keys, wanted)
        indices[indices == len(keys)] = UNSEEN
        return np.where(_at(keys, indices, UNSEEN) == wanted, indices, UNSEEN)

    def _table(self, contexts: Array) -> Array:
        """Computes P of every token after each row's contexts: indices (R, order - 1) to (R, V)."""
        probs = np.tile(self.levels[0].probs, (len(contexts), 1))
        for length in range(1, self.order):
            self._interpolate(probs, contexts[:, length - 1], length)
        return probs

    def _interpolate(self, probs: Array, contexts: Array, length: int) -> None:
        """Interpolates probabilities (R, V) of shorter contexts with those of contexts of `length`, in place."""
        level = self.levels[length]
        rows = np.flatnonzero(contexts >= 0)
        probs[rows] *= self.levels[length - 1].backoffs[contexts[rows], None]
        begins = np.searchsorted(level.keys, contexts[rows] * self.size)
        counts = np.searchsorted(level.keys, (contexts[rows] + 1) * self.size) - begins
        # The indices of all n-grams of all rows' contexts.
        indices = np.arange(counts.sum()) + np.repeat(begins - np.cumsum(counts) + counts, counts)
        probs[np.repeat(rows, counts), level.keys[indices] % self.size] = level.probs[indices]

    def _probs_along(self, tokens: Array) -> Array:
        """Computes P(token | those before it) for every token of a text; the first has no context."""
        probs = self.levels[0].probs[tokens]
        contexts = tokens  # the index of the n-gram of one length that ends at each token
        for length in range(2, self.order + 1):
            before = np.concatenate([[UNSEEN], contexts[:-1]])
            contexts = self._find(length, before, tokens)
            shorter = probs * _at(self.levels[length - 2].backoffs, before, 1.0)
            probs = _at(self.levels[length - 1].probs, contexts, shorter)
        return probs

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{name}.{length}": torch.from_numpy(array)
            for length, level in enumerate(self.levels, start=1)
            for name, array in level._asdict().items()
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> NGram:
        """Builds the model from what `tensors` returned, and metadata that have the size and the discounts."""
        size, discounts = metadata["size"], [tuple(row) for row in metadata["discounts"]]
        levels = tuple(
            Level(*(tensors[f"{name}.{length}"].numpy() for name in Level._fields))
            for length in range(1, len(discounts) + 1)
        )
        for length, level in enumerate(levels, start=1):
            lengths = {len(part) for part in level if part.ndim == 1}
            if len(lengths) != 1 or any(part.ndim != 1 for part in level):
                raise WeftError(f"the {length}-grams have tables of different sizes", expected="one size")
            if not all(((part >= 0) & (part <= 1)).all() for part in (level.probs, level.backoffs)):
                raise WeftError(f"the weights of the {length}-grams are not finite", expected="probabilities")
        if not levels or len(levels[0].keys) != size:
            raise WeftError(f"there are not {size} unigrams", expected="one for each token of the vocabulary")
        return cls(size, levels, tuple(discounts))


def kneser_ney(tokens: Array, size: int, order: int, *, discount: float = 0.75) -> NGram:
    """Estimates an interpolated Kneser-Ney model with one discount. A token that does not occur has probability 0.

    Args:
        tokens: (N,) token ids of the text.
        size: V, the size of the vocabulary.
        order: the length of the longest n-grams.
        discount: D, between 0 and 1.

    Returns:
        The model.

    Raises:
        WeftError: an argument is out of range, or there are no tokens.
    """
    if not 0 < discount < 1:
        raise WeftError(f"discount is {discount}", expected="more than 0 and less than 1")
    return _build(tokens, size, order, lambda length, counts: (discount,) * 3 if length > 1 else (0.0,) * 3)


def modified_kneser_ney(tokens: Array, size: int, order: int) -> NGram:
    """Estimates an interpolated modified Kneser-Ney model, with three discounts for each order.

    Args:
        tokens: (N,) token ids of the text.
        size: V, the size of the vocabulary.
        order: the length of the longest n-grams.

    Returns:
        The model.

    Raises:
        WeftError: an argument is out of range, or there are no tokens.
    """
    return _build(tokens, size, order, lambda length, counts: modified_discounts(counts))


def modified_discounts(counts: Array) -> tuple[float, float, float]:
    """Computes D_c = c - (c + 1) Y n_(c+1) / n_c with Y = n_1 / (n_1 + 2 n_2); n_c is the number of counts equal to c.

    A small text or vocabulary may lack some n_c, so that D_c is undefined or not in (0, c]. FALLBACK replaces it then.
    """
    n = [int((counts == c).sum()) for c in range(5)]
    Y = n[1] / (n[1] + 2 * n[2]) if n[1] else math.nan
    found = [c - (c + 1) * Y * n[c + 1] / n[c] if n[c] else math.nan for c in (1, 2, 3)]
    D1, D2, D3 = (D if 0 < D <= c else FALLBACK[c - 1] for c, D in enumerate(found, start=1))
    return D1, D2, D3


Discounts = Callable[[int, Array], tuple[float, float, float]]  # length, its counts -> for counts of 1, 2, 3 and more


def _build(tokens: Array, size: int, order: int, rule: Discounts) -> NGram:
    if order < 1:
        raise WeftError(f"order is {order}", expected="1 (unigrams) or more")
    if not len(tokens):
        raise WeftError("there are no tokens to count", expected="some text")
    ids = _checked(np.asarray(tokens), size)
    levels: list[Level] = []
    discounts = []
    shorter = np.full(1, 1 / size)  # P of each n-gram without its first token
    for length, (keys, suffixes, counts) in enumerate(count_ngrams(ids, size, order), start=1):
        D = rule(length, counts)
        discounts.append(D)
        discounted = np.array([0.0, *D])[np.minimum(counts, 3)]
        contexts = keys // size if length > 1 else np.zeros(size, dtype=np.int64)
        number = len(levels[-1].keys) if levels else 1
        totals = np.bincount(contexts, counts, number)
        with np.errstate(invalid="ignore"):
            backoffs = np.where(totals > 0, np.bincount(contexts, discounted, number) / totals, 1.0)
        if levels:
            levels[-1].backoffs[:] = backoffs
            shorter = levels[-1].probs
        probs = (counts - discounted) / totals[contexts]
        probs += backoffs[contexts] * shorter[suffixes]
        levels.append(Level(keys, probs, np.ones(len(keys))))
    return NGram(size, tuple(levels), tuple(discounts))


def count_ngrams(ids: Array, size: int, order: int) -> Iterator[tuple[Array, Array, Array]]:
    """Counts the n-grams of each length: occurrences at the highest order, continuations below.

    Yields:
        The keys, the indices of the n-grams without their first token, one level below, and the counts.
    """
    keys, suffixes = np.arange(size), np.zeros(size, dtype=np.int64)
    occurrences = np.bincount(ids, minlength=size)
    indices = ids  # index of the n-gram that begins at each token
    for length in range(1, order + 1):
        if length == order:
            yield keys, suffixes, occurrences
            return
        longer = indices[:-1] * size + ids[length:]
        longer_keys, firsts, inverse, longer_occurrences = np.unique(
            longer, return_index=True, return_inverse=True, return_counts=True
        )
        longer_suffixes = indices[1:][firsts]
        counts = np.bincount(longer_suffixes, minlength=len(keys))
        if len(indices):
            counts[indices[0]] += 1  # the beginning of the text precedes its first n-gram
        yield keys, suffixes, counts
        keys, suffixes, occurrences, indices = longer_keys, longer_suffixes, longer_occurrences, inverse


def _at(values: Array, indices: Array, otherwise: Array | float) -> Array:
    """Returns the values at the indices, and `otherwise` for UNSEEN."""
    found = np.array(np.broadcast_to(otherwise, indices.shape), dtype=values.dtype)
    known = indices >= 0
    found[known] = values[indices[known]]
    return found


def _checked(tokens: Array, size: int) -> Array:
    ids = tokens.astype(np.int64)
    if len(ids) and not (ids.min() >= 0 and ids.max() < size):
        wrong = ids[(ids < 0) | (ids >= size)][0]
        raise WeftError(f"there is no token with id {wrong}", expected=f"0 to {size - 1}")
    return ids
