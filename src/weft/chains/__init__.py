"""Dynamic programming on linear chains: sums and maxima over all K^T paths in O(K^2 T). The HMM and the CRF share it.

    partition      log of the sum over all paths (forward algorithm)
    posterior      probability of each state at each position (forward-backward algorithm)
    cavity         the same without the position's own scores
    expect         expected counts, which are the gradient of the log-partition
    viterbi        the best path
    n_best         the n best paths
    segment_log_probs      probability of a segment of a path
    log_partition  `partition` as a differentiable torch function

Compiled code (kernel.py) runs where it is available, the same recursions as plain torch (reference.py) elsewhere.

    problem.py     Chains: the scores, and the types of the results
    reference.py   the recursions in torch
    kernel.py      the recursions in C++
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.chains import kernel, reference
from weft.chains.problem import NO_STATE, Best, Chains, Expected, Partition, Segment
from weft.chains.reference import n_best, segment_log_probs
from weft.engine.autograd import one_at_a_time


def partition(chains: Chains) -> Partition:
    """Computes log sum exp(score) over all paths of each chain, and where a chain without a path breaks off."""
    return _backend(chains).partition(chains)  # type: ignore[no-any-return]


def posterior(chains: Chains) -> tuple[Partition, Tensor]:
    """Computes the probability of each state at each position, (P, K); zeros for a chain without any possible path."""
    return _backend(chains).posterior(chains)  # type: ignore[no-any-return]


def cavity(chains: Chains) -> tuple[Partition, Tensor]:
    """Computes the probability of each state at each position given the scores of all other positions, (P, K)."""
    return _backend(chains).cavity(chains)  # type: ignore[no-any-return]


def expect(chains: Chains, weights: Tensor | None = None) -> Expected:
    """Computes the expected number of uses of each score, summed over the chains with weights (B,), by default 1."""
    given = torch.ones(chains.rows) if weights is None else weights
    return _backend(chains).expect(chains, given.to(torch.float64).contiguous())  # type: ignore[no-any-return]


def viterbi(chains: Chains) -> Best:
    """Finds the best path of each chain. In a tie the path with the lower state wins, compared from the end."""
    return _backend(chains).viterbi(chains)  # type: ignore[no-any-return]


def _backend(chains: Chains) -> Any:
    return kernel if kernel.takes(chains) else reference


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, start: Tensor, transition: Tensor, end: Tensor, scores: Tensor, lengths: Tensor) -> Tensor:
        ctx.chains = Chains.padded(start, transition, end, scores, lengths)
        ctx.like = scores
        return partition(ctx.chains).log_z.to(scores)

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        found = expect(ctx.chains, gradient.detach().cpu())
        scores = found.table.view(ctx.like.shape).to(ctx.like)
        return found.start.to(ctx.like), found.transition.to(ctx.like), found.end.to(ctx.like), scores, None


def log_partition(start: Tensor, transition: Tensor, end: Tensor, scores: Tensor, lengths: Tensor | None) -> Tensor:
    """Computes the differentiable log-partition of padded chains.

    Args:
        start: (K,) scores of the first state.
        transition: (K, K) scores of transitions, from row to column.
        end: (K,) scores of the last state.
        scores: (B, T, K) scores of the states at each position.
        lengths: (B,) lengths of the chains; None means T.

    Returns:
        (B,).
    """
    found: Tensor = _LogPartition.apply(start, transition, end, scores, lengths)  # type: ignore[no-untyped-call]
    return found
