"""Columns: the values of examples of different lengths, in one array that is mapped into memory when it is read.

    NAME.npy         the values of all rows, one after another: (total, ...) of any numeric type
    NAME.ends.npy    where each row ends; missing where every value is a row of its own, as in a stream of tokens

Files are written as a stream and appear under their names when they are complete. Nothing is unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from weft.errors import WeftError

Array = np.ndarray[Any, np.dtype[Any]]
IntArray = np.ndarray[Any, np.dtype[Any]]

_ROWS = 1 << 14  # written at a time


@dataclass(frozen=True)
class Column:
    """Rows of values, each row of its own length: ids, feature vectors, masks.

    >>> rows = Column.from_rows([[3, 1], [], [4]])
    >>> len(rows), rows[0].tolist(), rows.lengths.tolist()
    (3, [3, 1], [2, 0, 1])
    """

    values: Array  # (total, ...)
    stored_ends: IntArray | None = None  # (N,) None: every value is a row of its own

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any] | Array], dtype: Any = np.int32) -> Column:
        arrays = [np.asarray(row, dtype) for row in rows]
        ends = np.cumsum([len(array) for array in arrays], dtype=np.int64)
        return cls(np.concatenate(arrays) if arrays else np.empty(0, dtype), ends)

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Column:
        """The bytes of texts in UTF-8."""
        return cls.from_rows((np.frombuffer(text.encode(), np.uint8) for text in texts), np.uint8)

    def texts(self) -> list[str]:
        """The texts of a column of their bytes."""
        if self.values.dtype != np.uint8 or self.values.ndim != 1:
            raise ValueError(f"they are {self.values.dtype}, not the bytes of texts")
        return [self[row].tobytes().decode() for row in range(len(self))]

    def __len__(self) -> int:
        return len(self.values if self.stored_ends is None else self.stored_ends)

    def __getitem__(self, row: int) -> Array:
        return self.values[self.starts[row] : self.ends[row]]

    @cached_property
    def ends(self) -> IntArray:
        """(N,) where each row ends; it starts where the row before it ends."""
        return np.arange(1, len(self.values) + 1) if self.stored_ends is None else self.stored_ends

    @cached_property
    def starts(self) -> IntArray:
        """(N,) where each row starts."""
        return np.concatenate([[0], self.ends])[:-1]

    @cached_property
    def lengths(self) -> IntArray:
        """(N,) the length of each row."""
        return self.ends - self.starts


def write_column(path: Path, rows: Column | Iterable[Sequence[Any] | Array], dtype: Any = np.int32) -> None:
    """Writes rows to NAME.npy and, unless each has one value, their ends beside it; only some rows are in memory."""
    if isinstance(rows, Column):
        write_values(path, [rows.values], rows.values.dtype)
        lengths = rows.lengths
    else:
        counts: list[int] = []
        write_values(path, _blocks(rows, dtype, counts), dtype)
        lengths = np.array(counts, np.int64)
    if (lengths != 1).any():
        write_values(ends_file(path), [np.cumsum(lengths, dtype=np.int64)], np.int64)
    else:
        ends_file(path).unlink(missing_ok=True)


def _blocks(rows: Iterable[Sequence[Any] | Array], dtype: Any, lengths: list[int]) -> Iterator[Array]:
    """The values of some rows at a time; notes the length of each row."""
    remaining = iter(rows)
    while held := [np.asarray(row, dtype) for row in islice(remaining, _ROWS)]:
        lengths += map(len, held)
        yield np.concatenate(held)


def write_values(path: Path, blocks: Iterable[Array], dtype: Any) -> int:
    """Writes blocks (n, ...) of values one after another as one array; returns the length of the array."""
    kind, count, shape = np.dtype(dtype), 0, tuple[int, ...]()
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            for block in blocks:
                if not file.tell():
                    shape = block.shape[1:]
                    _write_header(file, kind, (0, *shape))
                file.write(np.ascontiguousarray(block, kind).tobytes())
                count += len(block)
            file.seek(0)
            _write_header(file, kind, (count, *shape))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _write_header(file: Any, kind: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """A header of the same size for every length: NumPy leaves room for the digits of the first dimension."""
    descr = np.lib.format.dtype_to_descr(kind)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def ends_file(path: Path) -> Path:
    """The file of a column's ends."""
    return path.with_name(f"{path.name.removesuffix('.npy')}.ends.npy")


def open_column(path: Path) -> Column:
    """Maps a column into memory: rows are read when they are used. Refuses ends that do not fit the values."""
    values, file = open_values(path), ends_file(path)
    if not file.exists():
        return Column(values)
    ends = open_values(file)
    ordered = ends.ndim == 1 and ends.dtype.kind == "i" and not (np.diff(ends, prepend=0) < 0).any()
    if not ordered or ends[-1:].sum() != len(values):
        raise WeftError(f"{file} does not fit {path.name}", expected="where each row of the column ends")
    return Column(values, ends)


def open_values(path: Path) -> Array:
    """Maps the array of numbers of a file into memory."""
    try:
        values = np.lib.format.open_memmap(path, mode="r")  # as np.load maps arrays; it reads nothing else
        if values.dtype.kind not in "iufb" or not values.ndim:
            raise ValueError("it is not an array of numbers")
    except (OSError, ValueError, EOFError, SyntaxError, TokenError, MemoryError, OverflowError) as error:
        raise WeftError(f"{path} cannot be read: {error}", expected="a column of stored data") from error
    return values


class JoinedValues:
    """The values of several columns as one: has a length and slices, which are copied into memory.

    >>> values = JoinedValues([np.array([1, 2]), np.array([3, 4, 5])])
    >>> len(values), values[1:4].tolist(), len(values.part(2, 5))
    (5, [2, 3, 4], 3)
    """

    def __init__(self, arrays: Sequence[Array], begin: int = 0, end: int | None = None) -> None:
        self._arrays, self._begin = arrays, begin
        self._end = sum(map(len, arrays)) if end is None else end

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._arrays[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._arrays[0].shape[1:])

    @cached_property
    def _ends(self) -> IntArray:
        return np.cumsum([len(array) for array in self._arrays])

    def __len__(self) -> int:
        return self._end - self._begin

    def part(self, begin: int, end: int) -> JoinedValues:
        """The values from `begin` to `end`, not copied."""
        return JoinedValues(self._arrays, self._begin + begin, self._begin + end)

    def __getitem__(self, where: slice) -> Array:
        begin, end, step = where.indices(len(self))
        assert step == 1, "only contiguous slices"
        begin, end = begin + self._begin, max(begin, end) + self._begin
        pieces = []
        number = int(np.searchsorted(self._ends, begin, side="right"))
        while begin < end:
            start = int(self._ends[number - 1]) if number else 0
            pieces.append(self._arrays[number][begin - start : end - start])
            begin, number = begin + len(pieces[-1]), number + 1
        return np.concatenate(pieces) if pieces else np.array(self._arrays[0][:0])
