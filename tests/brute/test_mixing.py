"""Mixtures of language models against enumeration: EM weights, the neural cache, sums of probabilities."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from tests.checks.steppers import check_stepper
from weft.errors import WeftError
from weft.tasks.config import ModelConfig
from weft.tasks.kneser_ney import modified_kneser_ney
from weft.tasks.lm.adapt import CacheConfig, CacheModel, CacheReader
from weft.tasks.lm.interpolation import Interpolation
from weft.tasks.lm.model import LanguageModel
from weft.tasks.mixture import LINEAR

V = 5


@pytest.fixture
def network():
    torch.manual_seed(3)
    return LanguageModel(V, ModelConfig(cell="lstm", hidden_size=6, embedding_dim=4)).eval()


@pytest.fixture
def tokens():
    return np.random.default_rng(0).integers(V, size=60)


@pytest.mark.parametrize("seed", range(4))
def test_em_finds_the_weights_of_a_fine_grid(seed):
    log_probs = np.log(np.random.default_rng(seed).dirichlet(np.ones(7), size=(40, 3))[:, :, 0])
    found = LINEAR.join_targets(log_probs, LINEAR.fit_to(log_probs)).sum()
    steps = np.linspace(0, 1, 101)
    grid = [(a, b, 1 - a - b) for a, b in itertools.product(steps, steps) if a + b <= 1 + 1e-12]
    best = max(np.log(np.exp(log_probs) @ np.maximum(one, 0)).sum() for one in grid)
    assert found >= best - 1e-6
    assert found == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_a_mixture_is_never_worse_than_its_best_part_on_the_text_it_is_fitted_to(seed):
    random = np.random.default_rng(seed)
    log_probs = np.log(random.uniform(size=(random.integers(1, 50), 4)) ** random.integers(1, 5))
    weights = LINEAR.fit_to(log_probs)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert LINEAR.join_targets(log_probs, weights).sum() >= log_probs.sum(0).max() - 1e-9


def test_a_token_that_is_impossible_in_every_part_is_refused():
    with pytest.raises(WeftError, match="probability 0 in every model"):
        LINEAR.fit_to(np.array([[-1.0, -2.0], [-np.inf, -np.inf]]))


@pytest.mark.parametrize(("size", "theta"), [(1000, 0.7), (7, 0.7), (1, 2.0), (13, 0.0)])
def test_the_cache_is_the_sum_over_all_its_entries(network, tokens, size, theta):
    with torch.no_grad():
        outputs, _ = network.stack(network.embed(torch.from_numpy(tokens)[None]))
    h = outputs[0].double().numpy()
    expected = [math.log(1 / V)]
    for t in range(1, len(tokens) - 1):
        entries = range(max(0, t - size), t)
        shares = {i: math.exp(theta * float(h[t] @ h[i])) for i in entries}
        hit = sum(share for i, share in shares.items() if tokens[i + 1] == tokens[t + 1])
        expected.append(math.log(hit / sum(shares.values())) if hit else -math.inf)
    model = CacheModel(network, CacheConfig(size, theta))
    found = model.token_log_probs(tokens)
    np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=1e-6)
    with torch.no_grad():
        for length in (1, 9):  # read in other segments, and as whole distributions
            reader = CacheReader(model.config, V)
            parts = [reader.read_all(*segment) for segment in network.read_segments(tokens, length)]
            whole = torch.cat(parts)
            np.testing.assert_allclose(whole.sum(1).numpy(), 1)
            own = whole.gather(1, torch.from_numpy(tokens[1:, None]))[:, 0].numpy()
            np.testing.assert_allclose(own, np.exp(expected), atol=1e-6)


def test_steppers_of_a_cache_and_of_a_mixture(network, tokens):
    cache = CacheModel(network, CacheConfig(4, 0.5))
    check_stepper(cache, vocabulary=V, steps=7)
    ngram = modified_kneser_ney(tokens, V, 3)
    mixture = Interpolation([network, ngram, cache], [0.5, 0.3, 0.2])
    check_stepper(mixture, vocabulary=V, steps=7)
    state, along = mixture.initial_state(1), []
    for now, following in itertools.pairwise(tokens.tolist()):
        log_probs, state = mixture.step(torch.tensor([now]), state)
        along.append(float(log_probs[0, following]))
    np.testing.assert_allclose(along, mixture.token_log_probs(tokens), atol=1e-5)
    found = mixture.predict_tokens(tokens)
    assert found.likelihood.nats == pytest.approx(mixture.evaluate(tokens).nats, abs=1e-4)


def test_log_probs_of_tokens_are_those_of_the_evaluation(network, tokens):
    assert -network.token_log_probs(tokens).sum() == pytest.approx(network.evaluate(tokens).nats, rel=1e-6)
    ngram = modified_kneser_ney(tokens[:30], V, 3)
    assert -ngram.token_log_probs(tokens).sum() == pytest.approx(ngram.evaluate(tokens).nats)


def test_weights_that_do_not_sum_to_one_are_refused(network):
    with pytest.raises(WeftError, match="with the sum 1"):
        Interpolation([network, network], [0.5, 0.6])
