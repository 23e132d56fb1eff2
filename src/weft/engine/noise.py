"""Dropout by a seed, and embeddings with it.

No mask is drawn, kept or read: a hash of a number's place and of the seed tells whether it is dropped, forward and
back, whatever the number of threads.
"""

from __future__ import annotations

from array import array
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine.library import check, known_type, loaded_library, usable
from weft.engine.memory import empty
from weft.errors import WeftError


def draw_seed() -> int:
    """From torch's own generator, so that its seed and its saved state hold for this noise too."""
    return int(torch.empty((), dtype=torch.int64).random_())


def kept_of(share: float) -> int:
    """How many of 2^32 numbers stay if a `share` of them is dropped."""
    if not 0 <= share < 1:
        raise WeftError(f"the share to drop is {share}", expected="0 or more and below 1")
    return min(round((1 - share) * 2**32), 2**32 - 1)


def _takes(x: Tensor) -> bool:
    return known_type(x) and not torch.compiler.is_compiling() and usable()


def dropout(x: Tensor, share: float, training: bool = True) -> Tensor:
    """torch's dropout, several times as fast on the CPU."""
    if not training or not share:
        return x
    keep = kept_of(share)
    if not _takes(x):
        return F.dropout(x, share)
    return _Drop.apply(x, (x.numel(), 0, 1), keep, draw_seed())  # type: ignore[no-any-return, no-untyped-call]


def drop_rows(x: Tensor, share: float, training: bool = True) -> Tensor:
    """x (B, T, I) with a `share` of its I numbers dropped, the same at all steps of a row (Gal, Ghahramani 2016)."""
    if not training or not share:
        return x
    keep = kept_of(share)
    if not _takes(x):
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), share)
    return _Drop.apply(x, tuple(x.shape), keep, draw_seed())  # type: ignore[no-any-return, no-untyped-call]


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: tuple[int, int, int], keep: int, seed: int) -> Tensor:
        ctx.noise = sizes, keep, seed
        x = x.contiguous()
        dropped, threads = empty(tuple(x.shape), x.dtype), torch.get_num_threads()
        drop = loaded_library().weft_drop
        check(drop(x.data_ptr(), dropped.data_ptr(), *sizes, keep, seed, threads, x.dtype == torch.float64))
        return dropped

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _Drop.apply(gradient, *ctx.noise), None, None, None  # type: ignore[no-untyped-call]


def embed(ids: Tensor, table: Tensor, share: float = 0.0, training: bool = True) -> Tensor:
    """Rows of the table (V, E) by ids (...), with dropout of a `share` of their numbers: (..., E)."""
    ids = ids.to(table.device)
    keep = kept_of(share) if training and share else 0
    if not _takes(table):
        return F.dropout(F.embedding(ids, table), share, training)
    noise = (keep, draw_seed()) if keep else (0, 0)
    return _Embed.apply(table, ids.to(torch.int64).contiguous(), *noise)  # type: ignore[no-any-return, no-untyped-call]


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, keep: int, seed: int) -> Tensor:
        ctx.noise, ctx.shape, ctx.dtype = (keep, seed), tuple(table.shape), table.dtype
        ctx.save_for_backward(ids)
        rows = empty((*ids.shape, table.shape[1]), table.dtype)
        _run(table.contiguous(), ids, ctx.noise, rows, False)
        return rows

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (ids,) = ctx.saved_tensors
        summed = empty(ctx.shape, ctx.dtype)
        _run(summed, ids, ctx.noise, gradient.contiguous(), True)
        return summed, None, None, None


def _run(table: Tensor, ids: Tensor, noise: tuple[int, int], numbers: Tensor, back: bool) -> None:
    data = [table.data_ptr(), *table.shape, ids.data_ptr(), ids.numel(), *noise, numbers.data_ptr()]
    packed, is_double = array("q", data), table.dtype == torch.float64
    check(loaded_library().weft_embedding(packed.buffer_info()[0], back, torch.get_num_threads(), is_double))
