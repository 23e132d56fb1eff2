"""Attention: which places of a source matter now, and what stands there.

A query q is scored against the key k of every place; the scores, made to weights that sum to 1, mix the values:

    additive     w' tanh(W_q q + W_k k)      (Bahdanau et al. 2015; a perceptron on q and k side by side)
    bilinear     q' W k                      (Luong et al. 2015)
    dot          q' k
    scaled_dot   q' k / sqrt(d)              (Vaswani et al. 2017)

What does not depend on the query (W_k k, W k) is computed once for a source, in `remember`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.errors import WeftError, unknown_name


def masked_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Softmax of scores (B, T, S) over each row's first `lengths` (B,) places; all others are exactly 0.

    What stands past a length (NaN too) reaches neither weights nor gradients; a row of length 0 has no weight at all.

    >>> masked_softmax(torch.zeros(2, 1, 3), torch.tensor([2, 0])).tolist()
    [[[0.5, 0.5, 0.0]], [[0.0, 0.0, 0.0]]]
    """
    outside = torch.arange(scores.shape[-1], device=scores.device) >= lengths.to(scores.device)[:, None, None]
    # Not minus infinity, which would make a row without any place NaN.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(outside, lowest).softmax(-1).masked_fill(outside, 0)


class Score(nn.Module, ABC):
    """How well queries fit keys. The shapes of all: queries (B, T, Q), memory (B, S, M), scores (B, T, S)."""

    def keys(self, memory: Tensor) -> Tensor:
        """What the scores need of the memory: (B, S, M) to (B, S, K)."""
        return memory

    @abstractmethod
    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The scores."""


class AdditiveScore(Score):
    """w' tanh(W_q q + W_k k), with as many hidden units as the query has numbers."""

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
    """q' W k."""

    def __init__(self, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(memory_size, query_size, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        keys: Tensor = self.key(memory)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(1, 2)


class DotScore(Score):
    """q' k, so both must be equally wide."""

    def __init__(self, query_size: int, memory_size: int) -> None:
        super().__init__()
        if query_size != memory_size:
            raise WeftError(
                f"attention by a dot product of queries of {query_size} numbers with keys of {memory_size}",
                expected="the two to be equal",
                hint=f"bilinear or additive attention, or an encoder that gives {query_size} numbers for each token",
            )

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(1, 2)


class ScaledDotScore(DotScore):
    """q' k / sqrt(d): the scores keep their spread however wide the vectors are."""

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().forward(queries / math.sqrt(queries.shape[-1]), keys)


SCORES: dict[str, type[Score]] = {
    "additive": AdditiveScore,
    "bilinear": BilinearScore,
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
}


class AttentionMemory(NamedTuple):
    """Sources, made ready to be attended to. Rows that ask the same one share it."""

    values: Tensor  # (N, S, M)
    keys: Tensor  # (N, S, K)
    lengths: Tensor  # (N,)
    asked: Tensor | tuple[()] = ()  # (B,), the source that each row asks; empty: each its own

    def pick(self, rows: Tensor) -> AttentionMemory:
        """For those rows, which may repeat: sources are not copied, but when most are asked no more, the others are."""
        rows = rows.to(self.values.device)
        asked = self.asked[rows] if isinstance(self.asked, Tensor) else rows
        still = torch.unique(asked)
        if len(still) > len(self.values) // 2:
            return self._replace(asked=asked)
        values, keys, lengths = (part.index_select(0, still) for part in self[:3])
        return AttentionMemory(values, keys, lengths, torch.searchsorted(still, asked))


class Attention(nn.Module):
    """Queries (B, T, Q) over a memory (B, S, M): for each query a context (B, T, M) and its weights (B, T, S)."""

    def __init__(self, name: str, query_size: int, memory_size: int) -> None:
        super().__init__()
        if name not in SCORES:
            raise unknown_name("attention", name, SCORES)
        self.score: Score = SCORES[name](query_size, memory_size)

    def remember(self, memory: Tensor, lengths: Tensor) -> AttentionMemory:
        """What all queries of a source share. Its padding is emptied, as a NaN times a weight of 0 is still a NaN."""
        lengths = lengths.to(memory.device)
        outside = torch.arange(memory.shape[1], device=memory.device) >= lengths[:, None]
        memory = memory.masked_fill(outside.unsqueeze(-1), 0)
        return AttentionMemory(memory, self.score.keys(memory), lengths)

    def forward(self, queries: Tensor, source: AttentionMemory) -> tuple[Tensor, Tensor]:
        if isinstance(source.asked, Tensor):
            return self._shared(queries, source, source.asked)
        weights = masked_softmax(self.score(queries, source.keys), source.lengths)
        return weights @ source.values, weights

    def _shared(self, queries: Tensor, source: AttentionMemory, asked: Tensor) -> tuple[Tensor, Tensor]:
        """Rows that ask the same source become queries of that source, side by side."""
        N, (B, T, Q) = len(source.values), queries.shape
        rows = torch.bincount(asked, minlength=N)  # of each source
        width = int(rows.max()) if B else 0
        before = rows.cumsum(0) - rows  # rows of the sources before
        order = asked.argsort(stable=True)
        number = torch.empty_like(order).scatter_(0, order, torch.arange(B, device=order.device))
        place = asked * width + number - before[asked]  # of each row
        together = queries.new_zeros(N * width, T, Q).index_copy(0, place, queries).view(N, width * T, Q)
        context, weights = self(together, source._replace(asked=()))
        return tuple(each.view(N * width, T, each.shape[-1]).index_select(0, place) for each in (context, weights))
