"""The hidden Markov model: a hidden state that moves by chance, and at each place an observation that depends on it.

    P(x, h) = prod_t P(h_t | h_(t-1)) P(x_t | h_t),    P(h_1 | h_0) = P(h_1)

    forward    pi_1(h) = P(h),    pi_t(h') = sum_h pi_(t-1)(h) P(x_(t-1) | h) P(h' | h)      = P(x_1 .. x_(t-1), h_t)
    backward   rho_T(h) = 1,      rho_t(h) = sum_h' P(h' | h) P(x_(t+1) | h') rho_(t+1)(h')  = P(x_(t+1) .. x_T | h_t)

    P(x) = sum_h pi_t(h) P(x_t | h) rho_t(h) for any t,    P(x_j | all the others) ~ sum_h pi_j(h) rho_j(h) P(x_j | h)

An observation that is MISSING is one of which nothing is known: its factor is left out. Probabilities of zero are
allowed everywhere; a sequence that they make impossible has the log-likelihood -inf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft import chains
from weft.chains import Chains, Partition
from weft.chains.reference import Recursions
from weft.decoding.blanks import FilledBlanks, fill_blanks
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions

MISSING = -1  # an observation of which nothing is known
_ROWS = 1024  # places whose (V,) chances are made at a time

Observations = Any  # whole numbers, one an observation: a list, an array or a tensor


class Path(NamedTuple):
    """Hidden states, and the log-probability of them together with the observations."""

    states: Tensor  # (T,)
    log_prob: float


class Gap(NamedTuple):
    """A missing observation: where, and how likely each value is there, given all that is not missing."""

    position: int
    probs: Tensor  # (V,)


@dataclass(frozen=True)
class HMM:
    """K hidden states, V kinds of observations. It is also a Stepper: its state is P(h_t | x_1 .. x_(t-1)), (R, K)."""

    initial: Tensor  # (K,) P(h_1)
    transition: Tensor  # (K, K) P(h_t | h_(t-1)): from, to
    emission: Tensor  # (K, V) P(x_t | h_t)

    def __post_init__(self) -> None:
        for name in ("initial", "transition", "emission"):
            object.__setattr__(self, name, torch.as_tensor(getattr(self, name), dtype=torch.float64))
        K = len(self.initial)
        for name, shape in (("initial", (K,)), ("transition", (K, K)), ("emission", (K, self.emission.shape[-1]))):
            probs = getattr(self, name)
            if tuple(probs.shape) != shape:
                raise WeftError(f"HMM: {name} is {tuple(probs.shape)}", expected=f"{shape} for {K} states")
            totals = probs.sum(-1)
            if not (probs >= 0).all() or not (totals - 1).abs().max() < 1e-6:
                raise WeftError(
                    f"HMM: {name} has probabilities from {float(probs.min()):.4g} on, with a sum of "
                    f"{float(totals.min()):.4g} to {float(totals.max()):.4g}",
                    expected="0 or more each, and 1 in all",
                )

    @property
    def states(self) -> int:
        return len(self.initial)

    @property
    def size(self) -> int:
        """V"""
        return self.emission.shape[1]

    # The chain that observations make of it

    def chains(self, sequences: Sequence[Observations]) -> Chains:
        """The sequences one after another, as chains. The last row of the table is that of what is missing."""
        rows = [as_observations(sequence) for sequence in sequences]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        ids = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
        if len(ids) and not (ids.min() >= MISSING and ids.max() < self.size):
            number, place, wrong = _first_wrong(rows, self.size)
            raise WeftError(
                f"sequence {number}, place {place}: the observation is {wrong}",
                expected=f"0 to {self.size - 1}, or {MISSING} where it is missing",
            )
        ids = np.where(ids == MISSING, self.size, ids)
        nothing = torch.zeros(self.states, dtype=torch.float64)
        table = torch.cat([self.emission.log().t(), nothing[None]])  # (V + 1, K)
        begins = lengths.cumsum(0) - lengths
        return Chains(self.initial.log(), self.transition.log(), nothing, table, torch.from_numpy(ids), begins, lengths)

    def check_possible(self, sequences: Sequence[Observations], found: Partition) -> None:
        """Refuse to speak of the states of a sequence that cannot be; says which observation makes it so."""
        impossible = (found.dead >= 0).nonzero().flatten().tolist()
        if not impossible:
            return
        number = impossible[0]
        place = int(found.dead[number])
        raise WeftError(
            f"sequence {number} is impossible: no state that can be at place {place} gives the observation "
            f"{int(as_observations(sequences[number])[place])}",
            expected="observations with a chance above 0",
            hint="a model fitted with smoothing",
        )

    # What can be asked of observations

    def log_likelihood(self, sequences: Sequence[Observations]) -> Tensor:
        """log P(x) of each sequence, (B,); -inf for one that cannot be."""
        return chains.partition(self.chains(sequences)).log_z

    def log_pi(self, sequence: Observations) -> Tensor:
        """The forward recursion in logarithms, (T, K)."""
        return Recursions(self.chains([sequence])).pi[0]

    def log_rho(self, sequence: Observations) -> Tensor:
        """The backward recursion in logarithms, (T, K)."""
        return Recursions(self.chains([sequence])).backward()[0]

    def posterior(self, sequences: Sequence[Observations]) -> list[Tensor]:
        """P(h_t | x) for every place of every sequence: (T, K) each."""
        problem = self.chains(sequences)
        found, shares = chains.posterior(problem)
        self.check_possible(sequences, found)
        return list(torch.split(shares, problem.lengths.tolist()))

    def missing(self, sequence: Observations) -> list[Gap]:
        """For each observation that is MISSING, how likely each value is there, given those that are not."""
        shares = self.posterior([sequence])[0]
        positions = np.flatnonzero(as_observations(sequence) == MISSING)
        return [Gap(int(position), shares[position] @ self.emission) for position in positions]

    blank = MISSING

    def fill_blanks(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        """The `n` likeliest values of the missing observations together, likeliest first; see `fill_blanks`.

        Their joint probability is the model's own, whatever the order in which they are filled.
        """

        def log_probs(rows: Tensor, place: int) -> Tensor:
            shares = self.posterior(list(rows.numpy()))
            return (torch.stack([share[place] for share in shares]) @ self.emission).log()

        return fill_blanks(ids, self.blank, n, log_probs, width=width, banned=banned)

    def leave_one_out(self, sequence: Observations) -> Tensor:
        """P(x_j | all other observations) for every j, as if only that one were missing: (T, V)."""
        found, shares = chains.cavity(self.chains([sequence]))
        self.check_possible([sequence], found)
        return shares @ self.emission

    def viterbi(self, sequences: Sequence[Observations]) -> list[Path]:
        """The likeliest states of each sequence."""
        problem = self.chains(sequences)
        states, score = chains.viterbi(problem)
        if score.isneginf().any():
            self.check_possible(sequences, chains.partition(problem))
        rows = torch.split(states, problem.lengths.tolist())
        return [Path(row, log_prob) for row, log_prob in zip(rows, score.tolist(), strict=True)]

    def sample(self, length: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Hidden states and observations at random, (T,) each."""
        uniforms = np.random.default_rng(seed).random((length, 2))
        wheels = [rows.numpy().cumsum(-1) for rows in (self.initial[None], self.transition, self.emission)]
        last = [(rows > 0).cumsum(-1).argmax(-1) for rows in (self.initial[None], self.transition, self.emission)]

        def turn(kind: int, row: int, uniform: float) -> int:
            # Sums may end a rounding below one: then the last with any chance is meant.
            return min(int(np.searchsorted(wheels[kind][row], uniform, side="right")), int(last[kind][row]))

        states, observations = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.int64)
        for t in range(length):
            states[t] = turn(0, 0, uniforms[0, 0]) if t == 0 else turn(1, states[t - 1], uniforms[t, 0])
            observations[t] = turn(2, states[t], uniforms[t, 1])
        return torch.from_numpy(states), torch.from_numpy(observations)

    # The next token

    def initial_state(self, rows: int) -> Tensor:
        return self.initial.expand(rows, -1).clone()

    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read one observation a row, (R,); log-probabilities (R, V) of the next, and P(h) of the next place."""
        held = state * self.emission.t()[ids]  # (R, K)
        total = held.sum(-1, keepdim=True)
        if not (total > 0).all():
            row = int((total[:, 0] <= 0).nonzero()[0, 0])
            raise WeftError(
                f"the model holds the token with id {int(ids[row])} for impossible where it stands",
                hint="a model fitted with smoothing",
            )
        after = (held / total) @ self.transition
        return (after @ self.emission).log(), after

    def select(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]

    def evaluate(self, tokens: np.ndarray[Any, np.dtype[Any]]) -> Likelihood:
        """How well the model foretells the tokens, each but the first from all that stand before it."""
        if len(tokens) < 2:
            raise WeftError(f"there are {len(tokens)} tokens to evaluate on", expected="at least 2")
        whole, first = self.log_likelihood([tokens, tokens[:1]]).tolist()
        return Likelihood(first - whole if whole > -np.inf else np.inf, len(tokens) - 1)

    context = "both"

    def predict_tokens(self, tokens: np.ndarray[Any, np.dtype[Any]]) -> TokenPredictions:
        """How well the model tells each token but the first from all the others, those after it included."""
        ids = as_observations(tokens)
        found, shares = chains.cavity(self.chains([ids]))
        self.check_possible([ids], found)
        nats, right = 0.0, 0
        for begin in range(1, len(ids), _ROWS):
            probs = shares[begin : begin + _ROWS] @ self.emission  # (rows, V)
            true = torch.from_numpy(ids[begin : begin + _ROWS])
            nats -= float(probs.gather(1, true[:, None]).log().sum())
            right += int((probs.argmax(-1) == true).sum())
        return TokenPredictions(Likelihood(nats, len(ids) - 1), right)

    # Storage

    def tensors(self) -> dict[str, Tensor]:
        return {"initial": self.initial, "transition": self.transition, "emission": self.emission}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> HMM:
        return cls(tensors["initial"], tensors["transition"], tensors["emission"])


def as_observations(sequence: Observations) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One sequence as an array."""
    return np.asarray(sequence).astype(np.int64, copy=False).reshape(-1)


def _first_wrong(rows: Sequence[np.ndarray[Any, Any]], size: int) -> tuple[int, int, int]:
    for number, row in enumerate(rows):
        wrong = np.flatnonzero((row < MISSING) | (row >= size))
        if len(wrong):
            return number, int(wrong[0]), int(row[wrong[0]])
    raise AssertionError("all are right")
