"""The hidden Markov model: a hidden state that follows a Markov chain, and an observation at each position.

    P(x, h) = prod_t P(h_t | h_(t-1)) P(x_t | h_t),    P(h_1 | h_0) = P(h_1)

    forward    pi_1(h) = P(h),    pi_t(h') = sum_h pi_(t-1)(h) P(x_(t-1) | h) P(h' | h)      = P(x_1 .. x_(t-1), h_t)
    backward   rho_T(h) = 1,      rho_t(h) = sum_h' P(h' | h) P(x_(t+1) | h') rho_(t+1)(h')  = P(x_(t+1) .. x_T | h_t)

    P(x) = sum_h pi_t(h) P(x_t | h) rho_t(h) for any t,    P(x_j | all the others) ~ sum_h pi_j(h) rho_j(h) P(x_j | h)

A MISSING observation contributes no factor. Probabilities of zero are allowed everywhere; a sequence that they make
impossible has the log-likelihood -inf. Rabiner 1989, "A tutorial on hidden Markov models".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

MISSING = -1  # an unknown observation
_ROWS = 1024  # positions whose (V,) probabilities are computed at a time

Observations = Any  # (T,) integers: a list, an array or a tensor


class Path(NamedTuple):
    """Hidden states, and their joint log-probability with the observations."""

    states: Tensor  # (T,)
    log_prob: float


class Gap(NamedTuple):
    """A missing observation: its position, and the distribution of its value given the known observations."""

    position: int
    probs: Tensor  # (V,)


@dataclass(frozen=True)
class HMM:
    """A hidden Markov model with K states and V observation values.

    It is also a `Stepper`: its state is P(h_t | x_1 .. x_(t-1)), (R, K).

    Raises:
        WeftError: shapes do not fit, or rows are not probability distributions.
    """

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
                    f"HMM: {name} has values from {float(probs.min()):.4g} and sums from "
                    f"{float(totals.min()):.4g} to {float(totals.max()):.4g}",
                    expected="non-negative values that sum to 1",
                )

    @property
    def states(self) -> int:
        """K, the number of hidden states."""
        return len(self.initial)

    @property
    def size(self) -> int:
        """V, the number of observation values."""
        return self.emission.shape[1]

    def chains(self, sequences: Sequence[Observations]) -> Chains:
        """Builds the chains of the sequences. The last row of their table belongs to missing observations."""
        rows = [as_observations(sequence) for sequence in sequences]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        ids = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
        if len(ids) and not (ids.min() >= MISSING and ids.max() < self.size):
            wrong = [(row < MISSING) | (row >= self.size) for row in rows]
            number = next(number for number, each in enumerate(wrong) if each.any())
            position = int(wrong[number].argmax())
            raise WeftError(
                f"sequence {number}, position {position}: the observation is {rows[number][position]}",
                expected=f"0 to {self.size - 1}, or {MISSING} if it is missing",
            )
        ids = np.where(ids == MISSING, self.size, ids)
        zeros = torch.zeros(self.states, dtype=torch.float64)
        table = torch.cat([self.emission.log().t(), zeros[None]])  # (V + 1, K)
        begins = lengths.cumsum(0) - lengths
        return Chains(self.initial.log(), self.transition.log(), zeros, table, torch.from_numpy(ids), begins, lengths)

    def count_emissions(self, sequences: Sequence[Observations], table: Tensor) -> Tensor:
        """The expected counts (K, V) of each state's observations; missing ones do not count."""
        return table[:-1].t()

    def re_estimated(self, initial: Tensor, transition: Tensor, emissions: Tensor, smoothing: float) -> HMM:
        """A model with these probabilities of states, whose emissions are estimated from their expected counts."""
        return HMM(initial, transition, normalize_counts(emissions, smoothing, self.emission))

    @property
    def smoothed(self) -> tuple[Tensor, ...]:
        """The probabilities that smoothing applies to."""
        return self.initial, self.transition, self.emission

    @property
    def emission_shape(self) -> tuple[int, ...]:
        """The shape of the expected counts of emissions."""
        return self.states, self.size

    def check_possible(self, sequences: Sequence[Observations], found: Partition) -> None:
        """Refuses sequences of probability 0; the message names the observation."""
        impossible = (found.dead >= 0).nonzero().flatten().tolist()
        if not impossible:
            return
        number = impossible[0]
        position = int(found.dead[number])
        raise WeftError(
            f"sequence {number} is impossible: no reachable state at position {position} emits the observation "
            f"{int(as_observations(sequences[number])[position])}",
            expected="observations with a probability above 0",
            hint="a model fitted with smoothing",
        )

    def log_likelihood(self, sequences: Sequence[Observations]) -> Tensor:
        """Computes log P(x) of each sequence, (B,); -inf if it is impossible."""
        return chains.partition(self.chains(sequences)).log_z

    def log_pi(self, sequence: Observations) -> Tensor:
        """Computes the forward recursion in the log domain, (T, K)."""
        return Recursions(self.chains([sequence])).pi[0]

    def log_rho(self, sequence: Observations) -> Tensor:
        """Computes the backward recursion in the log domain, (T, K)."""
        return Recursions(self.chains([sequence])).backward()[0]

    def posterior(self, sequences: Sequence[Observations]) -> list[Tensor]:
        """Computes P(h_t | x) at every position of each sequence, (T, K) each."""
        problem = self.chains(sequences)
        found, probs = chains.posterior(problem)
        self.check_possible(sequences, found)
        return list(torch.split(probs, problem.lengths.tolist()))

    def missing(self, sequence: Observations) -> list[Gap]:
        """Computes the distribution of every MISSING observation given the known ones."""
        probs = self.posterior([sequence])[0]
        positions = np.flatnonzero(as_observations(sequence) == MISSING)
        return [Gap(int(position), probs[position] @ self.emission) for position in positions]

    blank = MISSING

    def fill_blanks(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        """Finds the `n` most probable joint values of the missing observations; see `weft.decoding.fill_blanks`.

        The joint probability is that of the model and does not depend on the order in which the values are filled.
        """

        def log_probs(rows: Tensor, position: int) -> Tensor:
            probs = self.posterior(list(rows.numpy()))
            return (torch.stack([row[position] for row in probs]) @ self.emission).log()

        return fill_blanks(ids, self.blank, n, log_probs, width=width, banned=banned)

    def leave_one_out(self, sequence: Observations) -> Tensor:
        """Computes P(x_j | all other observations) for every position j, (T, V)."""
        found, probs = chains.cavity(self.chains([sequence]))
        self.check_possible([sequence], found)
        return probs @ self.emission

    def viterbi(self, sequences: Sequence[Observations]) -> list[Path]:
        """Finds the most probable states of each sequence."""
        problem = self.chains(sequences)
        states, score = chains.viterbi(problem)
        if score.isneginf().any():
            self.check_possible(sequences, chains.partition(problem))
        rows = torch.split(states, problem.lengths.tolist())
        return [Path(row, log_prob) for row, log_prob in zip(rows, score.tolist(), strict=True)]

    def sample(self, length: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Samples hidden states and observations, (T,) each."""
        uniforms = np.random.default_rng(seed).random((length, 2))
        cumulative = [rows.numpy().cumsum(-1) for rows in (self.initial[None], self.transition, self.emission)]
        last = [(rows > 0).cumsum(-1).argmax(-1) for rows in (self.initial[None], self.transition, self.emission)]

        def sample_row(kind: int, row: int, uniform: float) -> int:
            # Rounding may leave a cumulative sum below 1: clamp to the last value of non-zero probability.
            return min(int(np.searchsorted(cumulative[kind][row], uniform, side="right")), int(last[kind][row]))

        states, observations = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.int64)
        for t in range(length):
            states[t] = sample_row(0, 0, uniforms[0, 0]) if t == 0 else sample_row(1, states[t - 1], uniforms[t, 0])
            observations[t] = sample_row(2, states[t], uniforms[t, 1])
        return torch.from_numpy(states), torch.from_numpy(observations)

    def initial_state(self, rows: int) -> Tensor:
        return self.initial.expand(rows, -1).clone()

    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        held = state * self.emission.t()[ids]  # (R, K)
        total = held.sum(-1, keepdim=True)
        if not (total > 0).all():
            row = int((total[:, 0] <= 0).nonzero()[0, 0])
            raise WeftError(
                f"the token with id {int(ids[row])} has probability 0 at its position",
                hint="a model fitted with smoothing",
            )
        after = (held / total) @ self.transition
        return (after @ self.emission).log(), after

    def select(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]

    def evaluate(self, tokens: np.ndarray[Any, np.dtype[Any]]) -> Likelihood:
        """Computes the likelihood of the tokens (N,), each but the first given all tokens before it."""
        if len(tokens) < 2:
            raise WeftError(f"there are {len(tokens)} tokens to evaluate on", expected="at least 2")
        whole, first = self.log_likelihood([tokens, tokens[:1]]).tolist()
        return Likelihood(first - whole if whole > -np.inf else np.inf, len(tokens) - 1)

    def token_log_probs(self, tokens: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Computes log P of each token but the first of (N,), given all tokens before it: (N - 1,)."""
        pairs = zip(self._next_log_probs(tokens), as_observations(tokens)[1:], strict=True)
        return np.array([float(log_probs[0, following]) for log_probs, following in pairs], dtype=np.float64)

    def next_probs(self, tokens: np.ndarray[Any, np.dtype[Any]]) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
        for log_probs in self._next_log_probs(tokens):
            yield log_probs.exp().numpy()

    def _next_log_probs(self, tokens: np.ndarray[Any, np.dtype[Any]]) -> Iterator[Tensor]:
        state = self.initial_state(1)
        for token in torch.from_numpy(as_observations(tokens))[:-1]:
            log_probs, state = self.step(token[None], state)
            yield log_probs

    context = "both"  # `predict_tokens` predicts a token from those before and after it

    def predict_tokens(self, tokens: np.ndarray[Any, np.dtype[Any]]) -> TokenPredictions:
        """Predicts each token but the first from all the others, and compares with the true tokens."""
        ids = as_observations(tokens)
        found, states = chains.cavity(self.chains([ids]))
        self.check_possible([ids], found)
        nats, correct = 0.0, 0
        for begin in range(1, len(ids), _ROWS):
            probs = states[begin : begin + _ROWS] @ self.emission  # (rows, V)
            true = torch.from_numpy(ids[begin : begin + _ROWS])
            nats -= float(probs.gather(1, true[:, None]).log().sum())
            correct += int((probs.argmax(-1) == true).sum())
        return TokenPredictions(Likelihood(nats, len(ids) - 1), correct)

    def tensors(self) -> dict[str, Tensor]:
        return {"initial": self.initial, "transition": self.transition, "emission": self.emission}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> HMM:
        return cls(tensors["initial"], tensors["transition"], tensors["emission"])


def as_observations(sequence: Observations) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(sequence).astype(np.int64, copy=False).reshape(-1)


def normalize_counts(counts: Tensor, smoothing: float, otherwise: Tensor) -> Tensor:
    """Normalizes counts to probabilities; a row without counts becomes `otherwise`."""
    smoothed = counts + smoothing
    totals = smoothed.sum(-1, keepdim=True)
    return torch.where(totals > 0, smoothed / totals, otherwise)
