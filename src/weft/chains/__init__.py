"""Dynamic programming on a chain of hidden states, shared by the HMM and the CRF.

A sum or a maximum over all K^T paths in K^2 T steps: `partition` (the log of the sum), `posterior` (the chance of each
state at each place), `cavity` (the same without the place's own evidence), `expect` (average counts, which are the
gradient), `viterbi`, `n_best` and `stretches` (the chance of a part of a path). Compiled code where it could be built,
the same recursions as plain torch elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.chains import kernel, reference
from weft.chains.problem import NO_STATE, Best, Chains, Expected, Partition, Stretch
from weft.chains.reference import n_best, stretches

__all__ = [
    "NO_STATE",
    "Best",
    "Chains",
    "Expected",
    "Partition",
    "Stretch",
    "cavity",
    "expect",
    "log_partition",
    "n_best",
    "partition",
    "posterior",
    "stretches",
    "viterbi",
]


def partition(chains: Chains) -> Partition:
    """The log of the summed exp(score) of all paths of each chain, and where a chain without any path breaks off."""
    return _home(chains).partition(chains)  # type: ignore[no-any-return]


def posterior(chains: Chains) -> tuple[Partition, Tensor]:
    """The chance of each state at each place, (P, K); zeros for a chain that has no path."""
    return _home(chains).posterior(chains)  # type: ignore[no-any-return]


def cavity(chains: Chains) -> tuple[Partition, Tensor]:
    """The chance of each state at each place if the place's own scores were not known, (P, K)."""
    return _home(chains).cavity(chains)  # type: ignore[no-any-return]


def expect(chains: Chains, weights: Tensor | None = None) -> Expected:
    """How often each score is used on average, summed over the chains by their weights (B,), or each as one."""
    given = torch.ones(chains.rows) if weights is None else weights
    return _home(chains).expect(chains, given.to(torch.float64).contiguous())  # type: ignore[no-any-return]


def viterbi(chains: Chains) -> Best:
    """The best path of each chain; of equals the one with the lower states, looked at from the end."""
    return _home(chains).viterbi(chains)  # type: ignore[no-any-return]


def _home(chains: Chains) -> Any:
    return kernel if kernel.takes(chains) else reference


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, start: Tensor, transition: Tensor, end: Tensor, scores: Tensor, lengths: Tensor) -> Tensor:
        ctx.chains = Chains.padded(start, transition, end, scores, lengths)
        ctx.like = scores
        return partition(ctx.chains).log_z.to(scores)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        found = expect(ctx.chains, gradient.detach().cpu())
        scores = found.table.view(ctx.like.shape).to(ctx.like)
        return found.start.to(ctx.like), found.transition.to(ctx.like), found.end.to(ctx.like), scores, None


def log_partition(start: Tensor, transition: Tensor, end: Tensor, scores: Tensor, lengths: Tensor | None) -> Tensor:
    """`partition` of scores (B, T, K) as a function that torch can differentiate: (B,)."""
    found: Tensor = _LogPartition.apply(start, transition, end, scores, lengths)  # type: ignore[no-untyped-call]
    return found
