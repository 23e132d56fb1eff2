"""Examples of differing lengths: kept as ragged columns, drawn in batches of similar length.

An example is a row in one or more columns of numbers (the ids of a text and its label; the ids of a sentence and of
its translation). As with streams of text, an epoch is a pure function of (seed, epoch).
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError

IntArray = np.ndarray[Any, np.dtype[Any]]
Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Ragged:
    """Rows of whole numbers, each of its own length, in one array.

    >>> rows = Ragged.from_rows([[3, 1], [], [4]])
    >>> len(rows), rows[0].tolist(), rows.lengths.tolist()
    (3, [3, 1], [2, 0, 1])
    """

    values: IntArray
    ends: IntArray  # of each row; it begins where the one before it ends

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        listed = list(rows)
        ends = np.cumsum([len(row) for row in listed], dtype=np.int64)
        values = np.fromiter((value for row in listed for value in row), dtype=np.int32)
        return cls(values, ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> IntArray:
        return self.values[self.begins[row] : self.ends[row]]

    @cached_property
    def begins(self) -> IntArray:
        return np.concatenate([[0], self.ends])[:-1]

    @cached_property
    def lengths(self) -> IntArray:
        return self.ends - self.begins

    def with_end(self, mark: int) -> Ragged:
        """The same rows, each with the mark at its end."""
        return Ragged(np.insert(self.values, self.ends, mark), self.ends + np.arange(1, len(self) + 1))


def save_columns(path: Path, columns: Mapping[str, Ragged]) -> None:
    """Write the columns of some examples, as arrays in a zip (numpy's .npz)."""
    arrays = {
        f"{name}.{part}": getattr(column, part) for name, column in columns.items() for part in ("values", "ends")
    }
    with path.open("wb") as file:
        np.savez(file, **arrays)


def load_columns(path: Path) -> dict[str, Ragged]:
    """What `save_columns` wrote."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = dict.fromkeys(name.rpartition(".")[0] for name in arrays.files)
            return {name: Ragged(arrays[f"{name}.values"], arrays[f"{name}.ends"]) for name in names}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise WeftError(f"{path} cannot be read: {error}", expected="the encoded examples of a run") from error


class Padded(NamedTuple):
    """Rows side by side. What stands past a row's length is 0 and is never looked at."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)


def pad(rows: Sequence[Sequence[int] | IntArray]) -> Padded:
    """Rows of ids, padded to the longest. There is at least one step, even if all rows are empty."""
    lengths = [len(row) for row in rows]
    ids = np.zeros((len(rows), max([1, *lengths])), dtype=np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    return Padded(torch.from_numpy(ids), torch.tensor(lengths))


def take(column: Ragged, rows: IntArray) -> Padded:
    """Some rows of a column, padded to the longest of them: `pad` without a loop."""
    lengths = column.lengths[rows]
    steps = np.arange(max(1, int(lengths.max(initial=0))))
    inside = steps < lengths[:, None]
    ids = np.zeros(inside.shape, dtype=np.int64)
    ids[inside] = column.values[(column.begins[rows][:, None] + steps)[inside]]
    return Padded(torch.from_numpy(ids), torch.from_numpy(lengths))


@dataclass(frozen=True)
class Buckets(Generic[Batch]):
    """All examples once an epoch, in batches of similar length, made by `collate` from the numbers of their rows.

    A batch has at most `tokens` tokens, padding included, of its longest column, and at most `rows` rows; an example
    that is longer than that stands alone. Which of the rows of equal length meet, and the order of the batches, is
    another one each epoch; where the batches are cut is not, so that every epoch has as many.
    """

    lengths: IntArray  # (N,) or (N, columns): of each example, in every column that counts
    tokens: int
    rows: int
    seed: int
    collate: Callable[[IntArray], Batch]

    def __post_init__(self) -> None:
        if not len(self.lengths):
            raise WeftError("there are no examples to train on", expected="at least one")

    @cached_property
    def _cuts(self) -> list[int]:
        """Where each batch ends, among the examples in order of length."""
        return split_batches(self._columns[order_by_length(self._columns)], self.tokens, self.rows)

    @property
    def _columns(self) -> IntArray:
        return self.lengths.reshape(len(self.lengths), -1)

    @property
    def batches(self) -> int:
        return len(self._cuts)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        generator = np.random.default_rng((self.seed, number))
        order = order_by_length(self._columns, generator.random(len(self.lengths)))
        for batch in generator.permutation(self.batches)[start:]:
            yield self.collate(order[self._cuts[batch - 1] if batch else 0 : self._cuts[batch]])


def order_by_length(columns: IntArray, ties: IntArray | None = None) -> IntArray:
    """The rows of (N, columns) from the shortest to the longest: by the first column, then the next, then `ties`."""
    keys = [*([] if ties is None else [ties]), *columns.T[::-1]]
    return np.lexsort(keys)


def split_batches(columns: IntArray, tokens: int, rows: int) -> list[int]:
    """Where batches end among examples in order of length: as large as `tokens` (padding included) and `rows` allow."""
    ends: list[int] = []
    begin, longest = 0, 0
    for number, length in enumerate(columns.max(1).tolist()):
        longest = max(longest, length)
        if number > begin and ((number - begin + 1) * longest > tokens or number - begin == rows):
            ends.append(number)
            begin, longest = number, length
    return [*ends, len(columns)]


def in_batches(
    lengths: IntArray, run: Callable[[IntArray], Sequence[Any]], *, tokens: int = 8192, rows: int = 256
) -> list[Any]:
    """`run` on all examples in batches of similar length; its results in the order of the examples.

    >>> in_batches(np.array([3, 1, 2]), lambda rows: [f"row {row}" for row in rows], rows=2)
    ['row 0', 'row 1', 'row 2']
    """
    if not len(lengths):
        return []
    columns = lengths.reshape(len(lengths), -1)
    order, results = order_by_length(columns), [None] * len(lengths)
    begin = 0
    for end in split_batches(columns[order], tokens, rows):
        chosen = order[begin:end]
        for row, result in zip(chosen.tolist(), run(chosen), strict=True):
            results[row] = result
        begin = end
    return results


def hold_out(keys: Sequence[object], share: float, seed: int) -> tuple[list[int], list[int]]:
    """IntArray of the rows to train on and of those to hold out, about `share` of them, by chance.

    Rows of equal key (the same text, the same source sentence) stay on one side. Neither side is left empty unless
    the share is 0 or there is but one key.
    """
    different = list(dict.fromkeys(keys))
    count = min(len(different) - 1, max(1, round(len(different) * share))) if share > 0 else 0
    chosen = np.random.default_rng((seed, 0x5EED)).permutation(len(different))[:count]
    held = {different[number] for number in chosen.tolist()}
    train = [row for row, key in enumerate(keys) if key not in held]
    return train, [row for row, key in enumerate(keys) if key in held]
