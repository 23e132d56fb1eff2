"""The recursions as plain torch, in logarithms: what the compiled ones must equal, and what runs where they cannot.

    forward   pi_1 = start,  pi_t(h') = log sum_h exp(pi_(t-1)(h) + score_(t-1)(h) + transition(h, h'))
    backward  rho_T = end,   rho_t(h) = log sum_h' exp(transition(h, h') + score_(t+1)(h') + rho_(t+1)(h'))

so that pi_t knows all that stands before place t, rho_t all that stands after it, and neither knows the place itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.chains.problem import NO_STATE, Best, Chains, Expected, Partition, Stretch

NOTHING = -torch.inf


class Recursions:
    """The chains side by side, padded to the longest: pi and rho (B, T, K), log_z and dead (B,)."""

    def __init__(self, chains: Chains) -> None:
        self.chains = chains
        self.places, self.inside = chains.places()
        self.scores = chains.table[chains.ids[self.places]]  # (B, T, K)
        self.rows, self.steps = self.places.shape
        self.pi = self._forward()
        held = self.pi + self.scores
        alive = (held != NOTHING).any(-1) | ~self.inside
        last = (chains.lengths - 1).clamp(min=0)
        ends = torch.zeros(self.rows, chains.states, dtype=torch.float64)
        if self.steps:
            ends = held[torch.arange(self.rows), last] + chains.end
        self.log_z = torch.where(chains.lengths > 0, ends.logsumexp(-1), 0.0)
        dead = torch.where(alive.all(-1), last, (~alive).int().argmax(-1) if self.steps else last)
        self.dead = torch.where(self.log_z == NOTHING, dead, -1)

    def _forward(self) -> Tensor:
        pi = self.chains.start.expand(self.rows, -1)
        found = []
        for t in range(self.steps):
            if t > 0:
                pi = _after(pi + self.scores[:, t - 1], self.chains.transition)
            found.append(pi)
        return _stacked(found, self.rows, self.chains.states)

    def backward(self) -> Tensor:
        end = self.chains.end.expand(self.rows, -1)
        rho, found = end, []
        for t in reversed(range(self.steps)):
            last = (self.chains.lengths == t + 1)[:, None]
            rho = torch.where(last, end, rho)
            found.append(rho)
            rho = _after(self.scores[:, t] + rho, self.chains.transition.t())
        return _stacked(found[::-1], self.rows, self.chains.states)

    def spread(self, values: Tensor) -> Tensor:
        """Values (B, T, ...) put at their places (P, ...), with zeros where no chain is."""
        result = values.new_zeros(len(self.chains.ids), *values.shape[2:])
        result[self.places[self.inside]] = values[self.inside]
        return result


def _after(held: Tensor, transition: Tensor) -> Tensor:
    return (held[:, :, None] + transition).logsumexp(1)


def _stacked(found: list[Tensor], rows: int, states: int) -> Tensor:
    return torch.stack(found, 1) if found else torch.zeros(rows, 0, states, dtype=torch.float64)


def _shares(log: Tensor) -> Tensor:
    """exp(log) over its sum; all zero where everything is impossible."""
    return torch.where((log == NOTHING).all(-1, keepdim=True), 0.0, log.softmax(-1))


def partition(chains: Chains) -> Partition:
    recursions = Recursions(chains)
    return Partition(recursions.log_z, recursions.dead)


def posterior(chains: Chains) -> tuple[Partition, Tensor]:
    """And the chance of every state at every place, (P, K)."""
    recursions = Recursions(chains)
    shares = _shares(recursions.pi + recursions.scores + recursions.backward())
    return Partition(recursions.log_z, recursions.dead), recursions.spread(shares)


def cavity(chains: Chains) -> tuple[Partition, Tensor]:
    """And the chance of every state at every place if that place's own score were not known, (P, K)."""
    recursions = Recursions(chains)
    possible = (recursions.log_z != NOTHING)[:, None, None]
    shares = torch.where(possible, _shares(recursions.pi + recursions.backward()), 0.0)
    return Partition(recursions.log_z, recursions.dead), recursions.spread(shares)


def expect(chains: Chains, weights: Tensor) -> Expected:
    recursions = Recursions(chains)
    rho, rows = recursions.backward(), torch.arange(chains.rows)
    held, onward = recursions.pi + recursions.scores, recursions.scores + rho
    shares = _shares(held + rho) * weights[:, None, None]
    shares = torch.where(recursions.inside[:, :, None], shares, 0.0)
    transition = torch.zeros_like(chains.transition)
    possible = recursions.log_z != NOTHING
    for t in range(1, recursions.steps):
        there = recursions.inside[:, t] & possible
        pairs = held[there, t - 1, :, None] + chains.transition + onward[there, t, None, :]
        pairs = (pairs - recursions.log_z[there, None, None]).exp()
        transition += (pairs * weights[there, None, None]).sum(0)
    table = torch.zeros_like(chains.table)
    table.index_add_(0, chains.ids[recursions.places[recursions.inside]], shares[recursions.inside])
    if not recursions.steps:
        nothing = torch.zeros_like(chains.start)
        return Expected(recursions.log_z, nothing, transition, nothing, table)
    last = shares[rows, (chains.lengths - 1).clamp(min=0)]
    return Expected(recursions.log_z, shares[:, 0].sum(0), transition, last.sum(0), table)


def viterbi(chains: Chains) -> Best:
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
    last = torch.where(score == NOTHING, NO_STATE, state)
    state = last
    for t in reversed(range(steps)):
        if t + 1 < steps:
            back = choices[t].gather(1, state.clamp(min=0)[:, None])[:, 0]
            state = torch.where(t + 1 < chains.lengths, torch.where(last == NO_STATE, NO_STATE, back), last)
        states[places[inside[:, t], t]] = state[inside[:, t]]
    return Best(states, score)


def n_best(chains: Chains, count: int) -> list[list[tuple[float, list[int]]]]:
    """For each chain its `count` best paths with their scores, best first; fewer where there are fewer.

    At each place every state keeps the `count` best ways that lead to it: a way is a rank and the state before.
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
        ways = (now[:, :, None] + chains.transition).reshape(-1, K)  # (rank and state before, K)
        now, choice = ways.topk(min(count, len(ways)), dim=0)
        now = now + scores[t]
        choices.append(choice)
    best, order = (now + chains.end).reshape(-1).topk(min(count, now.numel()))
    found = []
    for score, way in zip(best.tolist(), order.tolist(), strict=True):
        if score == NOTHING:
            break
        path = [way % K]
        for choice in reversed(choices):
            way = int(choice[way // K, way % K])
            path.append(way % K)
        found.append((score, path[::-1]))
    return found


def stretches(chains: Chains, paths: Sequence[tuple[Sequence[int], Sequence[Stretch]]]) -> list[list[float]]:
    """The log of the chance that a chain goes through these places as its path does, whatever it does before and after.

    For each chain a path and stretches of it; a stretch is from its first place to before its last.
    """
    recursions = Recursions(chains)
    rho = recursions.backward()
    found = []
    for row, (path, wanted) in enumerate(paths):
        states, places = torch.tensor(path), torch.arange(len(path))
        own = recursions.scores[row, places, states].cumsum(0)
        moves = torch.cat([own.new_zeros(1), chains.transition[states[:-1], states[1:]].cumsum(0)])
        begins, lasts = torch.tensor(wanted).T[0], torch.tensor(wanted).T[1] - 1
        inside = own[lasts] - own[begins] + moves[lasts] - moves[begins]  # all scores but the first place's own
        first = recursions.pi[row, begins, states[begins]] + recursions.scores[row, begins, states[begins]]
        found.append((first + inside + rho[row, lasts, states[lasts]] - recursions.log_z[row]).tolist())
    return found
