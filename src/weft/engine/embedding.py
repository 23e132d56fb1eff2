"""Embeddings: rows of tables by number, several side by side, and dropout on what was read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine.graph import applied, once
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.engine.noise import NOTHING, Drop
from weft.errors import WeftError


def embed(ids: Tensor, table: Tensor, share: float = 0.0, training: bool = True) -> Tensor:
    """Rows of the table (V, E) by ids (...), with dropout of a `share` of their numbers: (..., E)."""
    return embed_all([(ids, table)], Drop(share) if training else NOTHING)


def embed_all(parts: Sequence[tuple[Tensor, Tensor]], drop: Drop = NOTHING) -> Tensor:
    """Rows of tables (V_i, E_i) by ids (...) of one shape, side by side, and then dropout: (..., sum of E_i).

    >>> a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0], [6.0], [7.0]])
    >>> embed_all([(torch.tensor([1, 0]), a), (torch.tensor([2, 2]), b)])
    tensor([[3., 4., 7.],
            [1., 2., 7.]])
    """
    ids: list[Tensor] = []
    tables: list[Tensor] = []
    first: list[int] = []
    for numbers, table in parts:
        if numbers.shape != parts[0][0].shape or table.dim() != 2:
            raise WeftError(
                f"embed: ids {tuple(numbers.shape)}, a table {tuple(table.shape)}",
                expected=f"ids {tuple(parts[0][0].shape)} as the first ones are, and a table (V, E)",
            )
        # Of a table that is read more than once all gradients are summed in one place: that of its first part.
        first.append(next((n for n, other in enumerate(tables) if other is table), len(tables)) if tables else 0)
        ids.append(numbers.to(table.device, torch.int64).contiguous())
        tables.append(table)
    if reads(*tables):
        return _apply(ids, first, drop.draw(), *tables)  # type: ignore[no-any-return]
    found = [F.embedding(numbers, table) for numbers, table in zip(ids, tables, strict=True)]
    return drop.apply(torch.cat(found, -1) if len(found) > 1 else found[0])


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: list[Tensor], first: list[int], noise: tuple[int, int, bool], *tables: Tensor) -> Tensor:
        ctx.first, ctx.noise, ctx.shapes, ctx.dtype = first, noise, [table.shape for table in tables], tables[0].dtype
        ctx.save_for_backward(*ids)
        rows = empty((*ids[0].shape, sum(table.shape[1] for table in tables)), ctx.dtype)
        _run(ids, [table.contiguous() for table in tables], ctx.shapes, first, noise, rows, back=False)
        return rows

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> Any:
        wanted = ctx.needs_input_grad[3:]
        own: list[Tensor | None] = [
            empty(tuple(shape), ctx.dtype) if wants and number == first else None
            for number, (shape, wants, first) in enumerate(zip(ctx.shapes, wanted, ctx.first, strict=True))
        ]
        into = [own[first] for first in ctx.first]
        _run(ctx.saved_tensors, into, ctx.shapes, ctx.first, ctx.noise, gradient.contiguous(), back=True)
        return None, None, None, *own


_apply = applied(_Embed)


def _run(
    ids: Sequence[Tensor],
    tables: Sequence[Tensor | None],
    shapes: Sequence[torch.Size],
    first: Sequence[int],
    noise: tuple[int, int, bool],
    rows: Tensor,
    *,
    back: bool,
) -> None:
    """As core/embedding.hpp reads it."""
    shape = ids[0].shape
    data = [ids[0].numel(), shape[-1] if shape else 1, rows.shape[-1], *noise, rows.data_ptr(), len(tables)]
    for number, (numbers, table, size) in enumerate(zip(ids, tables, shapes, strict=True)):
        again = first[number] != number
        data += [0 if table is None else table.data_ptr(), *size, numbers.data_ptr(), again]
    packed, is_double = array("q", data), rows.dtype == torch.float64
    check(loaded_library().weft_embedding(packed.buffer_info()[0], back, torch.get_num_threads(), is_double))
