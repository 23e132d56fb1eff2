"""The HMM against enumeration over all K^T hidden paths, and what must hold of Baum-Welch, sampling and the Stepper."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checks.steppers import check_stepper
from weft.chains import kernel
from weft.errors import WeftError
from weft.tasks.hmm.baum_welch import baum_welch, count_hmm, fit_hmm, random_hmm
from weft.tasks.hmm.model import HMM, MISSING

K, V = 3, 4
SEQUENCES = [[0, 1, 3, 2, 2], [MISSING], [1, MISSING, MISSING, 0], [3, 3], [], [2, MISSING, 1, 1, MISSING, 0]]


def with_zeros(seed):
    """A model in which a third of everything is impossible."""
    random = np.random.default_rng(seed)
    parts = []
    for shape in ((K,), (K, K), (K, V)):
        probs = random.dirichlet(np.ones(shape[-1]), shape[:-1])
        probs[random.random(shape) < 0.3] = 0
        probs[..., 0] += 0.05
        parts.append(probs / probs.sum(-1, keepdims=True))
    return HMM(*map(torch.from_numpy, parts))


MODELS = [random_hmm(K, V, seed=1), with_zeros(2), with_zeros(3)]


def joint(model, observations):
    """P(x, h) of every path h, with missing observations summed out."""
    initial, transition, emission = (part.tolist() for part in (model.initial, model.transition, model.emission))
    for path in itertools.product(range(model.states), repeat=len(observations)):
        prob = 1.0
        for t, (h, x) in enumerate(zip(path, observations, strict=True)):
            prob *= initial[h] if t == 0 else transition[path[t - 1]][h]
            prob *= 1.0 if x == MISSING else emission[h][x]
        yield path, prob


def likelihood(model, observations):
    return sum(prob for _, prob in joint(model, observations))


@pytest.mark.parametrize("model", MODELS)
def test_likelihood_and_posterior(model):
    for observations in SEQUENCES:
        total = likelihood(model, observations)
        found = model.log_likelihood([observations])[0].item()
        assert found == (-math.inf if total == 0 else pytest.approx(math.log(total)))
        if total == 0:
            with pytest.raises(WeftError, match="sequence 0 is impossible"):
                model.posterior([observations])
            continue
        expected = torch.zeros(len(observations), K, dtype=torch.float64)
        for path, prob in joint(model, observations):
            for t, h in enumerate(path):
                expected[t, h] += prob / total
        torch.testing.assert_close(model.posterior([observations])[0], expected)


@pytest.mark.parametrize("model", MODELS)
def test_pi_and_rho_are_what_they_stand_for(model):
    x = [0, 1, MISSING, 2]
    pi, rho = model.log_pi(x).exp(), model.log_rho(x).exp()
    torch.testing.assert_close(pi[0], model.initial)
    torch.testing.assert_close(rho[-1], torch.ones(K, dtype=torch.float64))
    for t in range(len(x)):
        for h in range(K):
            before = sum(prob for path, prob in joint(model, [*x[:t], MISSING]) if path[t] == h)
            assert pi[t, h].item() == pytest.approx(before)
            after = HMM(torch.eye(K)[h], model.transition, model.emission)
            assert rho[t, h].item() == pytest.approx(likelihood(after, [MISSING, *x[t + 1 :]]))
        own = torch.ones(K, dtype=torch.float64) if x[t] == MISSING else model.emission[:, x[t]]
        assert (pi[t] * own * rho[t]).sum().item() == pytest.approx(likelihood(model, x))  # at any t


@pytest.mark.parametrize("model", MODELS)
def test_missing_observations(model):
    for observations in SEQUENCES:
        total = likelihood(model, observations)
        if total == 0:
            continue
        gaps = model.missing(observations)
        assert [gap.position for gap in gaps] == [t for t, x in enumerate(observations) if x == MISSING]
        for place, probs in gaps:
            tried = [[*observations[:place], x, *observations[place + 1 :]] for x in range(V)]
            torch.testing.assert_close(probs.tolist(), [likelihood(model, one) / total for one in tried])


@pytest.mark.parametrize("model", MODELS)
def test_the_likeliest_fills_of_all_gaps_together(model):
    for observations in ([1, MISSING, MISSING, 0], [MISSING, 0, 0, MISSING], [0, MISSING]):
        places = [t for t, x in enumerate(observations) if x == MISSING]
        total = likelihood(model, observations)
        chances = {}
        for values in itertools.product(range(V), repeat=len(places)):
            tried = list(observations)
            for place, value in zip(places, values, strict=True):
                tried[place] = value
            chances[values] = likelihood(model, tried) / total
        found = model.fill_blanks(observations, V ** len(places), width=V**2)
        assert sum(np.exp(one.log_prob) for one in found) == pytest.approx(1)
        assert [np.exp(one.log_prob) for one in found] == pytest.approx([chances[one.ids] for one in found])
        assert found[0].log_prob == pytest.approx(np.log(max(chances.values())))


@pytest.mark.parametrize("model", MODELS)
def test_leave_one_out(model):
    x = [0, 1, 0, 0]
    found = model.leave_one_out(x)
    for j in range(len(x)):
        without = [*x[:j], MISSING, *x[j + 1 :]]
        torch.testing.assert_close(found[j], model.missing(without)[0].probs)


@pytest.mark.parametrize("model", MODELS)
def test_viterbi(model):
    for observations in SEQUENCES:
        path, prob = max(joint(model, observations), key=lambda pair: pair[1])
        if prob == 0:
            with pytest.raises(WeftError, match="impossible"):
                model.viterbi([observations])
            continue
        found = model.viterbi([observations])[0]
        assert found.log_prob == pytest.approx(math.log(prob))
        assert tuple(found.states.tolist()) == path


def test_many_sequences_are_each_alone():
    model = MODELS[0]
    together = model.posterior(SEQUENCES)
    for one, found in zip(SEQUENCES, together, strict=True):
        torch.testing.assert_close(found, model.posterior([one])[0], rtol=1e-12, atol=1e-12)
    alone = torch.cat([model.log_likelihood([one]) for one in SEQUENCES])
    torch.testing.assert_close(model.log_likelihood(SEQUENCES), alone, rtol=1e-12, atol=1e-12)


def test_impossible_observations_are_named():
    model = HMM(torch.tensor([1.0, 0]), torch.eye(2), torch.tensor([[0.5, 0.5, 0], [0, 0, 1.0]]))
    assert model.log_likelihood([[0, 1, 2], [0, 1]]).tolist() == [-math.inf, pytest.approx(math.log(0.25))]
    with pytest.raises(WeftError, match=r"sequence 1 is impossible: .* position 2 emits the observation 2"):
        model.posterior([[0], [0, 1, 2, 0]])
    with pytest.raises(WeftError, match="sequence 0, position 1: the observation is 3; expected 0 to 2"):
        model.log_likelihood([[0, 3]])
    with pytest.raises(WeftError, match="id 2 has probability 0"):
        model.step(torch.tensor([0, 2]), model.initial_state(2))
    assert model.evaluate(np.array([0, 2])).nats == math.inf
    assert not model.log_pi([0, 2, 1]).isnan().any()


def test_mistaken_probabilities():
    with pytest.raises(WeftError, match=r"transition has values .* sums from 0.5"):
        HMM(torch.tensor([1.0]), torch.tensor([[0.5]]), torch.tensor([[1.0]]))
    with pytest.raises(WeftError, match=r"emission is \(1, 2\)"):
        HMM(torch.tensor([0.5, 0.5]), torch.eye(2), torch.tensor([[0.5, 0.5]]))


# --- fitting ------------------------------------------------------------------------------------------------------

sequences_of_observations = st.lists(st.lists(st.integers(MISSING, V - 1), max_size=8), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(sequences_of_observations, st.integers(0, 99), st.sampled_from([0.0, 0.1, 1.0]), st.integers(1, 4))
def test_baum_welch_never_lowers_what_it_raises(sequences, seed, smoothing, states):
    steps = list(itertools.islice(baum_welch(random_hmm(states, V, seed=seed), sequences, smoothing=smoothing), 12))
    gains = [after.objective - before.objective for before, after in itertools.pairwise(steps)]
    assert min(gains) > -1e-9
    if smoothing == 0:
        assert [step.objective for step in steps] == [step.log_likelihood for step in steps]


def test_one_step_of_baum_welch_is_expected_counts():
    model, sequences = MODELS[0], [[0, 1, MISSING], [2, 2, 3, 1]]
    initial, transition, emission = torch.zeros(K), torch.zeros(K, K), torch.zeros(K, V)
    for x in sequences:
        total = likelihood(model, x)
        for path, prob in joint(model, x):
            initial[path[0]] += prob / total
            for a, b in itertools.pairwise(path):
                transition[a, b] += prob / total
            for h, one in zip(path, x, strict=True):
                if one != MISSING:
                    emission[h, one] += prob / total
    for smoothing in (0.0, 0.5):
        _, step = itertools.islice(baum_welch(model, sequences, smoothing=smoothing), 2)
        for found, counts in zip(step.model.tensors().values(), (initial, transition, emission), strict=True):
            expected = (counts + smoothing).double()
            torch.testing.assert_close(found, expected / expected.sum(-1, keepdim=True), rtol=1e-5, atol=1e-6)


def test_fit_finds_the_model_again():
    """Two states that hardly ever change, each with its own half of the alphabet."""
    true = HMM(
        torch.tensor([0.5, 0.5]),
        torch.tensor([[0.95, 0.05], [0.1, 0.9]]),
        torch.tensor([[0.5, 0.4, 0.05, 0.05], [0.1, 0, 0.3, 0.6]]),
    )
    sequences = [true.sample(200, seed=seed)[1] for seed in range(20)]
    found = fit_hmm(sequences, 2, 4, iterations=60, restarts=3, tolerance=1e-7)
    order = [0, 1] if found.emission[0, 1] > found.emission[1, 1] else [1, 0]
    torch.testing.assert_close(found.emission[order], true.emission, rtol=0, atol=0.03)
    torch.testing.assert_close(found.transition[order][:, order], true.transition, rtol=0, atol=0.03)
    assert found.log_likelihood(sequences).sum() > true.log_likelihood(sequences).sum()


def test_restarts_give_the_best_run():
    sequences = [random_hmm(3, 4, seed=8).sample(30, seed=seed)[1] for seed in range(5)]
    settings = {"iterations": 15, "tolerance": 0.0}
    alone = [fit_hmm(sequences, 3, 4, seed=seed, **settings).log_likelihood(sequences).sum() for seed in range(4)]
    best = fit_hmm(sequences, 3, 4, seed=0, restarts=4, **settings)
    assert best.log_likelihood(sequences).sum() == max(alone)


def test_supervised_fit_counts():
    found = count_hmm([[0, 1, 1], [2, MISSING]], [[0, 1, 1], [0, 0]], 2, 3)
    torch.testing.assert_close(found.initial.tolist(), [1.0, 0.0])
    torch.testing.assert_close(found.transition.tolist(), [[0.5, 0.5], [0.0, 1.0]])
    torch.testing.assert_close(found.emission.tolist(), [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    smooth = count_hmm([[0]], [[0]], 2, 3, smoothing=1.0)
    torch.testing.assert_close(smooth.emission.tolist(), [[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]])
    with pytest.raises(WeftError, match="2 observations and 1 states"):
        count_hmm([[0, 1]], [[0]], 1, 2)
    with pytest.raises(WeftError, match="the state 5"):
        count_hmm([[0]], [[5]], 2, 2)


def test_samples_have_the_models_frequencies():
    model = with_zeros(2)
    states, observations = model.sample(40_000, seed=3)
    again = count_hmm([observations], [states], K, V)
    torch.testing.assert_close(again.transition, model.transition, rtol=0, atol=0.02)
    torch.testing.assert_close(again.emission, model.emission, rtol=0, atol=0.02)
    assert (again.emission[model.emission == 0] == 0).all()
    assert torch.equal(model.sample(50, seed=3)[1], observations[:50])


# --- the next token -----------------------------------------------------------------------------------------------


def test_it_is_a_stepper():
    check_stepper(random_hmm(5, 7, seed=3), vocabulary=7)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, V - 1), min_size=2, max_size=30), st.integers(0, 99))
def test_step_by_step_is_the_whole_at_once(tokens, seed):
    model = random_hmm(K, V, seed=seed)
    state, nats = model.initial_state(1), 0.0
    for before, token in itertools.pairwise(tokens):
        log_probs, state = model.step(torch.tensor([before]), state)
        nats -= float(log_probs[0, token])
    found = model.evaluate(np.array(tokens, dtype=np.uint16))
    assert found.nats == pytest.approx(nats)
    assert found.count == len(tokens) - 1


@pytest.mark.skipif(kernel.library() is None, reason="the core is not built here, and plain torch takes an hour")
def test_ten_million_observations():
    model = random_hmm(4, 6, seed=1)
    block = model.sample(1000, seed=2)[1].numpy()
    found = model.log_likelihood([np.tile(block, 10_000)]).item()
    once, twice = model.log_likelihood([block, np.tile(block, 2)]).tolist()
    assert found == pytest.approx(once + (twice - once) * 9_999, rel=1e-6)


def test_a_hundred_thousand_places_in_plain_torch():
    from weft.chains import reference

    model = random_hmm(2, 3, seed=1)
    log_z, _ = reference.partition(model.chains([np.tile([0, 1, 2, 1], 5_000)]))
    assert math.isfinite(log_z.item())
    assert log_z.item() < -10_000


def test_stored_and_back():
    again = HMM.from_tensors(MODELS[1].tensors())
    assert torch.equal(again.log_likelihood(SEQUENCES), MODELS[1].log_likelihood(SEQUENCES))
