"""Linear chains: scores of the states at each position and of transitions, and the types of the results."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from weft.errors import TensorError


@dataclass(frozen=True)
class Chains:
    """B chains; every position is in one of K states. All scores are log-domain float64; -inf means impossible.

    A path h has the score

        start[h_1] + sum_t transition[h_(t-1), h_t] + sum_t table[ids[t], h_t] + end[h_T]

    The positions of all chains are in one array of length P; chain b has `lengths[b]` of them from `begins[b]` on.
    Positions outside of all chains are never read. A chain of length 0 has one path, with score 0.
    """

    start: Tensor  # (K,)
    transition: Tensor  # (K, K): from, to
    end: Tensor  # (K,)
    table: Tensor  # (N, K): the scores of the states for each id
    ids: Tensor  # (P,): the row of the table at each position
    begins: Tensor  # (B,)
    lengths: Tensor  # (B,)
    rows_are_shared: bool = True  # False if no two positions have the same row of the table

    @classmethod
    def padded(cls, start: Tensor, transition: Tensor, end: Tensor, scores: Tensor, lengths: Tensor | None) -> Chains:
        """Builds chains from padded scores (B, T, K).

        Raises:
            TensorError: the shape of `scores` or `lengths` does not fit, or a length is out of range.
        """
        states = len(start)
        if scores.dim() != 3 or scores.shape[2] != states:
            raise TensorError(
                f"scores are {tuple(scores.shape)}", expected=f"(B, T, {states}) because there are {states} states"
            )
        rows, steps = scores.shape[:2]
        if lengths is None:
            lengths = torch.full((rows,), steps)
        elif lengths.shape != (rows,) or (rows and not 0 <= int(lengths.min()) <= int(lengths.max()) <= steps):
            raise TensorError(f"lengths are {lengths.tolist()}", expected=f"{rows} integers from 0 to {steps}")
        return cls(
            _log_scores(start),
            _log_scores(transition),
            _log_scores(end),
            _log_scores(scores).reshape(-1, states),
            torch.arange(rows * steps),
            torch.arange(rows) * steps,
            lengths.to(device="cpu", dtype=torch.int64).contiguous(),
            rows_are_shared=False,
        )

    @property
    def states(self) -> int:
        """K, the number of states."""
        return len(self.start)

    @property
    def rows(self) -> int:
        """B, the number of chains."""
        return len(self.lengths)

    def places(self) -> tuple[Tensor, Tensor]:
        """Returns the position of step t of chain b, (B, T), and a mask of the steps that exist, (B, T)."""
        steps = torch.arange(int(self.lengths.max()) if self.rows else 0)
        inside = steps < self.lengths[:, None]
        return torch.where(inside, self.begins[:, None] + steps, 0), inside

    def chain(self, row: int) -> Chains:
        """Returns one of the chains; its positions stay the same."""
        return dataclasses.replace(self, begins=self.begins[row : row + 1], lengths=self.lengths[row : row + 1])


def _log_scores(tensor: Tensor) -> Tensor:
    return tensor.detach().to(device="cpu", dtype=torch.float64).contiguous()


class Partition(NamedTuple):
    """The log-partition of each chain."""

    log_z: Tensor  # (B,)
    dead: Tensor  # (B,): the first position of the chain at which no path is possible any more, or -1


class Expected(NamedTuple):
    """Expected counts: how often a path uses each score on average, summed over the chains with their weights.

    They are the gradient of the weighted sum of log_z. Chains without any possible path contribute nothing.
    """

    log_z: Tensor  # (B,)
    start: Tensor  # (K,)
    transition: Tensor  # (K, K)
    end: Tensor  # (K,)
    table: Tensor  # (N, K)


class Best(NamedTuple):
    """The best path of each chain and its score; -inf and NO_STATE if no path is possible."""

    states: Tensor  # (P,)
    score: Tensor  # (B,)


NO_STATE = -1
Segment = tuple[int, int]  # positions of a chain, from its first: begin (included) and end (excluded)
