"""Batches: one long stream of tokens cut into windows for a language model, or passages for one that fills blanks.

The tokens are a one-dimensional array, usually memory-mapped, so that a corpus larger than memory costs no more
than a small one. An epoch is a pure function of (seed, epoch): a resumed run finds its place by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError

IGNORE_INDEX = -100  # a target that is not counted: the padding of a last window

Tokens = np.ndarray[Any, np.dtype[Any]]


class Window(NamedTuple):
    """One batch of a language model: what it reads, what comes next, and whether the state starts anew."""

    inputs: Tensor  # (B, T) token ids
    targets: Tensor  # (B, T) the ids one step later, or IGNORE_INDEX
    reset_state: bool


@dataclass(frozen=True)
class SequentialWindows:
    """The text cut into `rows` long strips that are read side by side: adjacent batches continue each other.

    The strips begin at a random offset each epoch, so that windows do not always break at the same places. The
    state is carried from batch to batch and starts anew with the epoch.
    """

    tokens: Tokens
    rows: int
    steps: int
    seed: int

    def __post_init__(self) -> None:
        _check_size(self.tokens, self.rows, self.steps)

    @property
    def batches(self) -> int:
        """Batches of an epoch, the same for every offset."""
        return (len(self.tokens) - self.steps) // self.rows // self.steps

    def epoch(self, number: int, start: int = 0) -> Iterator[Window]:
        """The batches of that epoch from the batch `start` on."""
        offset = int(np.random.default_rng((self.seed, number)).integers(self.steps))
        strip = (len(self.tokens) - self.steps) // self.rows
        begins = offset + strip * np.arange(self.rows)
        for batch in range(start, self.batches):
            yield _window(self.tokens, begins + batch * self.steps, self.steps, reset_state=batch == 0)


@dataclass(frozen=True)
class RandomWindows:
    """Windows from anywhere in the text, each epoch another cut and another order; every batch starts anew."""

    tokens: Tokens
    rows: int
    steps: int
    seed: int

    def __post_init__(self) -> None:
        _check_size(self.tokens, self.rows, self.steps)

    @property
    def batches(self) -> int:
        return (len(self.tokens) - self.steps) // self.steps // self.rows

    def epoch(self, number: int, start: int = 0) -> Iterator[Window]:
        generator = np.random.default_rng((self.seed, number))
        offset = int(generator.integers(self.steps))
        begins = offset + self.steps * generator.permutation((len(self.tokens) - self.steps) // self.steps)
        for batch in range(start, self.batches):
            yield _window(
                self.tokens, begins[batch * self.rows : (batch + 1) * self.rows], self.steps, reset_state=True
            )


WINDOWS: dict[str, type[SequentialWindows] | type[RandomWindows]] = {
    "sequential": SequentialWindows,
    "random": RandomWindows,
}


def evaluation_windows(tokens: Tokens, *, steps: int = 256, row_tokens: int = 16384) -> Iterator[Window]:
    """Every token but the first as a target exactly once, in order, the state carried.

    A long text is read as several rows side by side, one for every `row_tokens` tokens, for speed; each row's
    first tokens then lack their context, which at that length is lost in the noise.
    """
    targets = len(tokens) - 1
    if targets < 1:
        raise WeftError(f"there are {len(tokens)} tokens to evaluate on", expected="at least 2")
    rows = min(64, max(1, targets // row_tokens))
    strip = -(-targets // rows)
    for begin in range(0, strip, steps):
        width = min(steps, strip - begin)
        begins = begin + strip * np.arange(rows)
        yield _window(tokens, begins, width, reset_state=begin == 0)


class Passage(NamedTuple):
    """One batch for a model that reads from both ends: rows of text, and which of their tokens it is asked for.

    A row's edge says that nothing is known beyond it, not that the text ends there.
    """

    ids: Tensor  # (B, T) token ids, what is read
    targets: Tensor  # (B, T) the true ids at the same places, or IGNORE_INDEX
    lengths: Tensor | None = None  # (B,) of each row; None: all are full


def evaluation_passages(tokens: Tokens, *, steps: int = 256, margin: int = 128, rows: int = 16) -> Iterator[Passage]:
    """Every token but the first as a target exactly once, in order, with at least `margin` tokens on either side.

    Only at the ends of the text are there fewer. The first is left out so that the targets are those of
    `evaluation_windows`. Rows of equal length share a batch, so that nothing is padded.
    """
    if len(tokens) < 2:
        raise WeftError(f"there are {len(tokens)} tokens to evaluate on", expected="at least 2")
    batch: list[tuple[int, int, int, int]] = []  # of each row: its first token, its first target, their ends
    for first in range(1, len(tokens), steps):
        last = min(first + steps, len(tokens))
        row = (max(0, first - margin), first, last, min(last + margin, len(tokens)))
        if len(batch) == rows or (batch and batch[0][3] - batch[0][0] != row[3] - row[0]):
            yield _passage(tokens, batch)
            batch = []
        batch.append(row)
    yield _passage(tokens, batch)


def _passage(tokens: Tokens, rows: list[tuple[int, int, int, int]]) -> Passage:
    ids = torch.from_numpy(np.stack([tokens[begin:end] for begin, _, _, end in rows]).astype(np.int64))
    targets = torch.full_like(ids, IGNORE_INDEX)
    for row, (begin, first, last, _) in enumerate(rows):
        targets[row, first - begin : last - begin] = ids[row, first - begin : last - begin]
    return Passage(ids, targets)


def _window(tokens: Tokens, begins: np.ndarray[Any, np.dtype[np.int64]], steps: int, *, reset_state: bool) -> Window:
    """Rows of `steps` inputs and targets from each beginning; what lies past the end of the text is IGNORE_INDEX."""
    ids = np.zeros((len(begins), steps + 1), dtype=np.int64)
    ends = np.minimum(begins + steps + 1, len(tokens))
    for row, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        ids[row, : max(0, end - begin)] = tokens[begin:end]
    targets = ids[:, 1:].copy()
    if ends[-1] - begins[-1] <= steps:
        targets[begins[:, None] + np.arange(1, steps + 1) >= len(tokens)] = IGNORE_INDEX
    return Window(torch.from_numpy(np.ascontiguousarray(ids[:, :-1])), torch.from_numpy(targets), reset_state)


def _check_size(tokens: Tokens, rows: int, steps: int) -> None:
    needed = steps * rows + steps
    if len(tokens) < needed:
        fits = max(1, len(tokens) // max(1, rows + 1))
        raise WeftError(
            f"the text has {len(tokens):,} tokens",
            expected=f"at least {needed:,} for one batch of {rows} rows of {steps} steps",
            hint=f"more text, or --set batch.seq_length={min(fits, steps)} or --set batch.size=1",
        )
