"""Examples of different lengths: stored as ragged columns, and batched with examples of similar length.

An example is a row in one or more columns of integers (the ids of a text and its label; the ids of a sentence and of
its translation). As with `weft.data.windows`, an epoch is a pure function of (seed, epoch).
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

from weft.data.sharing import shared_map
from weft.errors import WeftError

IntArray = np.ndarray[Any, np.dtype[Any]]
Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Ragged:
    """Rows of integers, each of its own length, stored in one array.

    >>> rows = Ragged.from_rows([[3, 1], [], [4]])
    >>> len(rows), rows[0].tolist(), rows.lengths.tolist()
    (3, [3, 1], [2, 0, 1])
    """

    values: IntArray  # (total length,)
    ends: IntArray  # (N,) where each row ends; it starts where the row before it ends

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        listed = list(rows)
        ends = np.cumsum([len(row) for row in listed], dtype=np.int64)
        values = np.fromiter((value for row in listed for value in row), dtype=np.int32)
        return cls(values, ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> IntArray:
        return self.values[self.starts[row] : self.ends[row]]

    @cached_property
    def starts(self) -> IntArray:
        """(N,) where each row starts."""
        return np.concatenate([[0], self.ends])[:-1]

    @cached_property
    def lengths(self) -> IntArray:
        """(N,) the length of each row."""
        return self.ends - self.starts


def save_columns(path: Path, columns: Mapping[str, Ragged]) -> None:
    """Write columns to a NumPy .npz file."""
    arrays = {
        f"{name}.{part}": getattr(column, part) for name, column in columns.items() for part in ("values", "ends")
    }
    with path.open("wb") as file:
        np.savez(file, **arrays)


def load_columns(path: Path) -> dict[str, Ragged]:
    """Open the columns that `save_columns` wrote. They are memory-mapped: rows are read when they are used.

    Raises:
        WeftError: The file is no such file, or its columns are inconsistent.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            # What is stored as it is cannot be larger than the file.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("it has compressed members")
            members = {member.filename.removesuffix(".npy"): member.header_offset for member in archive.infolist()}
        names = dict.fromkeys(name.rpartition(".")[0] for name in members)
        columns = {
            name: Ragged(*(_map_array(path, members[f"{name}.{part}"]) for part in ("values", "ends")))
            for name in names
        }
        for name, column in columns.items():
            values, ends = column.values, column.ends
            integers = values.ndim == ends.ndim == 1 and values.dtype.kind in "iu" and ends.dtype.kind in "iu"
            last = int(ends[-1]) if integers and len(ends) else 0
            if not integers or last != len(values) or (np.diff(ends, prepend=0) < 0).any():
                raise ValueError(f"the column {name!r} is inconsistent")
    except (OSError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile) as error:
        raise WeftError(f"{path} cannot be read: {error}", expected="the encoded examples of a run") from error
    return columns


def _map_array(path: Path, offset: int) -> IntArray:
    """Maps an array of an .npz file, whose member begins at `offset`, into memory.

    Raises:
        ValueError: it is not an array of one dimension that lies in the file.
    """
    with path.open("rb") as file:
        file.seek(offset + 26)  # the lengths of the member's name and of its extra field, in the local header
        skipped = sum(int.from_bytes(file.read(2), "little") for _ in range(2))
        file.seek(offset + 30 + skipped)
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"an array has version {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if len(shape) != 1 or dtype.hasobject:
            raise ValueError("an array is not a column of integers")
        if not shape[0]:
            return np.empty(0, dtype)
        return np.memmap(path, dtype, "r", file.tell(), shape)


class Padded(NamedTuple):
    """A batch of rows padded with 0 to the longest. The padding is never read."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)


def pad(rows: Sequence[Sequence[int] | IntArray]) -> Padded:
    """Pad rows of ids to the longest. T is at least 1, even if all rows are empty."""
    lengths = [len(row) for row in rows]
    ids = np.zeros((len(rows), max([1, *lengths])), dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return Padded(torch.from_numpy(ids), torch.tensor(lengths))


def take(column: Ragged, rows: IntArray, *, end: int | None = None) -> Padded:
    """Select rows of a column and pad them to the longest: `pad` without a Python loop.

    Args:
        column: the column.
        rows: (B,) indices of the rows.
        end: a value to append to each row, such as the id of "<eos>"; None: nothing.

    >>> take(Ragged.from_rows([[3, 1], [4]]), np.array([1, 0]), end=9).ids.tolist()
    [[4, 9, 0], [3, 1, 9]]
    """
    lengths = column.lengths[rows]
    steps = np.arange(max(1, int(lengths.max(initial=0)) + (end is not None)))
    inside = steps < lengths[:, None]
    ids = np.zeros(inside.shape, dtype=np.int64)
    ids[inside] = column.values[(column.starts[rows][:, None] + steps)[inside]]
    if end is not None:
        ids[np.arange(len(rows)), lengths] = end
        lengths = lengths + 1
    return Padded(torch.from_numpy(ids), torch.from_numpy(lengths))


@dataclass(frozen=True)
class Buckets(Generic[Batch]):
    """Batches of examples of similar length; each example occurs once per epoch.

    A batch has at most `max_tokens` tokens, padding included, in its longest column, and at most `size` examples; an
    example that exceeds `max_tokens` is a batch of its own. Batches are in random order, and examples of equal length
    are shuffled; the batch boundaries are fixed, so that every epoch has the same number of batches.

    Attributes:
        lengths: (N,) or (N, columns) the length of each example, in every column that counts.
        max_tokens: the maximum number of tokens per batch.
        size: the maximum number of examples per batch.
        seed: the random seed.
        collate: makes a batch from the indices (B,) of its examples.
    """

    lengths: IntArray
    max_tokens: int
    size: int
    seed: int
    collate: Callable[[IntArray], Batch]

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

        def slicer(rows: IntArray) -> Callable[[int], Batch | None]:
            return lambda part: self.collate(rows[part::slices]) if part < len(rows) else None

        return map(slicer, self._rows(number, start))

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
    """Call `run` on batches of examples of similar length, and return its results in the order of the examples.

    Args:
        lengths: (N,) or (N, columns) the length of each example.
        run: maps the indices (B,) of a batch to B results.
        max_tokens: the maximum number of tokens per batch, padding included.
        size: the maximum number of examples per batch.

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

    Rows with equal keys (the same text, the same source sentence) stay on one side. Neither side is empty, unless the
    fraction is 0 or there is only one key.

    Args:
        keys: the key of each row.
        fraction: the fraction of the different keys to hold out.
        seed: the random seed.

    Returns:
        The indices of the training rows and of the held-out rows.
    """
    different = list(dict.fromkeys(keys))
    count = min(len(different) - 1, max(1, round(len(different) * fraction))) if fraction > 0 else 0
    chosen = np.random.default_rng((seed, 0x5EED)).permutation(len(different))[:count]
    held_out = {different[index] for index in chosen.tolist()}
    train = [row for row, key in enumerate(keys) if key not in held_out]
    return train, [row for row, key in enumerate(keys) if key in held_out]
