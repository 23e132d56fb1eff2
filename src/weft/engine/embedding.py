"""Embeddings: rows of tables by number, several side by side, with dropout on what was read.

A stack reads them as they are told: the rows are then written for its first layer alone, and only where a row of the
batch has a step.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine.graph import address, applied, once, whole
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
    return Embedded.of(ids, table, share, training).tensor()


class Embedded:
    """Rows of tables by ids of one shape (...), side by side, and then dropout: (..., sum of E).

    >>> a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0], [6.0], [7.0]])
    >>> Embedded([Part(torch.tensor([1, 0]), a), Part(torch.tensor([2, 2]), b)]).tensor()
    tensor([[3., 4., 7.],
            [1., 2., 7.]])
    """

    def __init__(self, parts: Sequence[Part], drop: Drop = NOTHING) -> None:
        shape, width = parts[0].ids.shape, 0
        for ids, table, chances in parts:
            wrong = ids.shape != shape or table.dim() != 2
            if wrong or (chances is not None and chances.shape != table.shape[:1]):
                beside = "" if chances is None else f", chances {tuple(chances.shape)}"
                raise WeftError(
                    f"embed: ids {tuple(ids.shape)}, a table {tuple(table.shape)}{beside}",
                    expected=f"ids {tuple(shape)} as the first ones are, a table (V, E), chances (V,)",
                )
            width += table.shape[1]
        self.parts, self.drop = parts, drop
        self.joined: Tensor | None = None  # beside them
        self.shape: tuple[int, ...] = (*shape, width)

    @classmethod
    def of(cls, ids: Tensor, table: Tensor, share: float = 0.0, training: bool = True) -> Embedded:
        """Of one table, with dropout of a `share`."""
        return cls([Part(ids, table)], Drop(share) if training else NOTHING)

    def join(self, numbers: Tensor) -> Embedded:
        """The same of (B, T) with numbers (B, J) of each row beside it at all steps, of which none is dropped."""
        rows, steps, width = self.shape
        if numbers.dim() != 2 or len(numbers) != rows:
            raise WeftError(f"join: numbers {tuple(numbers.shape)}", expected=f"({rows}, J), some for each row")
        both = Embedded.__new__(Embedded)
        both.parts, both.drop, both.joined = self.parts, self.drop, numbers
        both.shape = rows, steps, width + numbers.shape[1]
        return both

    def tensor(self) -> Tensor:
        """Written out, as a tensor that torch can differentiate."""
        if (drawn := self.draw()) is not None:
            return _apply(drawn, *drawn.tables)  # type: ignore[no-any-return]
        found = [F.embedding(forget(ids.to(table.device), chances), table) for ids, table, chances in self.parts]
        x = self.drop.apply(torch.cat(found, -1) if len(found) > 1 else found[0])
        if self.joined is None:
            return x
        return torch.cat([x, self.joined[:, None].expand(-1, x.shape[1], -1)], -1)

    def draw(self) -> Drawn | None:
        """With all its noise drawn, for the core; None where that cannot read it."""
        tables = [part.table for part in self.parts]
        if self.joined is not None:
            tables.append(self.joined)
        chances = [part.chances for part in self.parts if part.chances is not None]
        return Drawn(self, tables) if reads(*tables, *chances) else None


def forget(ids: Tensor, chances: Tensor | None) -> Tensor:
    """The ids with some turned to 0, each with its own chance."""
    if chances is None:
        return ids
    return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < chances[ids], 0)


class Drawn:
    """What the core is told of Embedded (core/embedding.hpp), wherever its tables or their gradients are."""

    def __init__(self, embedded: Embedded, tables: Sequence[Tensor]) -> None:
        self.shape = embedded.shape
        self.tables = [table.contiguous() for table in tables]
        self.ids = [whole(part.ids) for part in embedded.parts]
        self.first: list[int] = []  # of each table that part which reads it first: there all its gradients are summed
        self._alive: list[Tensor] = []
        self._told: list[tuple[int, ...]] = []  # of each table what does not change
        for number, (part, ids, table) in enumerate(zip(embedded.parts, self.ids, tables, strict=False)):
            first, chances, seed = 0, part.chances, 0
            while tables[first] is not table:
                first += 1
            if chances is not None:
                chances, seed = chances.contiguous(), draw_seed()
                self._alive.append(chances)
            self.first.append(first)
            self._told.append((*table.shape, ids.data_ptr(), first != number, address(chances), seed))
        noisy = self.shape[-1]
        if embedded.joined is not None:
            noisy -= embedded.joined.shape[1]
            self.first.append(len(self.first))
            self._told.append((*embedded.joined.shape, 0, 0, 0, 0))
        self._begin = len(self._told), noisy, *embedded.drop.draw()

    def numbers(self, tables: Sequence[Tensor | None]) -> list[int]:
        """With these tables, or with their gradients, of which those that are not wanted are None."""
        found = [*self._begin]
        for table, told in zip(tables, self._told, strict=True):
            found += (0 if table is None else table.data_ptr(), *told)
        return found

    def gradients(self, wanted: Sequence[bool]) -> tuple[list[Tensor | None], list[int]]:
        """Memory for those of the tables, each once, and what the core is told of it."""
        found = [
            empty(tuple(table.shape), table.dtype) if wants and number == first else None
            for number, (table, wants, first) in enumerate(zip(self.tables, wanted, self.first, strict=True))
        ]
        return found, self.numbers([found[first] for first in self.first])


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drawn: Drawn, *tables: Tensor) -> Tensor:
        ctx.drawn = drawn
        ctx.save_for_backward(*drawn.ids)
        rows = empty(drawn.shape, tables[0].dtype)
        _run(drawn, drawn.numbers(drawn.tables), rows, back=False)
        return rows

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.saved_tensors  # noqa: B018  # torch looks whether the ids are still what they were
        found, numbers = ctx.drawn.gradients(ctx.needs_input_grad[1:])
        _run(ctx.drawn, numbers, gradient.contiguous(), back=True)
        return None, *found


_apply = applied(_Embed)


def _run(drawn: Drawn, numbers: list[int], rows: Tensor, *, back: bool) -> None:
    *shape, _ = drawn.shape
    places = [math.prod(shape), shape[-1] if shape else 1, rows.data_ptr()]
    data, is_double = array("q", [*places, *numbers]), rows.dtype == torch.float64
    check(loaded_library().weft_embedding(data.buffer_info()[0], back, torch.get_num_threads(), is_double))
