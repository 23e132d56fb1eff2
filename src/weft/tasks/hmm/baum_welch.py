"""Fitting a hidden Markov model: by counting if the states are observed, by Baum-Welch if they are hidden.

Baum-Welch is expectation maximisation: it replaces the unobserved counts by their expectations under the current model
(Baum et al. 1970). With additive `smoothing` s every count is larger by s. The quantity that never decreases is the
`objective`: the log-likelihood plus s times the sum of the logs of all parameters; with s = 0 the log-likelihood.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from weft import chains
from weft.chains import Chains, Partition
from weft.errors import WeftError
from weft.tasks.hmm.model import HMM, MISSING, Observations, as_observations, normalize_counts

Markov = TypeVar("Markov", bound="HiddenMarkov")


class HiddenMarkov(Protocol):
    """A hidden Markov model of some kind of emissions, as Baum-Welch uses it."""

    @property
    def initial(self) -> Tensor:
        """(K,)"""
        ...

    @property
    def transition(self) -> Tensor:
        """(K, K): from, to"""
        ...

    @property
    def smoothed(self) -> tuple[Tensor, ...]:
        """The probabilities that smoothing applies to."""
        ...

    @property
    def emission_shape(self) -> tuple[int, ...]:
        """The shape of the expected counts of emissions."""
        ...

    def chains(self, sequences: Sequence[Observations]) -> Chains:
        """The chains of sequences."""
        ...

    def check_possible(self, sequences: Sequence[Observations], found: Partition) -> None:
        """Refuses sequences of probability 0."""
        ...

    def count_emissions(self, sequences: Sequence[Observations], table: Tensor) -> Tensor:
        """The expected counts of emissions, from those of the table of the chains."""
        ...

    def re_estimated(self: Markov, initial: Tensor, transition: Tensor, emissions: Tensor, smoothing: float) -> Markov:
        """A model with these probabilities of states, whose emissions are estimated from their expected counts."""
        ...


@dataclass(frozen=True)
class Iteration(Generic[Markov]):
    """The model of one iteration, and its likelihood."""

    number: int  # 0 is the initial model
    model: Markov
    log_likelihood: float
    objective: float


def random_hmm(states: int, size: int, *, seed: int = 0) -> HMM:
    """Draws a random model from Dirichlet distributions (concentration 5), an asymmetric start for Baum-Welch."""
    if states < 1 or size < 1:
        raise WeftError(f"states={states}, size={size}", expected="both to be 1 or more")
    random = np.random.default_rng(seed)
    shapes = ((states,), (states, states), (states, size))
    return HMM(*(torch.from_numpy(random.dirichlet(np.full(shape[-1], 5.0), shape[:-1])) for shape in shapes))


class Counts(NamedTuple):
    """Expected counts of a set of sequences, which add up over sets, and the log-likelihood of the set."""

    initial: Tensor  # (K,)
    transition: Tensor  # (K, K)
    emission: Tensor  # (K, V), or of another shape where emissions are not counted by value
    log_likelihood: float

    def flat(self) -> Tensor:
        likelihood = torch.tensor([self.log_likelihood], dtype=torch.float64)
        return torch.cat([self.initial, self.transition.reshape(-1), self.emission.reshape(-1), likelihood])

    @classmethod
    def from_flat(cls, flat: Tensor, like: HiddenMarkov) -> Counts:
        K, shape = len(like.initial), like.emission_shape
        initial, transition, emission, likelihood = flat.split_with_sizes([K, K * K, math.prod(shape), 1])
        return cls(initial, transition.view(K, K), emission.view(shape), float(likelihood))


Expect = Callable[[Markov, Sequence[Observations]], Counts]


def expected_counts(model: HiddenMarkov, sequences: Sequence[Observations]) -> Counts:
    """The E-step of Baum-Welch: the expected counts of the sequences under the model."""
    problem = model.chains(sequences)
    found = chains.expect(problem)
    if found.log_z.isneginf().any():
        model.check_possible(sequences, chains.partition(problem))
    emission = model.count_emissions(sequences, found.table)
    return Counts(found.start, found.transition, emission, float(found.log_z.sum()))


def improve(
    model: Markov,
    sequences: Sequence[Observations],
    *,
    smoothing: float = 0.0,
    expect: Expect[Markov] = expected_counts,
) -> tuple[Markov, float]:
    """Takes one step of Baum-Welch. Returns the re-estimated model, and the log-likelihood of `model`."""
    _check(smoothing)
    found = expect(model, sequences)
    better = model.re_estimated(
        normalize_counts(found.initial, smoothing, model.initial),
        normalize_counts(found.transition, smoothing, model.transition),
        found.emission,
        smoothing,
    )
    return better, found.log_likelihood


def baum_welch(
    model: Markov,
    sequences: Sequence[Observations],
    *,
    smoothing: float = 0.0,
    expect: Expect[Markov] = expected_counts,
) -> Iterator[Iteration[Markov]]:
    """Yields the iterations of Baum-Welch without end, starting with the given model."""
    for number in itertools.count():
        better, log_likelihood = improve(model, sequences, smoothing=smoothing, expect=expect)
        yield Iteration(number, model, log_likelihood, log_likelihood + _log_prior(model, smoothing))
        model = better


def fit_hmm(
    sequences: Sequence[Observations],
    states: int,
    size: int,
    *,
    iterations: int = 50,
    tolerance: float = 1e-4,
    smoothing: float = 0.0,
    restarts: int = 1,
    seed: int = 0,
) -> HMM:
    """Fits a model by Baum-Welch from several random initial models.

    Args:
        sequences: the observations; MISSING is allowed.
        states: K, the number of hidden states.
        size: V, the number of observation values.
        iterations: the maximum number of iterations of each run.
        tolerance: a run ends when the objective improves by less than this per observation, in nats.
        smoothing: added to every expected count.
        restarts: the number of runs.
        seed: the random seed of the first run; the others use the following seeds.

    Returns:
        The model with the best objective.

    Raises:
        WeftError: an argument or an observation is out of range.
    """
    if restarts < 1:
        raise WeftError(f"restarts is {restarts}", expected="1 (a single run) or more")
    observations = sum(int((as_observations(sequence) != MISSING).sum()) for sequence in sequences)
    best: Iteration[HMM] | None = None
    for restart in range(restarts):
        before = -math.inf
        for step in baum_welch(random_hmm(states, size, seed=seed + restart), sequences, smoothing=smoothing):
            if best is None or step.objective > best.objective:
                best = step
            if step.number >= iterations or step.objective - before < tolerance * observations:
                break
            before = step.objective
    assert best is not None
    return best.model


def count_hmm(
    sequences: Sequence[Observations],
    paths: Sequence[Observations],
    states: int,
    size: int,
    *,
    smoothing: float = 0.0,
) -> HMM:
    """Estimates a model from sequences with observed states, for example tagged text, by counting.

    Args:
        sequences: the observations; MISSING is allowed.
        paths: the states of each sequence.
        states: K, the number of states.
        size: V, the number of observation values.
        smoothing: added to every count.

    Returns:
        The model with the relative frequencies.

    Raises:
        WeftError: lengths differ, or a value is out of range.
    """
    _check(smoothing)
    initial, transition = np.zeros(states), np.zeros((states, states))
    emission = np.zeros((states, size))
    for number, (sequence, path) in enumerate(zip(sequences, paths, strict=True)):
        x, h = as_observations(sequence), as_observations(path)
        if len(x) != len(h):
            raise WeftError(
                f"sequence {number} has {len(x)} observations and {len(h)} states", expected="equal numbers"
            )
        for what, values, limit in (("observation", x, size), ("state", h, states)):
            if len(values) and not (values.min() >= (MISSING if what == "observation" else 0) and values.max() < limit):
                raise WeftError(f"sequence {number} has the {what} {values.max()}", expected=f"0 to {limit - 1}")
        if len(h):
            initial[h[0]] += 1
        np.add.at(transition, (h[:-1], h[1:]), 1)
        known = x != MISSING
        np.add.at(emission, (h[known], x[known]), 1)
    counts = (torch.from_numpy(one) for one in (initial, transition, emission))
    return HMM(*(normalize_counts(one, smoothing, torch.full_like(one, 1 / one.shape[-1])) for one in counts))


def _log_prior(model: HiddenMarkov, smoothing: float) -> float:
    if not smoothing:
        return 0.0
    return smoothing * sum(float(part.log().sum()) for part in model.smoothed)


def _check(smoothing: float) -> None:
    if not 0 <= smoothing < math.inf:
        raise WeftError(f"smoothing is {smoothing}", expected="0 or more")
