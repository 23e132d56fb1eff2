"""Fitting a hidden Markov model: by counting where the states are known, by Baum-Welch where they are not.

Baum-Welch takes the counts that the present model expects for the counts that nobody made. With `smoothing` s every
count is larger by s, and what never falls is then `objective`: the log-likelihood plus s times the log of every
parameter. With s = 0 it is the log-likelihood itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft import chains
from weft.errors import WeftError
from weft.tasks.hmm.model import HMM, MISSING, Observations, as_observations


class Iteration(NamedTuple):
    """A model on the way, and how good it is."""

    number: int  # from 0: the model that was given
    model: HMM
    log_likelihood: float
    objective: float


def random_hmm(states: int, size: int, *, seed: int = 0) -> HMM:
    """Random rows, none of them near the edge: a start for Baum-Welch that is not symmetrical."""
    if states < 1 or size < 1:
        raise WeftError(f"states={states}, size={size}", expected="both to be 1 or more")
    random = np.random.default_rng(seed)
    shapes = ((states,), (states, states), (states, size))
    return HMM(*(torch.from_numpy(random.dirichlet(np.full(shape[-1], 5.0), shape[:-1])) for shape in shapes))


def improve(model: HMM, sequences: Sequence[Observations], *, smoothing: float = 0.0) -> tuple[HMM, float]:
    """One step of Baum-Welch: a better model, and the log-likelihood of the one given."""
    _check(smoothing)
    problem = model.chains(sequences)
    found = chains.expect(problem)
    if found.log_z.isneginf().any():
        model.check_possible(sequences, chains.partition(problem))
    emission = found.table[:-1].t()  # what was missing tells nothing of the emissions
    better = HMM(
        _shares(found.start, smoothing, model.initial),
        _shares(found.transition, smoothing, model.transition),
        _shares(emission, smoothing, model.emission),
    )
    return better, float(found.log_z.sum())


def baum_welch(model: HMM, sequences: Sequence[Observations], *, smoothing: float = 0.0) -> Iterator[Iteration]:
    """One better model after another, from the one given on, for as long as you like to look."""
    for number in itertools.count():
        better, log_likelihood = improve(model, sequences, smoothing=smoothing)
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
    """The best of some Baum-Welch runs from different random models."""
    *_, (_, best) = fit_steps(
        sequences, states, size, iterations=iterations, tolerance=tolerance, smoothing=smoothing, restarts=restarts,
        seed=seed,
    )  # fmt: skip
    return best.model


def fit_steps(
    sequences: Sequence[Observations],
    states: int,
    size: int,
    *,
    iterations: int,
    tolerance: float,
    smoothing: float,
    restarts: int,
    seed: int,
) -> Iterator[tuple[Iteration, Iteration]]:
    """Every step of every run, beside the best one so far.

    A run ends after `iterations` steps, or when a step gains less than `tolerance` nats an observation.
    """
    if restarts < 1:
        raise WeftError(f"restarts is {restarts}", expected="1 (a single run) or more")
    observations = sum(int((as_observations(sequence) != MISSING).sum()) for sequence in sequences)
    best: Iteration | None = None
    for restart in range(restarts):
        before = -math.inf
        for step in baum_welch(random_hmm(states, size, seed=seed + restart), sequences, smoothing=smoothing):
            if best is None or step.objective > best.objective:
                best = step
            yield step, best
            if step.number >= iterations or step.objective - before < tolerance * observations:
                break
            before = step.objective


def count_hmm(
    sequences: Sequence[Observations],
    paths: Sequence[Observations],
    states: int,
    size: int,
    *,
    smoothing: float = 0.0,
) -> HMM:
    """The model of sequences whose hidden states are known: tagged text. Counts, and nothing else."""
    _check(smoothing)
    initial, transition = np.zeros(states), np.zeros((states, states))
    emission = np.zeros((states, size))
    for number, (sequence, path) in enumerate(zip(sequences, paths, strict=True)):
        x, h = as_observations(sequence), as_observations(path)
        if len(x) != len(h):
            raise WeftError(f"sequence {number} has {len(x)} observations and {len(h)} states", expected="as many")
        for what, values, limit in (("observation", x, size), ("state", h, states)):
            if len(values) and not (values.min() >= (MISSING if what == "observation" else 0) and values.max() < limit):
                raise WeftError(f"sequence {number} has the {what} {values.max()}", expected=f"0 to {limit - 1}")
        if len(h):
            initial[h[0]] += 1
        np.add.at(transition, (h[:-1], h[1:]), 1)
        known = x != MISSING
        np.add.at(emission, (h[known], x[known]), 1)
    counts = (torch.from_numpy(one) for one in (initial, transition, emission))
    return HMM(*(_shares(one, smoothing, torch.full_like(one, 1 / one.shape[-1])) for one in counts))


def _shares(counts: Tensor, smoothing: float, otherwise: Tensor) -> Tensor:
    """Counts as probabilities; a row without any count keeps what it has."""
    smoothed = counts + smoothing
    totals = smoothed.sum(-1, keepdim=True)
    return torch.where(totals > 0, smoothed / totals, otherwise)


def _log_prior(model: HMM, smoothing: float) -> float:
    if not smoothing:
        return 0.0
    return smoothing * sum(float(part.log().sum()) for part in (model.initial, model.transition, model.emission))


def _check(smoothing: float) -> None:
    if not 0 <= smoothing < math.inf:
        raise WeftError(f"smoothing is {smoothing}", expected="0 or more")
