"""The hidden Markov model of numbers: each state has a normal distribution of the values of its channels.

    P(x, h) = prod_t P(h_t | h_(t-1)) prod_c Normal(x_tc; mean_c(h_t), variance_c(h_t))

A missing value (NaN) contributes no factor. Chains, Viterbi and Baum-Welch are those of the discrete model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft import chains
from weft.chains import Chains, Partition
from weft.errors import WeftError
from weft.tasks.hmm.model import Path

ChannelValues = Any  # (T, C) or (T,) numbers; NaN: missing
STICKINESS = 0.9  # the probability that the first model stays in its state


@dataclass(frozen=True)
class GaussianHMM:
    """A hidden Markov model with K states and normal emissions of C channels.

    Attributes:
        initial: (K,) P(h_1)
        transition: (K, K) P(h_t | h_(t-1)): from, to
        means: (K, C)
        variances: (K, C)
        least_variances: (C,) below which Baum-Welch takes no variance, so that no state is one value.

    Raises:
        WeftError: shapes do not fit, rows are not probability distributions, or a variance is not positive.
    """

    initial: Tensor
    transition: Tensor
    means: Tensor
    variances: Tensor
    least_variances: Tensor

    def __post_init__(self) -> None:
        for name in ("initial", "transition", "means", "variances", "least_variances"):
            object.__setattr__(self, name, torch.as_tensor(getattr(self, name), dtype=torch.float64))
        K, C = len(self.initial), self.means.shape[-1]
        shapes = {"initial": (K,), "transition": (K, K), "means": (K, C), "variances": (K, C), "least_variances": (C,)}
        for name, shape in shapes.items():
            values = getattr(self, name)
            if tuple(values.shape) != shape:
                raise WeftError(f"GaussianHMM: {name} is {tuple(values.shape)}", expected=f"{shape} for {K} states")
            if not values.isfinite().all() or (name != "means" and not (values >= 0).all()):
                raise WeftError(f"GaussianHMM: {name} has values that are not finite, or negative")
        for name in ("initial", "transition"):
            totals = getattr(self, name).sum(-1)
            if not (totals - 1).abs().max() < 1e-6:
                raise WeftError(f"GaussianHMM: {name} sums to {float(totals.min()):.4g}", expected="1 in each row")
        if not (self.variances > 0).all():
            raise WeftError(f"GaussianHMM: a variance is {float(self.variances.min()):.4g}", expected="more than 0")

    @classmethod
    def first(cls, sequences: Sequence[ChannelValues], states: int) -> GaussianHMM:
        """A start for Baum-Welch: states of equal shares of the values, from the least to the largest."""
        table = np.concatenate([as_values(one) for one in sequences])
        known = [column[~np.isnan(column)] for column in table.T]
        if not all(len(column) for column in known):
            raise WeftError("there are no values to fit a model to", expected="at least one in each channel")
        parts = [np.array_split(np.sort(column), states) for column in known]
        overall = np.array([max(column.var(), 1e-12) for column in known])
        means = np.array([[part.mean() if len(part) else column.mean() for part in own]
                          for own, column in zip(parts, known, strict=True)]).T  # fmt: skip
        variances = np.tile(overall / states, (states, 1))
        initial = torch.full((states,), 1 / states)
        away = (1 - STICKINESS) / max(1, states - 1)
        transition = torch.full((states, states), away, dtype=torch.float64)
        transition.fill_diagonal_(STICKINESS if states > 1 else 1.0)
        least = torch.from_numpy(1e-3 * overall)
        return cls(initial, transition, torch.from_numpy(means), torch.from_numpy(variances), least)

    @property
    def states(self) -> int:
        """K, the number of hidden states."""
        return len(self.initial)

    @property
    def channels(self) -> int:
        """C, the number of channels."""
        return self.means.shape[1]

    @property
    def smoothed(self) -> tuple[Tensor, ...]:
        return self.initial, self.transition

    @property
    def emission_shape(self) -> tuple[int, ...]:
        """Of each state and channel: the number of values, their sum, the sum of their squares."""
        return self.states, 3, self.channels

    def log_densities(self, values: ChannelValues) -> Tensor:
        """The log-density of values (T, C) in each state, (T, K)."""
        x = torch.from_numpy(as_values(values))[:, None, :]  # (T, 1, C)
        parts = -0.5 * ((x - self.means) ** 2 / self.variances + self.variances.log() + math.log(2 * math.pi))
        return torch.where(x.isnan(), 0.0, parts).sum(-1)

    def chains(self, sequences: Sequence[ChannelValues]) -> Chains:
        rows = [self._checked(one) for one in sequences]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        table = self.log_densities(np.concatenate([*rows, np.zeros((0, self.channels))]))
        begins = lengths.cumsum(0) - lengths
        end = torch.zeros(self.states, dtype=torch.float64)
        ids = torch.arange(len(table))
        return Chains(
            self.initial.log(), self.transition.log(), end, table, ids, begins, lengths, rows_are_shared=False
        )

    def _checked(self, values: ChannelValues) -> np.ndarray[Any, np.dtype[np.float64]]:
        row = as_values(values)
        if row.shape[1] != self.channels:
            raise WeftError(f"a sequence has {row.shape[1]} channels", expected=f"{self.channels}")
        return row

    def check_possible(self, sequences: Sequence[ChannelValues], found: Partition) -> None:
        impossible = (found.dead >= 0).nonzero().flatten().tolist()
        if impossible:
            raise WeftError(
                f"sequence {impossible[0]} is impossible at position {int(found.dead[impossible[0]])}",
                expected="values that are not as far from every reachable state",
                hint="a model fitted with smoothing",
            )

    def count_emissions(self, sequences: Sequence[ChannelValues], table: Tensor) -> Tensor:
        """The expected number of values, their sum, and that of their squares, (K, 3, C); missing ones do not count."""
        x = torch.from_numpy(np.concatenate([*map(as_values, sequences), np.zeros((0, self.channels))]))  # (P, C)
        known = ~x.isnan()
        values = torch.where(known, x, 0.0)
        return torch.stack([table.t() @ part for part in (known.to(table), values, values**2)], 1)

    def re_estimated(self, initial: Tensor, transition: Tensor, emissions: Tensor, smoothing: float) -> GaussianHMM:
        """A model with these probabilities of states; a state without values keeps its distribution."""
        counts, sums, squares = emissions.unbind(1)
        seen, divisor = counts > 1e-9, counts.clamp(min=1e-300)
        means = torch.where(seen, sums / divisor, self.means)
        variances = torch.where(seen, squares / divisor - means**2, self.variances)
        variances = torch.maximum(variances, self.least_variances).clamp(min=1e-300)
        return GaussianHMM(initial, transition, means, variances, self.least_variances)

    def log_likelihood(self, sequences: Sequence[ChannelValues]) -> Tensor:
        """Computes the log-density of each sequence, (B,)."""
        return chains.partition(self.chains(sequences)).log_z

    def posterior(self, sequences: Sequence[ChannelValues]) -> list[Tensor]:
        """Computes P(h_t | x) at every position of each sequence, (T, K) each."""
        problem = self.chains(sequences)
        found, probs = chains.posterior(problem)
        self.check_possible(sequences, found)
        return list(torch.split(probs, problem.lengths.tolist()))

    def viterbi(self, sequences: Sequence[ChannelValues]) -> list[Path]:
        """Finds the most probable states of each sequence: its regimes."""
        problem = self.chains(sequences)
        states, score = chains.viterbi(problem)
        if score.isneginf().any():
            self.check_possible(sequences, chains.partition(problem))
        rows = torch.split(states, problem.lengths.tolist())
        return [Path(row, log_prob) for row, log_prob in zip(rows, score.tolist(), strict=True)]

    def next_states(self, sequences: Sequence[ChannelValues]) -> Tensor:
        """P(h_(T+1) | x_1 .. x_T) of each sequence, (B, K); that of the first position of an empty one."""
        longer = [np.concatenate([self._checked(one), np.full((1, self.channels), np.nan)]) for one in sequences]
        return torch.stack([probs[-1] for probs in self.posterior(longer)])

    def step(self, values: Tensor, state: Tensor) -> Tensor:
        """P(h_(t+1) | x_1 .. x_t) (R, K) from that of the step before and the values (R, C) there."""
        log = state.log() + self.log_densities(values.numpy())
        return log.softmax(-1) @ self.transition

    def sample(self, length: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Samples hidden states (T,) and values (T, C)."""
        random = np.random.default_rng(seed)
        states = np.zeros(length, dtype=np.int64)
        probs, transition = self.initial.numpy(), self.transition.numpy()
        for t in range(length):
            states[t] = random.choice(self.states, p=probs / probs.sum())
            probs = transition[states[t]]
        noise = random.normal(size=(length, self.channels))
        return torch.from_numpy(states), self.means[states] + self.variances[states].sqrt() * torch.from_numpy(noise)

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> GaussianHMM:
        return cls(**{name: tensors[name] for name in cls.__dataclass_fields__})


def as_values(sequence: ChannelValues) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A sequence as (T, C) numbers."""
    row = np.asarray(sequence, np.float64)
    return row[:, None] if row.ndim == 1 else row
