"""Embedding lookups in one or several tables, side by side, with dropout.

A lookup is lazy: a stack that reads an `Embedded` computes its rows within the call, and only where a row of the batch
has a step.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft import abi
from weft.engine.autograd import apply_of, one_at_a_time
from weft.engine.dropout import NO_DROPOUT, Dropout, draw_seed
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.engine.tensors import address, as_int64
from weft.engine.threads import thread_count
from weft.errors import TensorError

_embedding_call, _embedding_input = abi.values_of(abi.EmbeddingCall), abi.values_of(abi.EmbeddingInput)
_table = abi.values_of(abi.Table)
_VALUES = abi.Table._fields.index("values")


class Part(NamedTuple):
    """A lookup of ids (...) in a table (V, E), with word dropout: an id may be read as 0."""

    ids: Tensor
    table: Tensor
    zero_probability: Tensor | None = None  # (V,): of each id to be read as 0; None: never


def embed(ids: Tensor, table: Tensor, rate: float = 0.0, training: bool = True) -> Tensor:
    """The rows of a table (V, E) for ids (...), with dropout: (..., E)."""
    return Embedded.of(ids, table, rate, training).tensor()


class Embedded:
    """Lookups of ids of one shape (...), side by side, and then dropout: (..., sum of E).

    >>> a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0], [6.0], [7.0]])
    >>> Embedded([Part(torch.tensor([1, 0]), a), Part(torch.tensor([2, 2]), b)]).tensor()
    tensor([[3., 4., 7.],
            [1., 2., 7.]])
    """

    def __init__(self, parts: Sequence[Part], dropout: Dropout = NO_DROPOUT) -> None:
        shape, width = parts[0].ids.shape, 0
        for ids, table, probability in parts:
            wrong = ids.shape != shape or table.dim() != 2
            if wrong or (probability is not None and probability.shape != table.shape[:1]):
                beside = "" if probability is None else f", zero_probability {tuple(probability.shape)}"
                raise TensorError(
                    f"embed: ids {tuple(ids.shape)}, a table {tuple(table.shape)}{beside}",
                    expected=f"ids {tuple(shape)} as the first ones are, a table (V, E), zero_probability (V,)",
                )
            width += table.shape[1]
        self.parts, self.dropout = parts, dropout
        self.joined: Tensor | None = None  # further features
        self.shape: tuple[int, ...] = (*shape, width)

    @classmethod
    def of(cls, ids: Tensor, table: Tensor, rate: float = 0.0, training: bool = True) -> Embedded:
        """A lookup in one table."""
        return cls([Part(ids, table)], Dropout(rate) if training else NO_DROPOUT)

    def join(self, features: Tensor) -> Embedded:
        """The same lookup, of (B, T), with features (B, J) appended at all steps of a row, without dropout."""
        rows, steps, width = self.shape
        if features.dim() != 2 or len(features) != rows:
            raise TensorError(f"join: features {tuple(features.shape)}", expected=f"({rows}, J), some for each row")
        both = Embedded.__new__(Embedded)
        both.parts, both.dropout, both.joined = self.parts, self.dropout, features
        both.shape = rows, steps, width + features.shape[1]
        return both

    def segments(self, steps: int) -> list[Embedded]:
        """The lookups of (B, T) in pieces of at most `steps` steps."""
        found = []
        for first in range(0, self.shape[1], steps):
            parts = [part._replace(ids=part.ids[:, first : first + steps]) for part in self.parts]
            piece = Embedded(parts, self.dropout)
            found.append(piece if self.joined is None else piece.join(self.joined))
        return found

    def tensor(self) -> Tensor:
        """The result as a tensor that torch can differentiate."""
        if (drawn := self.draw()) is not None:
            return lookup(drawn, *drawn.tables)
        found = [F.embedding(drop_ids(ids.to(table.device), zero), table) for ids, table, zero in self.parts]
        x = self.dropout.apply(torch.cat(found, -1) if len(found) > 1 else found[0])
        if self.joined is None:
            return x
        return torch.cat([x, self.joined[:, None].expand(-1, x.shape[1], -1)], -1)

    def draw(self) -> Drawn | None:
        """With its seeds drawn, for the core; None where the core cannot read it."""
        tables = [part.table for part in self.parts]
        if self.joined is not None:
            tables.append(self.joined)
        probabilities = [part.zero_probability for part in self.parts if part.zero_probability is not None]
        return Drawn(self, tables) if reads(*tables, *probabilities) else None


def drop_ids(ids: Tensor, zero_probability: Tensor | None) -> Tensor:
    """The ids with some replaced by 0, each id with its own probability."""
    if zero_probability is None:
        return ids
    return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < zero_probability[ids], 0)


class Drawn:
    """The records of an Embedded for the core, with its seeds."""

    def __init__(self, embedded: Embedded, tables: Sequence[Tensor]) -> None:
        self.shape = embedded.shape
        self.tables = [table.contiguous() for table in tables]
        self.ids = [as_int64(part.ids) for part in embedded.parts]
        self.first: list[int] = []  # the first part that reads each table: its gradients are summed there
        self._alive: list[Tensor] = []
        self._at: list[int] = []  # where among the records the address of each table's values belongs
        described: list[tuple[int, ...]] = []
        for number, (part, ids, table) in enumerate(zip(embedded.parts, self.ids, tables, strict=False)):
            first, probability, seed = 0, part.zero_probability, 0
            while tables[first] is not table:
                first += 1
            if probability is not None:
                probability, seed = probability.contiguous(), draw_seed()
                self._alive.append(probability)
            self.first.append(first)
            size, width = table.shape
            again = first != number
            described.append(_table(0, size, width, ids.data_ptr(), again, address(probability), seed))
        dropout_width = self.shape[-1]
        if embedded.joined is not None:
            dropout_width -= embedded.joined.shape[1]
            self.first.append(len(self.first))
            size, width = embedded.joined.shape
            described.append(_table(0, size, width, ids=0, accumulate=0, zero_probability=0, seed=0))
        self._records: list[int] = [*_embedding_input(dropout_width, *embedded.dropout.draw())]
        for record in described:
            self._at.append(len(self._records) + _VALUES)
            self._records += record

    def records(self, tables: Sequence[Tensor | None]) -> list[int]:
        """With these tables, or with their gradients; None for those that are not wanted."""
        found = self._records.copy()
        for at, table in zip(self._at, tables, strict=True):
            found[at] = 0 if table is None else table.data_ptr()
        return found

    def gradients(self, wanted: Sequence[bool]) -> tuple[list[Tensor | None], list[int]]:
        """Memory for the gradients of the tables, one for each table, and the records with it."""
        found = [
            empty(tuple(table.shape), table.dtype) if wants and number == first else None
            for number, (table, wants, first) in enumerate(zip(self.tables, wanted, self.first, strict=True))
        ]
        return found, self.records([found[first] for first in self.first])


class _Embed(torch.autograd.Function):
    """A linear function of the tables; its backward pass is linear too, and the two are each other's derivatives."""

    @staticmethod
    def forward(ctx: Any, drawn: Drawn, *tables: Tensor) -> Tensor:
        ctx.drawn = drawn
        ctx.save_for_backward(*drawn.ids)
        rows = empty(drawn.shape, tables[0].dtype)
        _run(drawn, drawn.records([table.contiguous() for table in tables]), rows, backward=False)
        return rows

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.saved_tensors  # noqa: B018  # torch checks that the ids have not changed
        wanted = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():
            return None, *_apply_backward(ctx.drawn, wanted, gradient)
        return None, *_gradients(ctx.drawn, wanted, gradient)


class _EmbedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drawn: Drawn, wanted: Sequence[bool], gradient: Tensor) -> Any:
        ctx.drawn = drawn
        ctx.set_materialize_grads(False)
        return tuple(_gradients(drawn, wanted, gradient))

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *d_gradients: Tensor | None) -> Any:
        drawn = ctx.drawn
        tables = [torch.zeros_like(t) if d is None else d for t, d in zip(drawn.tables, d_gradients, strict=True)]
        return None, None, lookup(drawn, *(tables[first] for first in drawn.first))


_apply, _apply_backward = apply_of(_Embed), apply_of(_EmbedBackward)


def lookup(drawn: Drawn, *tables: Tensor) -> Tensor:
    """The rows of these tables, which have the shapes of those that `drawn` was made with."""
    return _apply(drawn, *tables)  # type: ignore[no-any-return]


def _gradients(drawn: Drawn, wanted: Sequence[bool], gradient: Tensor) -> list[Tensor | None]:
    found, records = drawn.gradients(wanted)
    _run(drawn, records, gradient.contiguous(), backward=True)
    return found


def _run(drawn: Drawn, records: list[int], rows: Tensor, *, backward: bool) -> None:
    *shape, _ = drawn.shape
    call = _embedding_call(
        is_double=rows.dtype is torch.float64,
        threads=thread_count(),
        backward=backward,
        positions=math.prod(shape),
        steps=shape[-1] if shape else 1,
        values=rows.data_ptr(),
        tables=len(drawn.tables),
    )
    check(loaded_library().weft_embedding(array("q", [*call, *records]).tobytes()))
