"""Embeddings: rows of tables by number, several side by side, and dropout on what was read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine.graph import applied, once
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.engine.noise import NOTHING, Drop, draw_seed
from weft.errors import WeftError


class Part(NamedTuple):
    """What is read at each place of (...): rows of the table (V, E) by ids (...), and now and then row 0 instead."""

    ids: Tensor
    table: Tensor
    chances: Tensor | None = None  # (V,): how often each id is read as 0; never where there are none


def embed(ids: Tensor, table: Tensor, share: float = 0.0, training: bool = True) -> Tensor:
    """Rows of the table (V, E) by ids (...), with dropout of a `share` of their numbers: (..., E)."""
    return embed_all([Part(ids, table)], Drop(share) if training else NOTHING)


def embed_all(parts: Sequence[Part], drop: Drop = NOTHING) -> Tensor:
    """Rows of tables by ids of one shape (...), side by side, and then dropout: (..., sum of E).

    >>> a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0], [6.0], [7.0]])
    >>> embed_all([Part(torch.tensor([1, 0]), a), Part(torch.tensor([2, 2]), b)])
    tensor([[3., 4., 7.],
            [1., 2., 7.]])
    """
    ids: list[Tensor] = []
    tables: list[Tensor] = []
    first: list[int] = []
    for numbers, table, chances in parts:
        wrong = numbers.shape != parts[0].ids.shape or table.dim() != 2
        if wrong or (chances is not None and chances.shape != table.shape[:1]):
            beside = "" if chances is None else f", chances {tuple(chances.shape)}"
            raise WeftError(
                f"embed: ids {tuple(numbers.shape)}, a table {tuple(table.shape)}{beside}",
                expected=f"ids {tuple(parts[0].ids.shape)} as the first ones are, a table (V, E), chances (V,)",
            )
        # Of a table that is read more than once all gradients are summed in one place: that of its first part.
        first.append(next((n for n, other in enumerate(tables) if other is table), len(tables)) if tables else 0)
        ids.append(numbers.to(table.device, torch.int64).contiguous())
        tables.append(table)
    chances_of = [part.chances for part in parts]
    if reads(*tables, *(chances for chances in chances_of if chances is not None)):
        forgetting = [(None, 0) if chances is None else (chances.contiguous(), draw_seed()) for chances in chances_of]
        return _apply(ids, first, forgetting, drop.draw(), *tables)  # type: ignore[no-any-return]
    found = [
        F.embedding(forget(numbers, chances), table)
        for numbers, table, chances in zip(ids, tables, chances_of, strict=True)
    ]
    return drop.apply(torch.cat(found, -1) if len(found) > 1 else found[0])


def forget(ids: Tensor, chances: Tensor | None) -> Tensor:
    """The ids with some turned to 0, each with its own chance."""
    if chances is None:
        return ids
    return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < chances[ids], 0)


Forgetting = list[tuple[Tensor | None, int]]  # of each part its chances, and the seed that tells where


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        ids: list[Tensor],
        first: list[int],
        forgetting: Forgetting,
        noise: tuple[int, int, bool],
        *tables: Tensor,
    ) -> Tensor:
        ctx.first, ctx.forgetting, ctx.noise = first, forgetting, noise
        ctx.shapes, ctx.dtype = [table.shape for table in tables], tables[0].dtype
        ctx.save_for_backward(*ids)
        rows = empty((*ids[0].shape, sum(table.shape[1] for table in tables)), ctx.dtype)
        _run(ids, [table.contiguous() for table in tables], ctx.shapes, first, forgetting, noise, rows, back=False)
        return rows

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> Any:
        wanted = ctx.needs_input_grad[4:]
        own: list[Tensor | None] = [
            empty(tuple(shape), ctx.dtype) if wants and number == first else None
            for number, (shape, wants, first) in enumerate(zip(ctx.shapes, wanted, ctx.first, strict=True))
        ]
        into = [own[first] for first in ctx.first]
        forgetting, gradient = ctx.forgetting, gradient.contiguous()
        _run(ctx.saved_tensors, into, ctx.shapes, ctx.first, forgetting, ctx.noise, gradient, back=True)
        return None, None, None, None, *own


_apply = applied(_Embed)


def _run(
    ids: Sequence[Tensor],
    tables: Sequence[Tensor | None],
    shapes: Sequence[torch.Size],
    first: Sequence[int],
    forgetting: Forgetting,
    noise: tuple[int, int, bool],
    rows: Tensor,
    *,
    back: bool,
) -> None:
    """As core/embedding.hpp reads it."""
    shape = ids[0].shape
    data = [ids[0].numel(), shape[-1] if shape else 1, rows.shape[-1], *noise, rows.data_ptr(), len(tables)]
    for number, (numbers, table, size) in enumerate(zip(ids, tables, shapes, strict=True)):
        chances, seed = forgetting[number]
        data += [0 if table is None else table.data_ptr(), *size, numbers.data_ptr(), first[number] != number]
        data += [0 if chances is None else chances.data_ptr(), seed]
    packed, is_double = array("q", data), rows.dtype == torch.float64
    check(loaded_library().weft_embedding(packed.buffer_info()[0], back, torch.get_num_threads(), is_double))
