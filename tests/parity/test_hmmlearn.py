"""The HMM on long sequences: what hmmlearn gives, in both of its arithmetics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from weft.tasks.hmm.baum_welch import baum_welch, random_hmm
from weft.tasks.hmm.model import HMM

hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is not installed")

K, V = 5, 11
TRUE, MODEL = random_hmm(K, V, seed=1), random_hmm(K, V, seed=2)
SEQUENCES = [TRUE.sample(length, seed=length)[1].numpy() for length in (400, 1, 57, 1500, 8)]
X, LENGTHS = np.concatenate(SEQUENCES)[:, None], [len(one) for one in SEQUENCES]


def theirs(model: HMM, implementation: str, iterations: int = 1):
    peer = hmm.CategoricalHMM(
        model.states,
        n_features=model.size,
        implementation=implementation,
        n_iter=iterations,
        tol=-np.inf,
        init_params="",
        emissionprob_prior=1,
    )
    peer.startprob_, peer.transmat_, peer.emissionprob_ = (part.numpy() for part in model.tensors().values())
    return peer


@pytest.fixture(params=["scaling", "log"])
def implementation(request):
    return request.param


def test_likelihood_and_posterior(implementation):
    log_likelihood, shares = theirs(MODEL, implementation).score_samples(X, LENGTHS)
    assert MODEL.log_likelihood(SEQUENCES).sum().item() == pytest.approx(log_likelihood, rel=1e-12)
    np.testing.assert_allclose(torch.cat(MODEL.posterior(SEQUENCES)), shares, atol=1e-10)


def test_viterbi(implementation):
    log_prob, states = theirs(MODEL, implementation).decode(X, LENGTHS)
    found = MODEL.viterbi(SEQUENCES)
    assert sum(path.log_prob for path in found) == pytest.approx(log_prob, rel=1e-12)
    np.testing.assert_array_equal(torch.cat([path.states for path in found]), states)


def test_baum_welch(implementation):
    *_, last = itertools.islice(baum_welch(MODEL, SEQUENCES), 6)
    peer = theirs(MODEL, implementation, iterations=5).fit(X, LENGTHS)
    for ours, other in zip(
        last.model.tensors().values(), (peer.startprob_, peer.transmat_, peer.emissionprob_), strict=True
    ):
        np.testing.assert_allclose(ours, other, atol=1e-9)


def test_zeros():
    """A model with impossible moves and observations, which has to stay as exact."""
    transition = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.5]])
    emission = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    model = HMM(torch.tensor([1.0, 0.0, 0.0]), transition, emission)
    sequences = [model.sample(length, seed=length)[1].numpy() for length in (30, 200)]
    X, lengths = np.concatenate(sequences)[:, None], [30, 200]
    log_likelihood, shares = theirs(model, "scaling").score_samples(X, lengths)
    assert model.log_likelihood(sequences).sum().item() == pytest.approx(log_likelihood, rel=1e-12)
    np.testing.assert_allclose(torch.cat(model.posterior(sequences)), shares, atol=1e-10)
