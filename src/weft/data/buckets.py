"""Batches of examples of similar length.

An example is a row in one or more columns (the ids of a text and its label; the features of a recording and the ids of
what is said). As with `weft.data.windows`, an epoch is a pure function of (seed, epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from weft.data.column import Array, Column, IntArray
from weft.data.sharing import shared_map
from weft.errors import WeftError

Batch = TypeVar("Batch")


class Padded(NamedTuple):
    """A batch of rows padded with 0 to the longest. The padding is never read."""

    ids: Tensor  # (B, T, ...) ids, or other values
    lengths: Tensor  # (B,)


def pad(rows: Sequence[Sequence[int] | Array]) -> Padded:
    """Pad rows of ids to the longest. T is at least 1, even if all rows are empty."""
    lengths = [len(row) for row in rows]
    ids = np.zeros((len(rows), max([1, *lengths])), dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return Padded(torch.from_numpy(ids), torch.tensor(lengths))


def take(column: Column, rows: IntArray, *, end: int | None = None) -> Padded:
    """Selects rows (B,) of a column, appends `end` to each, such as the id of "<eos>", and pads them to the longest.

    >>> take(Column.from_rows([[3, 1], [4]]), np.array([1, 0]), end=9).ids.tolist()
    [[4, 9, 0], [3, 1, 9]]
    """
    lengths = column.lengths[rows]
    steps = np.arange(max(1, int(lengths.max(initial=0)) + (end is not None)))
    inside = steps < lengths[:, None]
    values = np.zeros((*inside.shape, *column.values.shape[1:]), batch_type(column.values.dtype))
    values[inside] = column.values[(column.starts[rows][:, None] + steps)[inside]]
    if end is not None:
        values[np.arange(len(rows)), lengths] = end
        lengths = lengths + 1
    return Padded(torch.from_numpy(values), torch.from_numpy(lengths))


def batch_type(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The type of values in a batch: torch takes ids as int64; other values keep their type."""
    return np.dtype(np.int64) if stored.kind in "iu" else stored


@dataclass(frozen=True)
class Buckets(Generic[Batch]):
    """Batches of examples of similar length; each example occurs once per epoch.

    A batch has at most `max_tokens` tokens, padding included, in its longest column, and at most `size` examples; an
    example that exceeds `max_tokens` is a batch of its own. Batches are in random order, and examples of equal length
    are shuffled; the batch boundaries are fixed, so that every epoch has the same number of batches.
    """

    lengths: IntArray  # (N,) or (N, columns) the length of each example, in every column that counts
    max_tokens: int  # the maximum number of tokens per batch
    size: int  # the maximum number of examples per batch
    seed: int  # the random seed
    collate: Callable[[IntArray], Batch]  # makes a batch from the indices (B,) of its examples

    def __post_init__(self) -> None:
        if not len(self.lengths):
            raise WeftError("there are no examples to train on", expected="at least one")

    @cached_property
    def _ends(self) -> list[int]:
        """Where each batch ends, among the examples sorted by length."""
        return split_batches(self._columns[order_by_length(self._columns)], self.max_tokens, self.size)

    @property
    def _columns(self) -> IntArray:
        return self.lengths.reshape(len(self.lengths), -1)

    @property
    def batches(self) -> int:
        """The number of batches per epoch."""
        return len(self._ends)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """Iterate over the batches of an epoch, beginning with batch `start`."""
        return map(self.collate, self._rows(number, start))

    def sliced_epoch(self, number: int, start: int, slices: int) -> Iterator[Callable[[int], Batch | None]]:
        """Like `epoch`, but each batch is a function that reads one of its slices; None: the slice has no examples.

        Examples of a batch are sorted by length; every slice takes some of each length, so that all take equally long.
        """

        for rows in self._rows(number, start):
            yield partial(self._slice, rows, slices)

    def _slice(self, rows: IntArray, slices: int, part: int) -> Batch | None:
        return self.collate(rows[part::slices]) if part < len(rows) else None

    def _rows(self, number: int, start: int) -> Iterator[IntArray]:
        """The indices of the examples of each batch."""
        generator = np.random.default_rng((self.seed, number))
        order = order_by_length(self._columns, generator.random(len(self.lengths)))
        for batch in generator.permutation(self.batches)[start:]:
            yield order[self._ends[batch - 1] if batch else 0 : self._ends[batch]]


def order_by_length(columns: IntArray, ties: IntArray | None = None) -> IntArray:
    """The indices that sort the rows of `columns` (N, columns) by the first column, then the next, then `ties` (N,)."""
    keys = [*([] if ties is None else [ties]), *columns.T[::-1]]
    return np.lexsort(keys)


def split_batches(columns: IntArray, max_tokens: int, size: int) -> list[int]:
    """Split examples sorted by length into the largest allowed batches; returns the end of each."""
    ends: list[int] = []
    start, longest = 0, 0
    for index, length in enumerate(columns.max(1).tolist()):
        longest = max(longest, length)
        if index > start and ((index - start + 1) * longest > max_tokens or index - start == size):
            ends.append(index)
            start, longest = index, length
    return [*ends, len(columns)]


def in_batches(
    lengths: IntArray, run: Callable[[IntArray], Sequence[Any]], *, max_tokens: int = 8192, size: int = 256
) -> list[Any]:
    """Calls `run` on the indices (B,) of examples of similar length; returns all its results in the order of examples.

    `lengths`, `max_tokens` and `size` are as in `Buckets`.

    >>> in_batches(np.array([3, 1, 2]), lambda rows: [f"row {row}" for row in rows], size=2)
    ['row 0', 'row 1', 'row 2']
    """
    if not len(lengths):
        return []
    columns = lengths.reshape(len(lengths), -1)
    order, results = order_by_length(columns), [None] * len(lengths)
    batches = np.split(order, split_batches(columns[order], max_tokens, size)[:-1])
    for chosen, found in zip(batches, shared_map(run, batches), strict=True):
        for row, result in zip(chosen.tolist(), found, strict=True):
            results[row] = result
    return results


def hold_out(keys: Sequence[object], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Split rows at random into training rows and held-out rows.

    Rows with equal keys (the same text, the same source sentence) stay on one side; the fraction is one of the
    different keys. Neither side is empty, unless the fraction is 0 or there is only one key.

    Returns:
        The indices of the training rows and of the held-out rows.
    """
    different = list(dict.fromkeys(keys))
    count = min(len(different) - 1, max(1, round(len(different) * fraction))) if fraction > 0 else 0
    chosen = np.random.default_rng((seed, 0x5EED)).permutation(len(different))[:count]
    held_out = {different[index] for index in chosen.tolist()}
    train = [row for row, key in enumerate(keys) if key not in held_out]
    return train, [row for row, key in enumerate(keys) if key in held_out]
