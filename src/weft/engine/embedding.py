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

from weft.engine import abi
from weft.engine.graph import address, applied, once, whole
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.engine.noise import NOTHING, Drop, draw_seed
from weft.errors import WeftError

_embedding_call, _embedding_input = abi.values_of(abi.EmbeddingCall), abi.values_of(abi.EmbeddingInput)
_table = abi.values_of(abi.Table)
_VALUES = abi.Table._fields.index("values")


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
        self._at: list[int] = []  # where among the records the address of each table's values belongs
        described: list[tuple[int, ...]] = []
        for number, (part, ids, table) in enumerate(zip(embedded.parts, self.ids, tables, strict=False)):
            first, chances, seed = 0, part.chances, 0
            while tables[first] is not table:
                first += 1
            if chances is not None:
                chances, seed = chances.contiguous(), draw_seed()
                self._alive.append(chances)
            self.first.append(first)
            size, width = table.shape
            again = first != number
            described.append(_table(0, size, width, ids.data_ptr(), again, address(chances), seed))
        noisy = self.shape[-1]
        if embedded.joined is not None:
            noisy -= embedded.joined.shape[1]
            self.first.append(len(self.first))
            size, width = embedded.joined.shape
            described.append(_table(0, size, width, ids=0, accumulate=0, zero_probability=0, seed=0))
        self._records: list[int] = [*_embedding_input(noisy, *embedded.drop.draw())]
        for record in described:
            self._at.append(len(self._records) + _VALUES)
            self._records += record

    def records(self, tables: Sequence[Tensor | None]) -> list[int]:
        """With these tables, or with their gradients, of which those that are not wanted are None."""
        found = self._records.copy()
        for at, table in zip(self._at, tables, strict=True):
            found[at] = 0 if table is None else table.data_ptr()
        return found

    def gradients(self, wanted: Sequence[bool]) -> tuple[list[Tensor | None], list[int]]:
        """Memory for those of the tables, each once, and what the core is told of it."""
        found = [
            empty(tuple(table.shape), table.dtype) if wants and number == first else None
            for number, (table, wants, first) in enumerate(zip(self.tables, wanted, self.first, strict=True))
        ]
        return found, self.records([found[first] for first in self.first])


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drawn: Drawn, *tables: Tensor) -> Tensor:
        ctx.drawn = drawn
        ctx.save_for_backward(*drawn.ids)
        rows = empty(drawn.shape, tables[0].dtype)
        _run(drawn, drawn.records(drawn.tables), rows, backward=False)
        return rows

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.saved_tensors  # noqa: B018  # torch looks whether the ids are still what they were
        found, records = ctx.drawn.gradients(ctx.needs_input_grad[1:])
        _run(ctx.drawn, records, gradient.contiguous(), backward=True)
        return None, *found


_apply = applied(_Embed)


def _run(drawn: Drawn, records: list[int], rows: Tensor, *, backward: bool) -> None:
    *shape, _ = drawn.shape
    call = _embedding_call(
        is_double=rows.dtype is torch.float64,
        threads=torch.get_num_threads(),
        backward=backward,
        positions=math.prod(shape),
        steps=shape[-1] if shape else 1,
        values=rows.data_ptr(),
        tables=len(drawn.tables),
    )
    check(loaded_library().weft_embedding(array("q", [*call, *records]).tobytes()))
