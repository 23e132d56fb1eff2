"""n-gram language models: the Markov assumption with a memory of order - 1 tokens, smoothed after Kneser and Ney.

How likely w is after the context h, from the counts c(h w) and from the context h' that is one token shorter:

    P(w | h) = (c(h w) - D(c(h w))) / c(h) + b(h) P(w | h'),    b(h) = (what D has taken from h) / c(h)

At the highest order c counts occurrences. Below it, it counts in how many different surroundings an n-gram was met:
the different tokens before it (the beginning of the text being one more), because the shorter context is only asked
where the longer one does not know, and "Francisco" is frequent but met in one place alone.

- `kneser_ney`: one discount D for all counts, the lowest order as counted; Kneser and Ney 1995, interpolated.
- `modified_kneser_ney`: D1, D2, D3 for counts of 1, 2, 3 and more, for each order from its own counts of counts, and
  the lowest order mixed with the uniform distribution, so that nothing is impossible; Chen and Goodman 1998.

All n-grams of a length stand in one sorted array. An n-gram is known by its place there; its key is the place of
what is left without its last token, times V, plus the last token. So one binary search is one step down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions

Array = np.ndarray[Any, np.dtype[Any]]

NOWHERE = -1  # the place of an n-gram that was never met
FALLBACK = (0.5, 1.0, 1.5)  # discounts where the counts of counts give none
_CHUNK = 1 << 20  # tokens measured at a time


class Level(NamedTuple):
    """All n-grams of one length, sorted by key."""

    keys: Array  # (N,) place of the n-gram without its last token, times V, plus the last token
    probs: Array  # (N,) P(last token | those before it)
    backoffs: Array  # (N,) b: what the n-gram, as a context, leaves to its shorter self; 1 where nothing followed it


@dataclass(frozen=True)
class NGram:
    """A language model of n-grams. It is a Stepper, whose state is for each row the places of its contexts.

    The first level has an entry for every token of the vocabulary, met or not: the place is the id.
    """

    size: int  # V
    levels: tuple[Level, ...]
    discounts: tuple[tuple[float, float, float], ...]  # of each length, for counts of 1, 2, 3 and more

    @property
    def order(self) -> int:
        return len(self.levels)

    def __len__(self) -> int:
        """How many n-grams of all lengths there are."""
        return sum(len(level.keys) for level in self.levels)

    # Probabilities

    def initial_state(self, rows: int) -> Tensor:
        """The state before any token: no context of any length is known."""
        return torch.full((rows, self.order - 1), NOWHERE)

    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read one token a row, (R,); log-probabilities (R, V) of the next, and the places of the new contexts."""
        tokens = self._checked(ids.numpy())
        contexts = self._advance(tokens, state.numpy())
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(self._table(contexts))), torch.from_numpy(contexts)

    def select(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]

    def evaluate(self, tokens: Array) -> Likelihood:
        """How well the model foretells the tokens, each but the first from those before it."""
        if len(tokens) < 2:
            raise WeftError(f"there are {len(tokens)} tokens to evaluate on", expected="at least 2")
        nats, memory = 0.0, self.order - 1
        with np.errstate(divide="ignore"):
            for begin in range(1, len(tokens), _CHUNK):
                before = min(begin, memory)
                probs = self._probs_along(self._checked(tokens[begin - before : begin + _CHUNK]))
                nats -= float(np.log(probs[before:]).sum())
        return Likelihood(nats, len(tokens) - 1)

    context = "left"

    def predict_tokens(self, tokens: Array) -> TokenPredictions:
        """The same, with how often the likeliest token was the true one."""
        likelihood = self.evaluate(tokens)
        ids, right, contexts = self._checked(tokens), 0, np.full((1, self.order - 1), NOWHERE)
        rows = max(1, _CHUNK // self.size)
        for begin in range(0, len(ids) - 1, rows):
            some = ids[begin : min(begin + rows, len(ids) - 1)]
            along = [contexts]
            for token in some:
                along.append(self._advance(np.array([token]), along[-1]))
            contexts = along[-1]
            best = self._table(np.concatenate(along[1:])).argmax(-1)
            right += int((best == ids[begin + 1 : begin + 1 + len(some)]).sum())
        return TokenPredictions(likelihood, right)

    def _advance(self, tokens: Array, contexts: Array) -> Array:
        """The places of the contexts that end with these tokens, from the places of those before them."""
        found = np.full_like(contexts, NOWHERE)
        if self.order > 1:
            found[:, 0] = tokens
        for length in range(2, self.order):
            found[:, length - 1] = self._find(length, contexts[:, length - 2], tokens)
        return found

    def _find(self, length: int, contexts: Array, tokens: Array) -> Array:
        """The places of the n-grams of that length: a context each and the token after it."""
        keys = self.levels[length - 1].keys
        wanted = np.where(contexts >= 0, contexts * self.size + tokens, NOWHERE)
        places = np.searchsorted(keys, wanted)
        places[places == len(keys)] = NOWHERE
        return np.where(_at(keys, places, NOWHERE) == wanted, places, NOWHERE)

    def _table(self, contexts: Array) -> Array:
        """P of every token after each row's contexts: (R, order - 1) places to (R, V)."""
        probs = np.tile(self.levels[0].probs, (len(contexts), 1))
        for length in range(1, self.order):
            self._mix(probs, contexts[:, length - 1], length)
        return probs

    def _mix(self, probs: Array, contexts: Array, length: int) -> None:
        """Put the level above into probabilities (R, V) that know contexts shorter than `length` only."""
        level = self.levels[length]
        rows = np.flatnonzero(contexts >= 0)
        probs[rows] *= self.levels[length - 1].backoffs[contexts[rows], None]
        begins = np.searchsorted(level.keys, contexts[rows] * self.size)
        counts = np.searchsorted(level.keys, (contexts[rows] + 1) * self.size) - begins
        # All n-grams of all rows' contexts, one after another.
        places = np.arange(counts.sum()) + np.repeat(begins - np.cumsum(counts) + counts, counts)
        probs[np.repeat(rows, counts), level.keys[places] % self.size] = level.probs[places]

    def _probs_along(self, tokens: Array) -> Array:
        """P(token | those before it) for every token of a text, the first one from nothing."""
        probs = self.levels[0].probs[tokens]
        contexts = tokens  # the places of the n-grams of one length that end at each token
        for length in range(2, self.order + 1):
            before = np.concatenate([[NOWHERE], contexts[:-1]])
            contexts = self._find(length, before, tokens)
            shorter = probs * _at(self.levels[length - 2].backoffs, before, 1.0)
            probs = _at(self.levels[length - 1].probs, contexts, shorter)
        return probs

    def _checked(self, tokens: Array) -> Array:
        return _checked(tokens, self.size)

    # Storage

    def tensors(self) -> dict[str, Tensor]:
        """All of the model but its size and discounts, by name."""
        return {
            f"{name}.{length}": torch.from_numpy(array)
            for length, level in enumerate(self.levels, start=1)
            for name, array in level._asdict().items()
        }

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], size: int, discounts: Sequence[tuple[float, float, float]]
    ) -> NGram:
        """The model whose `tensors`, size and discounts these are."""
        levels = tuple(
            Level(*(tensors[f"{name}.{length}"].numpy() for name in Level._fields))
            for length in range(1, len(discounts) + 1)
        )
        return cls(size, levels, tuple(discounts))


def kneser_ney(tokens: Array, size: int, order: int, *, discount: float = 0.75) -> NGram:
    """Interpolated Kneser-Ney with one discount, and unigrams as counted: a token never met is impossible."""
    if not 0 < discount < 1:
        raise WeftError(f"discount is {discount}", expected="more than 0 and less than 1")
    return _build(tokens, size, order, lambda length, counts: (discount,) * 3 if length > 1 else (0.0,) * 3)


def modified_kneser_ney(tokens: Array, size: int, order: int) -> NGram:
    """Interpolated modified Kneser-Ney: three discounts for each order, from the counts of counts."""
    return _build(tokens, size, order, lambda length, counts: modified_discounts(counts))


def modified_discounts(counts: Array) -> tuple[float, float, float]:
    """D_c = c - (c + 1) Y n_(c+1) / n_c with Y = n_1 / (n_1 + 2 n_2), n_c being how many of the counts are c.

    A small text or a small alphabet may have none of some n_c, and then no sensible D_c, which would have to lie above
    0 and not above c: FALLBACK stands in for each of those.
    """
    n = [int((counts == c).sum()) for c in range(5)]
    Y = n[1] / (n[1] + 2 * n[2]) if n[1] else math.nan
    found = [c - (c + 1) * Y * n[c + 1] / n[c] if n[c] else math.nan for c in (1, 2, 3)]
    D1, D2, D3 = (D if 0 < D <= c else FALLBACK[c - 1] for c, D in enumerate(found, start=1))
    return D1, D2, D3


Discounts = Callable[[int, Array], tuple[float, float, float]]  # length, its counts -> for counts of 1, 2, 3 and more


class _Counted(NamedTuple):
    """The n-grams of one length."""

    keys: Array
    suffixes: Array  # places of the n-grams without their first token, one length below
    counts: Array


def _build(tokens: Array, size: int, order: int, rule: Discounts) -> NGram:
    if order < 1:
        raise WeftError(f"order is {order}", expected="1 (no memory at all) or more")
    if not len(tokens):
        raise WeftError("there are no tokens to count", expected="some text")
    ids = _checked(np.asarray(tokens), size)
    levels: list[Level] = []
    discounts = []
    shorter = np.full(1, 1 / size)  # P of each n-gram without its first token
    for length, (keys, suffixes, counts) in enumerate(_count(ids, size, order), start=1):
        D = rule(length, counts)
        discounts.append(D)
        taken = np.array([0.0, *D])[np.minimum(counts, 3)]
        contexts = keys // size if length > 1 else np.zeros(size, dtype=np.int64)
        number = len(levels[-1].keys) if levels else 1
        totals = np.bincount(contexts, counts, number)
        with np.errstate(invalid="ignore"):
            left = np.where(totals > 0, np.bincount(contexts, taken, number) / totals, 1.0)
        if levels:
            levels[-1].backoffs[:] = left
            shorter = levels[-1].probs
        probs = (counts - taken) / totals[contexts]
        probs += left[contexts] * shorter[suffixes]
        levels.append(Level(keys, probs, np.ones(len(keys))))
    return NGram(size, tuple(levels), tuple(discounts))


def _count(ids: Array, size: int, order: int) -> Iterator[_Counted]:
    """The n-grams of each length with what they count for: how often at the highest, in how many places below it."""
    keys, suffixes = np.arange(size), np.zeros(size, dtype=np.int64)
    occurrences = np.bincount(ids, minlength=size)
    places = ids  # of the n-gram that begins at each token
    for length in range(1, order + 1):
        if length == order:
            yield _Counted(keys, suffixes, occurrences)
            return
        longer = places[:-1] * size + ids[length:]
        longer_keys, firsts, inverse, longer_occurrences = _unique(longer)
        longer_suffixes = places[1:][firsts]
        counts = np.bincount(longer_suffixes, minlength=len(keys))
        if len(places):
            counts[places[0]] += 1  # the beginning of the text stands before its first n-gram
        yield _Counted(keys, suffixes, counts)
        keys, suffixes, occurrences, places = longer_keys, longer_suffixes, longer_occurrences, inverse


def _unique(values: Array) -> tuple[Array, Array, Array, Array]:
    """The different values in order, where each is met first, which one each value is, and how often each is met."""
    return np.unique(values, return_index=True, return_inverse=True, return_counts=True)


def _at(values: Array, places: Array, otherwise: Array | float) -> Array:
    """The values at the places, and for NOWHERE the other one."""
    found = np.array(np.broadcast_to(otherwise, places.shape), dtype=values.dtype)
    known = places >= 0
    found[known] = values[places[known]]
    return found


def _checked(tokens: Array, size: int) -> Array:
    ids = tokens.astype(np.int64)
    if len(ids) and not (ids.min() >= 0 and ids.max() < size):
        wrong = ids[(ids < 0) | (ids >= size)][0]
        raise WeftError(f"there is no token with id {wrong}", expected=f"0 to {size - 1}")
    return ids
