"""Attention: a weighted mean of the values of a source, with weights that depend on a query.

A query q is scored against the key k of every source position. The softmax of the scores weights the values:

    additive     w^T tanh(W_q q + W_k k)      Bahdanau et al. 2015
    bilinear     q^T W k                      Luong et al. 2015 ("general")
    dot          q^T k                        Luong et al. 2015
    scaled_dot   q^T k / sqrt(d)              Vaswani et al. 2017

The part that does not depend on the query (W_k k, W k) is computed once per source, in `Attention.prepare`.

Shapes: queries (B, T, Q), memory (B, S, M), keys (B, S, K), scores and weights (B, T, S), context (B, T, M).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.errors import WeftError, unknown_name


def masked_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Softmax over the positions inside each row; the weights of the others are exactly 0.

    The contents of the padding (NaN included) reach neither weights nor gradients. A row of length 0 has zero weights.

    Args:
        scores: (B, T, S).
        lengths: (B,), the number of valid positions of each row.

    Returns:
        The weights (B, T, S).

    >>> masked_softmax(torch.zeros(2, 1, 3), torch.tensor([2, 0])).tolist()
    [[[0.5, 0.5, 0.0]], [[0.0, 0.0, 0.0]]]
    """
    padding = torch.arange(scores.shape[-1], device=scores.device) >= lengths.to(scores.device)[:, None, None]
    # The lowest finite number, not -inf, which would give NaN in a row of length 0.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(padding, lowest).softmax(-1).masked_fill(padding, 0)


class Score(nn.Module, ABC):
    """A score function of queries and keys."""

    def keys(self, memory: Tensor) -> Tensor:
        """Computes the keys (B, S, K) of a memory (B, S, M)."""
        return memory

    @abstractmethod
    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Computes the scores (B, T, S) of queries (B, T, Q) and keys (B, S, K)."""


class AdditiveScore(Score):
    """w^T tanh(W_q q + W_k k), with as many hidden units as the query has features."""

    def __init__(self, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, query_size)
        self.key = nn.Linear(memory_size, query_size, bias=False)
        self.weight = nn.Linear(query_size, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        keys: Tensor = self.key(memory)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.query(queries)[:, :, None] + keys[:, None])  # (B, T, S, Q)
        scores: Tensor = self.weight(hidden)
        return scores.squeeze(-1)


class BilinearScore(Score):
    """q^T W k."""

    def __init__(self, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(memory_size, query_size, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        keys: Tensor = self.key(memory)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(1, 2)


class DotScore(Score):
    """q^T k; queries and memory must have the same size."""

    def __init__(self, query_size: int, memory_size: int) -> None:
        super().__init__()
        if query_size != memory_size:
            raise WeftError(
                f"dot-product attention with queries of size {query_size} and keys of size {memory_size}",
                expected="the two to be equal",
                hint=f"bilinear or additive attention, or an encoder with outputs of size {query_size}",
            )

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(1, 2)


class ScaledDotScore(DotScore):
    """q^T k / sqrt(d): the variance of the scores does not grow with the size d of the vectors."""

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().forward(queries / math.sqrt(queries.shape[-1]), keys)


SCORES: dict[str, type[Score]] = {
    "additive": AdditiveScore,
    "bilinear": BilinearScore,
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
}


class AttentionMemory(NamedTuple):
    """N sources, prepared for attention. Several rows may attend to the same source."""

    values: Tensor  # (N, S, M)
    keys: Tensor  # (N, S, K)
    lengths: Tensor  # (N,)
    source: Tensor | tuple[()] = ()  # (B,), the source of each row; (): row b attends to source b

    def select(self, rows: Tensor) -> AttentionMemory:
        """Returns the memory of the given rows, which may repeat.

        Sources are shared, not copied. Once at most half of them are in use, the others are dropped.
        """
        rows = rows.to(self.values.device)
        source = self.source[rows] if isinstance(self.source, Tensor) else rows
        used = torch.unique(source)
        if len(used) > len(self.values) // 2:
            return self._replace(source=source)
        values, keys, lengths = (part.index_select(0, used) for part in self[:3])
        return AttentionMemory(values, keys, lengths, torch.searchsorted(used, source))


class Attention(nn.Module):
    """Attention of queries over a memory.

    Args:
        name: a name of `SCORES`.
        query_size: Q, the size of the queries.
        memory_size: M, the size of the memory's vectors.

    Raises:
        WeftError: an unknown name, or sizes that the score function cannot combine.
    """

    def __init__(self, name: str, query_size: int, memory_size: int) -> None:
        super().__init__()
        if name not in SCORES:
            raise unknown_name("attention", name, SCORES)
        self.score: Score = SCORES[name](query_size, memory_size)

    def prepare(self, memory: Tensor, lengths: Tensor) -> AttentionMemory:
        """Computes what all queries of a source share.

        Args:
            memory: (B, S, M). Its padding is set to zero, because NaN times a weight of 0 is NaN.
            lengths: (B,).
        """
        lengths = lengths.to(memory.device)
        padding = torch.arange(memory.shape[1], device=memory.device) >= lengths[:, None]
        memory = memory.masked_fill(padding.unsqueeze(-1), 0)
        return AttentionMemory(memory, self.score.keys(memory), lengths)

    def forward(self, queries: Tensor, memory: AttentionMemory) -> tuple[Tensor, Tensor]:
        """Attends with queries (B, T, Q). Returns the context (B, T, M) and the weights (B, T, S)."""
        if isinstance(memory.source, Tensor):
            return self._shared(queries, memory, memory.source)
        weights = masked_softmax(self.score(queries, memory.keys), memory.lengths)
        return weights @ memory.values, weights

    def _shared(self, queries: Tensor, memory: AttentionMemory, source: Tensor) -> tuple[Tensor, Tensor]:
        """Rows that attend to the same source become further queries of that source."""
        N, (B, T, Q) = len(memory.values), queries.shape
        rows = torch.bincount(source, minlength=N)  # of each source
        width = int(rows.max()) if B else 0
        before = rows.cumsum(0) - rows  # rows of the preceding sources
        order = source.argsort(stable=True)
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(B, device=order.device))
        slot = source * width + rank - before[source]  # of each row
        grouped = queries.new_zeros(N * width, T, Q).index_copy(0, slot, queries).view(N, width * T, Q)
        context, weights = self(grouped, memory._replace(source=()))
        return tuple(each.view(N * width, T, each.shape[-1]).index_select(0, slot) for each in (context, weights))
