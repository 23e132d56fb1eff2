"""Windows of one long stream: batches for language models, and passages for fill-in-the-blank models.

The stream is the values of a column, token ids or vectors of numbers, usually memory-mapped, so that it need not fit
into memory. An epoch is a pure function of (seed, epoch), so that a resumed run continues with exactly the batch that
comes next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.data.buckets import batch_type
from weft.data.column import Array
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError

Tokens = Array  # (N, ...) the values of a stream, or JoinedValues of several files
Starts = np.ndarray[Any, np.dtype[np.int64]]  # (B,) where each row of a batch starts

ROW_TOKENS = 16384  # in evaluation: a longer text is read as several rows of about this length
MOST_STORED = 1 << 20  # windows whose random order is held in memory, 8 bytes each; a longer one is computed
FEISTEL_ROUNDS = 6
MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits are those of the golden ratio


class Window(NamedTuple):
    """A batch for a model that predicts the next value of a stream."""

    inputs: Tensor  # (B, T, ...) token ids, or other values
    targets: Tensor  # (B, T, ...) the values one step later; past the end of the stream IGNORE_INDEX, of floats NaN
    reset_state: bool  # whether the recurrent state starts from its initial value


@dataclass(frozen=True)
class TrainingWindows(ABC):
    """Batches of `batch_size` windows of `seq_length` tokens each. An epoch depends only on the seed and its number."""

    tokens: Tokens
    batch_size: int
    seq_length: int
    seed: int

    def __post_init__(self) -> None:
        needed, count = self.seq_length * self.batch_size + self.seq_length, len(self.tokens)
        if count < needed:
            size, length = "`batch.size=1`", "`batch.seq_length={}`"
            ways = [length.format(count // (self.batch_size + 1))] if count > self.batch_size else []
            ways += [size] if count >= 2 * self.seq_length else []
            if not ways and count > 1:
                ways = [f"{size} and {length.format(count // 2)}"]
            steps = "1 step" if self.seq_length == 1 else f"{self.seq_length} steps"
            raise WeftError(
                f"the text has {count:,} tokens",
                expected=f"at least {needed:,} for one batch of {self.batch_size} rows of {steps}",
                hint=", or ".join(["more text", *ways]),
            )

    @property
    def batches(self) -> int:
        """The number of batches per epoch, the same for every offset."""
        return (len(self.tokens) - self.seq_length) // self.batch_size // self.seq_length

    @abstractmethod
    def _starts(self, number: int, start: int) -> Iterator[tuple[Starts, bool]]:
        """Where the rows of each batch of an epoch start, from batch `start` on, and whether it resets the state."""

    def epoch(self, number: int, start: int = 0) -> Iterator[Window]:
        """Iterate over the batches of an epoch, beginning with batch `start`."""
        for starts, reset_state in self._starts(number, start):
            yield _window(self.tokens, starts, self.seq_length, reset_state=reset_state)

    def sliced_epoch(self, number: int, start: int, slices: int) -> Iterator[Callable[[int], Window | None]]:
        """Like `epoch`, but each batch is a function that reads one of its slices; None: the slice has no rows."""
        for starts, reset_state in self._starts(number, start):
            parts = np.array_split(
                starts, slices
            )  # consecutive rows, as torch.tensor_split splits the state of all rows
            yield partial(self._slice, parts, reset_state=reset_state)

    def _slice(self, parts: Sequence[Starts], number: int, *, reset_state: bool) -> Window | None:
        part = parts[number]
        return _window(self.tokens, part, self.seq_length, reset_state=reset_state) if len(part) else None


class SequentialWindows(TrainingWindows):
    """Consecutive windows: the text is split into `batch_size` long rows, and each batch continues the one before.

    The state is carried from batch to batch and reset at the start of an epoch. The rows start at a random offset in
    each epoch, so that window boundaries vary.
    """

    def _starts(self, number: int, start: int) -> Iterator[tuple[Starts, bool]]:
        offset = int(np.random.default_rng((self.seed, number)).integers(self.seq_length))
        row_length = (len(self.tokens) - self.seq_length) // self.batch_size
        starts = offset + row_length * np.arange(self.batch_size)
        return ((starts + batch * self.seq_length, batch == 0) for batch in range(start, self.batches))


class RandomWindows(TrainingWindows):
    """Windows in random order, with random boundaries in each epoch; every batch resets the state."""

    def _starts(self, number: int, start: int) -> Iterator[tuple[Starts, bool]]:
        generator = np.random.default_rng((self.seed, number))
        offset = int(generator.integers(self.seq_length))
        windows = (len(self.tokens) - self.seq_length) // self.seq_length
        order = random_order(generator, windows)
        rows = np.arange(self.batch_size)
        return (
            (offset + self.seq_length * order(batch * self.batch_size + rows), True)
            for batch in range(start, self.batches)
        )


def random_order(generator: np.random.Generator, count: int) -> Callable[[Starts], Starts]:
    """A random permutation of range(count), as a function of positions; that of a large text is not held in memory."""
    if count <= MOST_STORED:
        order = generator.permutation(count)
        return lambda positions: order[positions]
    # A Feistel network permutes the numbers of an even number of bits. What it maps beyond `count` is mapped again.
    half = np.uint64(-(-(count - 1).bit_length() // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = generator.integers(1 << 63, size=FEISTEL_ROUNDS).astype(np.uint64)

    def encrypt(values: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
        left, right = values >> half, values & mask
        for key in keys:
            mixed = (right ^ key) * MIX
            mixed = (mixed ^ (mixed >> np.uint64(32))) * MIX
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        joined: np.ndarray[Any, np.dtype[np.uint64]] = (left << half) | right
        return joined

    def order_at(positions: Starts) -> Starts:
        found = encrypt(positions.astype(np.uint64))
        while (beyond := found >= count).any():
            found[beyond] = encrypt(found[beyond])
        return found.astype(np.int64)

    return order_at


WINDOWS: dict[str, type[TrainingWindows]] = {
    "sequential": SequentialWindows,
    "random": RandomWindows,
}


def evaluation_windows(tokens: Tokens, *, seq_length: int = 256, row_tokens: int = ROW_TOKENS) -> Iterator[Window]:
    """Windows in which every token but the first is a target exactly once, in order, with the state carried.

    A long text is read as several parallel rows, one per `row_tokens` tokens, for speed. The first tokens of each row
    then lack their left context, which is negligible at that length.
    """
    return evaluation_streams(tokens, 1, seq_length=seq_length, row_tokens=row_tokens)[0]


def evaluation_streams(
    tokens: Tokens, parts: int, *, seq_length: int = 256, row_tokens: int = ROW_TOKENS
) -> list[Iterator[Window]]:
    """The rows of `evaluation_windows` in at most `parts` groups, each an iterator over its own windows."""
    targets = len(tokens) - 1
    if targets < 1:
        raise WeftError(f"there are {len(tokens)} tokens to evaluate on", expected="at least 2")
    rows = min(64, max(1, targets // row_tokens))
    row_length = -(-targets // rows)

    def windows(group: Starts) -> Iterator[Window]:
        for start in range(0, row_length, seq_length):
            width = min(seq_length, row_length - start)
            yield _window(tokens, start + row_length * group, width, reset_state=start == 0)

    return [windows(group) for group in np.array_split(np.arange(rows), min(parts, rows))]


class Passage(NamedTuple):
    """A batch for a bidirectional model: rows of text, and the tokens to predict.

    The edge of a row means that the context beyond it is unknown, not that the text ends there.
    """

    ids: Tensor  # (B, T) input token ids
    targets: Tensor  # (B, T) the true ids at the same positions, or IGNORE_INDEX
    lengths: Tensor | None = None  # (B,) of each row; None: all rows are full


def evaluation_passages(
    tokens: Tokens, *, seq_length: int = 256, margin: int = 128, batch_size: int = 16
) -> Iterator[Passage]:
    """Passages in which every token but the first is a target exactly once, in order.

    Each target has at least `margin` tokens of context on either side, except at the ends of the text. The first token
    is left out so that the targets equal those of `evaluation_windows`. Rows of equal length share a batch, so that
    there is no padding.
    """
    if len(tokens) < 2:
        raise WeftError(f"there are {len(tokens)} tokens to evaluate on", expected="at least 2")
    batch: list[tuple[int, int, int, int]] = []  # of each row: start, first target, end of targets, end
    for first in range(1, len(tokens), seq_length):
        last = min(first + seq_length, len(tokens))
        row = (max(0, first - margin), first, last, min(last + margin, len(tokens)))
        if len(batch) == batch_size or (batch and batch[0][3] - batch[0][0] != row[3] - row[0]):
            yield _passage(tokens, batch)
            batch = []
        batch.append(row)
    yield _passage(tokens, batch)


def _passage(tokens: Tokens, rows: list[tuple[int, int, int, int]]) -> Passage:
    ids = torch.from_numpy(np.stack([tokens[start:end] for start, _, _, end in rows]).astype(np.int64))
    targets = torch.full_like(ids, IGNORE_INDEX)
    for row, (start, first, last, _) in enumerate(rows):
        targets[row, first - start : last - start] = ids[row, first - start : last - start]
    return Passage(ids, targets)


def _window(tokens: Tokens, starts: Starts, seq_length: int, *, reset_state: bool) -> Window:
    """One row of `seq_length` inputs and targets per start; targets past the end of the stream are IGNORE_INDEX."""
    kind = batch_type(np.asarray(tokens[:0]).dtype)  # tokens may be a tensor
    values = np.zeros((len(starts), seq_length + 1, *tokens.shape[1:]), kind)
    ends = np.minimum(starts + seq_length + 1, len(tokens))
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        values[row, : max(0, end - start)] = tokens[start:end]
    targets = values[:, 1:].copy()
    if ends[-1] - starts[-1] <= seq_length:
        beyond = IGNORE_INDEX if kind.kind == "i" else np.nan
        targets[starts[:, None] + np.arange(1, seq_length + 1) >= len(tokens)] = beyond
    return Window(torch.from_numpy(np.ascontiguousarray(values[:, :-1])), torch.from_numpy(targets), reset_state)
