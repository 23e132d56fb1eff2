"""Dropout by a seed.

No mask is drawn, kept or read: a hash of a number's place and of the seed tells whether it is dropped, forward and
back, whatever the number of threads.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine import abi
from weft.engine.graph import applied
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.errors import WeftError

_dropout_call = abi.packer(abi.DropoutCall)


class Drop(NamedTuple):
    """A share of some numbers is dropped: each for itself, or units at all steps of a row alike."""

    share: float = 0.0
    units: bool = False

    def draw(self) -> tuple[int, int, bool]:
        """As the core reads it: how many of 2^32 stay (0: all), the seed, whether it is units."""
        return (kept_of(self.share), draw_seed(), self.units) if self.share else (0, 0, False)

    def apply(self, x: Tensor) -> Tensor:
        return drop_rows(x, self.share) if self.units else dropout(x, self.share)


NOTHING = Drop()


class _Drawn(threading.local):
    """A thread's memory for what it draws: one less to ask for."""

    def __init__(self) -> None:
        self.number = torch.empty((), dtype=torch.int64)


_drawn = _Drawn()


def draw_seed() -> int:
    """From torch's own generator, so that its seed and its saved state hold for this noise too."""
    return int(_drawn.number.random_())


def kept_of(share: float) -> int:
    """How many of 2^32 numbers stay if a `share` of them is dropped."""
    if not 0 <= share < 1:
        raise WeftError(f"the share to drop is {share}", expected="0 or more and below 1")
    return min(round((1 - share) * 2**32), 2**32 - 1)


def dropout(x: Tensor, share: float, training: bool = True) -> Tensor:
    """torch's dropout, several times as fast on the CPU."""
    if not training or not share:
        return x
    keep = kept_of(share)
    if not reads(x):
        return F.dropout(x, share)
    return _apply(x, (x.numel(), 0, 1), keep, draw_seed())  # type: ignore[no-any-return]


def drop_rows(x: Tensor, share: float, training: bool = True) -> Tensor:
    """x (B, T, I) with a `share` of its I numbers dropped, the same at all steps of a row (Gal, Ghahramani 2016)."""
    if not training or not share:
        return x
    keep = kept_of(share)
    if not reads(x):
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), share)
    return _apply(x, tuple(x.shape), keep, draw_seed())  # type: ignore[no-any-return]


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: tuple[int, int, int], keep: int, seed: int) -> Tensor:
        ctx.noise = sizes, keep, seed
        x = x.contiguous()
        dropped = empty(tuple(x.shape), x.dtype)
        rows, steps, width = sizes
        call = _dropout_call(
            is_double=x.dtype is torch.float64,
            threads=torch.get_num_threads(),
            rows=rows,
            steps=steps,
            width=width,
            keep=keep,
            seed=seed,
            source=x.data_ptr(),
            target=dropped.data_ptr(),
        )
        check(loaded_library().weft_dropout(call))
        return dropped

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _apply(gradient, *ctx.noise), None, None, None


_apply = applied(_Drop)
