"""What a chain is: scores of the states at each place, and of going from one state to the next."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from weft.errors import WeftError


@dataclass(frozen=True)
class Chains:
    """B chains of places, each place in one of K states. All scores are logarithms, in float64; -inf forbids.

    A path h has the score start[h_1] + sum_t transition[h_(t-1), h_t] + sum_t table[ids[t], h_t] + end[h_T].
    The places of all chains lie in one array of P; chain b has those from begins[b] on, lengths[b] of them. What lies
    outside of all chains is never looked at. A chain without places has one path, of score 0.
    """

    start: Tensor  # (K,)
    transition: Tensor  # (K, K): from, to
    end: Tensor  # (K,)
    table: Tensor  # (N, K): a row of scores for each kind of place
    ids: Tensor  # (P,): the row of the table at each place
    begins: Tensor  # (B,)
    lengths: Tensor  # (B,)
    rows_are_shared: bool = True  # False where no two places have the same row of the table

    @classmethod
    def padded(cls, start: Tensor, transition: Tensor, end: Tensor, scores: Tensor, lengths: Tensor | None) -> Chains:
        """From scores (B, T, K) of every place."""
        states = len(start)
        if scores.dim() != 3 or scores.shape[2] != states:
            raise WeftError(
                f"scores are {tuple(scores.shape)}", expected=f"(B, T, {states}) because there are {states} states"
            )
        rows, steps = scores.shape[:2]
        if lengths is None:
            lengths = torch.full((rows,), steps)
        elif lengths.shape != (rows,) or (rows and not 0 <= int(lengths.min()) <= int(lengths.max()) <= steps):
            raise WeftError(
                f"lengths are {lengths.tolist()}", expected=f"{rows} whole numbers, each from 0 to the {steps} steps"
            )
        return cls(
            _numbers(start),
            _numbers(transition),
            _numbers(end),
            _numbers(scores).reshape(-1, states),
            torch.arange(rows * steps),
            torch.arange(rows) * steps,
            lengths.to(device="cpu", dtype=torch.int64).contiguous(),
            rows_are_shared=False,
        )

    @property
    def states(self) -> int:
        return len(self.start)

    @property
    def rows(self) -> int:
        return len(self.lengths)

    def places(self) -> tuple[Tensor, Tensor]:
        """Where step t of chain b stands, (B, T), and whether there is such a step."""
        steps = torch.arange(int(self.lengths.max()) if self.rows else 0)
        inside = steps < self.lengths[:, None]
        return torch.where(inside, self.begins[:, None] + steps, 0), inside

    def chain(self, row: int) -> Chains:
        """One of the chains alone; its places keep their numbers."""
        return dataclasses.replace(self, begins=self.begins[row : row + 1], lengths=self.lengths[row : row + 1])


def _numbers(tensor: Tensor) -> Tensor:
    return tensor.detach().to(device="cpu", dtype=torch.float64).contiguous()


class Partition(NamedTuple):
    """The log of the summed scores of all paths."""

    log_z: Tensor  # (B,)
    dead: Tensor  # (B,): the place, counted from the chain's first, at which no path is possible any more; or -1


class Expected(NamedTuple):
    """How often each part of the scores is used by a path on average, summed over the chains by their weights.

    It is the gradient of the weighted sum of log_z. Chains without any possible path add nothing.
    """

    log_z: Tensor  # (B,)
    start: Tensor  # (K,)
    transition: Tensor  # (K, K)
    end: Tensor  # (K,)
    table: Tensor  # (N, K)


class Best(NamedTuple):
    """The best path of each chain, and its score. Where there is none the score is -inf and the states are NO_STATE."""

    states: Tensor  # (P,)
    score: Tensor  # (B,)


NO_STATE = -1
Stretch = tuple[int, int]  # places of a chain, counted from its first: from one to before another
