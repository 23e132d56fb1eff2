"""Dropout by a seed: a hash of an element's position and of the seed decides whether it is dropped.

No mask is stored: the backward pass computes the same one. It does not depend on the number of threads.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft import abi
from weft.engine.autograd import apply_of, one_at_a_time
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.engine.threads import thread_count
from weft.errors import TensorError, WeftError

_dropout_call = abi.packer(abi.DropoutCall)


class Dropout(NamedTuple):
    """A dropout rate, for each element on its own or with one mask for all steps of a row (Gal, Ghahramani 2016)."""

    rate: float = 0.0
    shared_over_time: bool = False

    def draw(self) -> tuple[int, int, bool]:
        """For the core: keep probability times 2^32 (0: no dropout), a seed, whether the mask is shared over time."""
        return (keep_threshold(self.rate), draw_seed(), self.shared_over_time) if self.rate else (0, 0, False)

    def apply(self, x: Tensor) -> Tensor:
        return variational_dropout(x, self.rate) if self.shared_over_time else dropout(x, self.rate)


NO_DROPOUT = Dropout()


class _Drawn(threading.local):
    """A tensor of each thread to draw seeds into, which is faster than a new one each time."""

    def __init__(self) -> None:
        self.seed = torch.empty((), dtype=torch.int64)


_drawn = _Drawn()


def draw_seed() -> int:
    """A seed from torch's default generator, whose own seed and saved state thus hold for this dropout too."""
    return int(_drawn.seed.random_())


def keep_threshold(rate: float) -> int:
    """The keep probability times 2^32."""
    if not 0 <= rate < 1:
        raise WeftError(f"the dropout rate is {rate}", expected="0 or more and below 1")
    return min(round((1 - rate) * 2**32), 2**32 - 1)


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """torch's dropout, several times as fast on the CPU."""
    if not training or not rate:
        return x
    keep = keep_threshold(rate)
    if not reads(x):
        return F.dropout(x, rate)
    return _apply(x, (x.numel(), 0, 1), keep, draw_seed())  # type: ignore[no-any-return]


def variational_dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """x (B, T, I) with dropout that has the same mask at all steps of a row (Gal, Ghahramani 2016)."""
    if not training or not rate:
        return x
    if x.dim() != 3:
        raise TensorError(f"variational_dropout: x is {tuple(x.shape)}", expected="(B, T, I)")
    keep = keep_threshold(rate)
    if not reads(x):
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), rate)
    return _apply(x, tuple(x.shape), keep, draw_seed())  # type: ignore[no-any-return]


def drop_with_seed(x: Tensor, keep: int, seed: int, shared_over_time: bool = False) -> Tensor:
    """Dropout with the mask of a given seed; `keep` is the keep probability times 2^32."""
    sizes = tuple(x.shape) if shared_over_time else (x.numel(), 0, 1)
    return _apply(x, sizes, keep, seed)  # type: ignore[no-any-return]


class DropoutFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: tuple[int, int, int], keep: int, seed: int) -> Tensor:
        ctx.drawn = sizes, keep, seed
        x = x.contiguous()
        dropped = empty(tuple(x.shape), x.dtype)
        rows, steps, width = sizes
        call = _dropout_call(
            is_double=x.dtype is torch.float64,
            threads=thread_count(),
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
    @one_at_a_time
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _apply(gradient, *ctx.drawn), None, None, None


_apply = apply_of(DropoutFunction)
