"""The recursions as plain torch in the log domain: the reference for the compiled ones, and their fallback.

    forward   pi_1 = start,  pi_t(h') = log sum_h exp(pi_(t-1)(h) + score_(t-1)(h) + transition(h, h'))
    backward  rho_T = end,   rho_t(h) = log sum_h' exp(transition(h, h') + score_(t+1)(h') + rho_(t+1)(h'))

pi_t covers everything before position t and rho_t everything after it; neither contains the score of position t.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.chains.problem import NO_STATE, Best, Chains, Expected, Partition, Segment

IMPOSSIBLE = -torch.inf  # the log of probability 0


class Recursions:
    """The forward recursion of chains padded to the longest: pi (B, T, K), log_z and dead (B,)."""

    def __init__(self, chains: Chains) -> None:
        self.chains = chains
        self.places, self.inside = chains.places()
        self.scores = chains.table[chains.ids[self.places]]  # (B, T, K)
        self.rows, self.steps = self.places.shape
        self.pi = self._forward()
        held = self.pi + self.scores
        alive = (held != IMPOSSIBLE).any(-1) | ~self.inside
        last = (chains.lengths - 1).clamp(min=0)
        ends = torch.zeros(self.rows, chains.states, dtype=torch.float64)
        if self.steps:
            ends = held[torch.arange(self.rows), last] + chains.end
        self.log_z = torch.where(chains.lengths > 0, ends.logsumexp(-1), 0.0)
        dead = torch.where(alive.all(-1), last, (~alive).int().argmax(-1) if self.steps else last)
        self.dead = torch.where(self.log_z == IMPOSSIBLE, dead, -1)

    def _forward(self) -> Tensor:
        pi = self.chains.start.expand(self.rows, -1)
        found = []
        for t in range(self.steps):
            if t > 0:
                pi = _advance(pi + self.scores[:, t - 1], self.chains.transition)
            found.append(pi)
        return _stack(found, self.rows, self.chains.states)

    def backward(self) -> Tensor:
        """Computes the backward recursion rho, (B, T, K)."""
        end = self.chains.end.expand(self.rows, -1)
        rho, found = end, []
        for t in reversed(range(self.steps)):
            last = (self.chains.lengths == t + 1)[:, None]
            rho = torch.where(last, end, rho)
            found.append(rho)
            rho = _advance(self.scores[:, t] + rho, self.chains.transition.t())
        return _stack(found[::-1], self.rows, self.chains.states)

    def spread(self, values: Tensor) -> Tensor:
        """Scatters values (B, T, ...) to their positions (P, ...); zeros outside of all chains."""
        result = values.new_zeros(len(self.chains.ids), *values.shape[2:])
        result[self.places[self.inside]] = values[self.inside]
        return result


def _advance(held: Tensor, transition: Tensor) -> Tensor:
    return (held[:, :, None] + transition).logsumexp(1)


def _stack(found: list[Tensor], rows: int, states: int) -> Tensor:
    return torch.stack(found, 1) if found else torch.zeros(rows, 0, states, dtype=torch.float64)


def _normalize(log: Tensor) -> Tensor:
    """Softmax over the last dimension; all zeros if every entry is impossible."""
    return torch.where((log == IMPOSSIBLE).all(-1, keepdim=True), 0.0, log.softmax(-1))


def partition(chains: Chains) -> Partition:
    """See `weft.chains.partition`."""
    recursions = Recursions(chains)
    return Partition(recursions.log_z, recursions.dead)


def posterior(chains: Chains) -> tuple[Partition, Tensor]:
    """See `weft.chains.posterior`."""
    recursions = Recursions(chains)
    probs = _normalize(recursions.pi + recursions.scores + recursions.backward())
    return Partition(recursions.log_z, recursions.dead), recursions.spread(probs)


def cavity(chains: Chains) -> tuple[Partition, Tensor]:
    """See `weft.chains.cavity`."""
    recursions = Recursions(chains)
    possible = (recursions.log_z != IMPOSSIBLE)[:, None, None]
    probs = torch.where(possible, _normalize(recursions.pi + recursions.backward()), 0.0)
    return Partition(recursions.log_z, recursions.dead), recursions.spread(probs)


def expect(chains: Chains, weights: Tensor) -> Expected:
    """See `weft.chains.expect`."""
    recursions = Recursions(chains)
    rho, rows = recursions.backward(), torch.arange(chains.rows)
    held, onward = recursions.pi + recursions.scores, recursions.scores + rho
    probs = _normalize(held + rho) * weights[:, None, None]
    probs = torch.where(recursions.inside[:, :, None], probs, 0.0)
    transition = torch.zeros_like(chains.transition)
    possible = recursions.log_z != IMPOSSIBLE
    for t in range(1, recursions.steps):
        there = recursions.inside[:, t] & possible
        pairs = held[there, t - 1, :, None] + chains.transition + onward[there, t, None, :]
        pairs = (pairs - recursions.log_z[there, None, None]).exp()
        transition += (pairs * weights[there, None, None]).sum(0)
    table = torch.zeros_like(chains.table)
    table.index_add_(0, chains.ids[recursions.places[recursions.inside]], probs[recursions.inside])
    if not recursions.steps:
        nothing = torch.zeros_like(chains.start)
        return Expected(recursions.log_z, nothing, transition, nothing, table)
    last = probs[rows, (chains.lengths - 1).clamp(min=0)]
    return Expected(recursions.log_z, probs[:, 0].sum(0), transition, last.sum(0), table)


def viterbi(chains: Chains) -> Best:
    """See `weft.chains.viterbi`."""
    places, inside = chains.places()
    scores = chains.table[chains.ids[places]]
    rows, steps = places.shape
    states = torch.full((len(chains.ids),), NO_STATE)
    now = chains.start.expand(rows, -1)
    ends, choices = torch.zeros(rows, chains.states, dtype=torch.float64), []
    for t in range(steps):
        if t > 0:
            now, choice = (now[:, :, None] + chains.transition).max(1)
            choices.append(choice)
        now = now + scores[:, t]
        ends = torch.where((chains.lengths == t + 1)[:, None], now + chains.end, ends)
    score, state = ends.max(-1)
    score = torch.where(chains.lengths > 0, score, 0.0)
    last = torch.where(score == IMPOSSIBLE, NO_STATE, state)
    state = last
    for t in reversed(range(steps)):
        if t + 1 < steps:
            back = choices[t].gather(1, state.clamp(min=0)[:, None])[:, 0]
            state = torch.where(t + 1 < chains.lengths, torch.where(last == NO_STATE, NO_STATE, back), last)
        states[places[inside[:, t], t]] = state[inside[:, t]]
    return Best(states, score)


def n_best(chains: Chains, count: int) -> list[list[tuple[float, list[int]]]]:
    """Finds the `count` best paths of each chain.

    At each position every state keeps its `count` best predecessors; a predecessor is a rank and a state.

    Returns:
        For each chain up to `count` (score, path) pairs, best first.
    """
    return [_n_best_of(chains, row, count) for row in range(chains.rows)]


def _n_best_of(chains: Chains, row: int, count: int) -> list[tuple[float, list[int]]]:
    begin, length, K = int(chains.begins[row]), int(chains.lengths[row]), chains.states
    if length == 0:
        return [(0.0, [])]
    scores = chains.table[chains.ids[begin : begin + length]]
    now = (chains.start + scores[0])[None]  # (rank, K)
    choices: list[Tensor] = []
    for t in range(1, length):
        candidates = (now[:, :, None] + chains.transition).reshape(-1, K)  # (rank * K + previous state, K)
        now, choice = candidates.topk(min(count, len(candidates)), dim=0)
        now = now + scores[t]
        choices.append(choice)
    best, order = (now + chains.end).reshape(-1).topk(min(count, now.numel()))
    found = []
    for score, index in zip(best.tolist(), order.tolist(), strict=True):
        if score == IMPOSSIBLE:
            break
        path = [index % K]
        for choice in reversed(choices):
            index = int(choice[index // K, index % K])
            path.append(index % K)
        found.append((score, path[::-1]))
    return found


def segment_log_probs(chains: Chains, paths: Sequence[tuple[Sequence[int], Sequence[Segment]]]) -> list[list[float]]:
    """Computes the log-probability that a chain follows a path inside a segment, summed over everything outside it.

    Args:
        chains: the chains.
        paths: for each chain a path and segments (begin, end) of it, end excluded.

    Returns:
        For each chain the log-probabilities of its segments.
    """
    recursions = Recursions(chains)
    rho = recursions.backward()
    found = []
    for row, (path, wanted) in enumerate(paths):
        states, places = torch.tensor(path), torch.arange(len(path))
        own = recursions.scores[row, places, states].cumsum(0)
        transitions = torch.cat([own.new_zeros(1), chains.transition[states[:-1], states[1:]].cumsum(0)])
        begins, lasts = torch.tensor(wanted).T[0], torch.tensor(wanted).T[1] - 1
        inside = (
            own[lasts] - own[begins] + transitions[lasts] - transitions[begins]
        )  # all scores of the segment but that of its first position
        first = recursions.pi[row, begins, states[begins]] + recursions.scores[row, begins, states[begins]]
        found.append((first + inside + rho[row, lasts, states[lasts]] - recursions.log_z[row]).tolist())
    return found
