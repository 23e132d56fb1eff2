"""Hidden Markov models of numbers: enumeration of all paths, what hmmlearn gives, and as a kind of forecaster."""

from __future__ import annotations

import itertools

import numpy as np
import pandas
import pytest
import torch
from torch.distributions import Normal
from typer.testing import CliRunner

import weft
import weft.cli
from weft.errors import WeftError
from weft.metrics.forecast import QUANTILE_LEVELS
from weft.tasks.hmm.baum_welch import Counts, baum_welch, expected_counts
from weft.tasks.hmm.gaussian import GaussianHMM
from weft.training.run import CHECKPOINT

MODEL = GaussianHMM(
    torch.tensor([0.5, 0.2, 0.3]),
    torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.2, 0.2, 0.6]]),
    torch.tensor([[0.0, 1.0], [3.0, -1.0], [-4.0, 0.5]]),
    torch.tensor([[1.0, 0.5], [0.3, 2.0], [2.0, 0.1]]),
    torch.zeros(2),
)
TINY = [np.array([[0.3, 0.8], [2.5, np.nan], [-1.0, 0.0], [np.nan, np.nan]]), np.array([[3.1, -0.5]])]
SEQUENCES = [MODEL.sample(length, seed=length)[1].numpy() for length in (300, 1, 57)]


def all_paths(values):
    """The log-probability of each path together with the values."""
    densities = torch.zeros(len(values), 3, dtype=torch.float64)
    for t, k, c in itertools.product(range(len(values)), range(3), range(2)):
        if not np.isnan(values[t, c]):
            normal = Normal(MODEL.means[k, c], MODEL.variances[k, c].sqrt())
            densities[t, k] += normal.log_prob(torch.tensor(values[t, c], dtype=torch.float64))
    found = {}
    for path in itertools.product(range(3), repeat=len(values)):
        score = MODEL.initial[path[0]].log() + densities[0, path[0]]
        for t in range(1, len(path)):
            score = score + MODEL.transition[path[t - 1], path[t]].log() + densities[t, path[t]]
        found[path] = float(score)
    return found


@pytest.mark.parametrize("values", TINY, ids=["gaps", "one"])
def test_likelihood_posterior_and_viterbi_are_those_of_all_paths(values):
    paths = all_paths(values)
    total = torch.tensor(list(paths.values()), dtype=torch.float64).logsumexp(0)
    assert MODEL.log_likelihood([values])[0] == pytest.approx(float(total), abs=1e-12)
    expected = torch.zeros(len(values), 3, dtype=torch.float64)
    for path, score in paths.items():
        for t, k in enumerate(path):
            expected[t, k] += np.exp(score - float(total))
    torch.testing.assert_close(MODEL.posterior([values])[0], expected)
    best = max(paths, key=paths.get)
    (found,) = MODEL.viterbi([values])
    assert tuple(found.states.tolist()) == best
    assert found.log_prob == pytest.approx(paths[best], abs=1e-12)
    torch.testing.assert_close(MODEL.next_states([values])[0], expected[-1] @ MODEL.transition)


def test_expected_counts_are_sums_over_all_paths():
    found = expected_counts(MODEL, TINY)
    emissions, transition = torch.zeros(3, 3, 2, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    for values in TINY:
        paths = all_paths(values)
        total = float(torch.tensor(list(paths.values()), dtype=torch.float64).logsumexp(0))
        for path, score in paths.items():
            share = np.exp(score - total)
            for before, after in itertools.pairwise(path):
                transition[before, after] += share
            for (t, k), c in itertools.product(enumerate(path), range(2)):
                if not np.isnan(values[t, c]):
                    emissions[k, :, c] += share * torch.tensor(
                        [1.0, values[t, c], values[t, c] ** 2], dtype=torch.float64
                    )
    torch.testing.assert_close(found.emission, emissions)
    torch.testing.assert_close(found.transition, transition)
    again = Counts.from_flat(found.flat(), MODEL)
    assert torch.equal(again.emission, found.emission)


def test_online_filtering_equals_the_whole():
    values, state = SEQUENCES[0][:40].copy(), MODEL.initial[None]
    values[7, 1], values[9] = np.nan, np.nan
    for row in values:
        state = MODEL.step(torch.from_numpy(row)[None], state)
    torch.testing.assert_close(state, MODEL.next_states([values]))


def test_baum_welch_never_gets_worse_and_finds_regimes():
    states, values = MODEL.sample(600, seed=3)
    first = GaussianHMM.first([values.numpy()], 3)
    steps = list(itertools.islice(baum_welch(first, [values.numpy()]), 40))
    objectives = [step.objective for step in steps]
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(objectives))
    path = steps[-1].model.viterbi([values.numpy()])[0].states
    agreement = max((torch.tensor(order)[path] == states).double().mean() for order in itertools.permutations(range(3)))
    assert agreement > 0.95


def test_a_state_never_becomes_one_value():
    values = np.array([1.0] * 20 + [5.0, 5.1, 4.9] * 5)
    *_, last = itertools.islice(baum_welch(GaussianHMM.first([values], 2), [values]), 30)
    assert (last.model.variances >= last.model.least_variances).all()
    assert last.model.log_likelihood([values]).isfinite().all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(WeftError, match="variance"):
        GaussianHMM(*(*MODEL.tensors().values(),)[:3], torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(WeftError, match="1 channels"):
        MODEL.log_likelihood([np.zeros(3)])
    with pytest.raises(WeftError, match="no values"):
        GaussianHMM.first([np.full(3, np.nan)], 2)


@pytest.fixture
def peer():
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is not installed")
    found = hmm.GaussianHMM(3, "diag", n_iter=5, tol=-np.inf, init_params="", covars_prior=0, covars_weight=1,
                            min_covar=0)  # fmt: skip
    found.startprob_, found.transmat_, found.means_ = (one.numpy() for one in (*MODEL.tensors().values(),)[:3])
    found.covars_ = MODEL.variances.numpy()
    return found


def test_parity_with_hmmlearn(peer):
    x, lengths = np.concatenate(SEQUENCES), [len(one) for one in SEQUENCES]
    log_likelihood, shares = peer.score_samples(x, lengths)
    assert float(MODEL.log_likelihood(SEQUENCES).sum()) == pytest.approx(log_likelihood, rel=1e-12)
    np.testing.assert_allclose(torch.cat(MODEL.posterior(SEQUENCES)), shares, atol=1e-10)
    log_prob, states = peer.decode(x, lengths)
    paths = MODEL.viterbi(SEQUENCES)
    assert sum(path.log_prob for path in paths) == pytest.approx(log_prob, rel=1e-12)
    np.testing.assert_array_equal(torch.cat([path.states for path in paths]), states)
    *_, last = itertools.islice(baum_welch(MODEL, SEQUENCES), 6)
    peer.fit(x, lengths)
    ours = last.model
    for own, other in ((ours.initial, peer.startprob_), (ours.transition, peer.transmat_), (ours.means, peer.means_),
                       (ours.variances, np.stack([np.diag(one) for one in peer.covars_]))):  # fmt: skip
        np.testing.assert_allclose(own, other, atol=1e-8)


def regimes(length=400, seed=0):
    """A series that is calm at 0 and wild at 10."""
    random, state, values = np.random.default_rng(seed), 0, np.zeros(length)
    for t in range(length):
        state = state if random.random() < 0.97 else 1 - state
        values[t] = random.normal(10 * state, 1 + 2 * state)
    return values


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("hmm") / "run"
    times = pandas.date_range("2024-01-01", periods=400, freq="D")
    table = pandas.DataFrame({"ds": times, "y": regimes()})
    weft.train_forecast(table, out, {"model.kind": "hmm", "model.num_states": 2}, horizon=6, season=1, progress=False)
    return out


def test_a_forecaster_of_regimes(run):
    model = weft.load(run, weft.ForecastPredictor)
    assert "2 states" in repr(model)
    (forecast,) = model.forecast(level="80")
    low, high = forecast.intervals["80"]
    assert (low < forecast.values).all()
    assert (forecast.values < high).all()
    metrics = model.evaluate()
    assert np.isfinite(metrics["mase"])
    (path,) = model.regimes()
    means = model.model.hmm.means[:, 0]
    calm = path == int(means.argmin())
    assert regimes()[calm].mean() < 2
    assert regimes()[~calm].mean() > 7
    longer = model.forecast(horizon=10)[0]
    assert longer.values.shape == (10, 1)


def test_the_commands_train_and_use_it(tmp_path):
    times = pandas.date_range("2024-01-01", periods=120, freq="D")
    pandas.DataFrame({"ds": times, "y": regimes(120)}).to_csv(tmp_path / "t.csv", index=False)
    train = ["train", "forecast", "--data", tmp_path / "t.csv", "--out", tmp_path / "run", "--set", "model.kind=hmm"]
    uses = [[command, tmp_path / "run"] for command in ("forecast", "eval", "backtest", "anomalies")]
    for words in (train, *uses):
        done = CliRunner().invoke(weft.cli.app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        assert done.output


def test_quantiles_are_those_of_the_mixture(run):
    model = weft.load(run, weft.ForecastPredictor).model
    quantiles = model.mixture_quantiles([regimes(seed=4)], 3)[0]  # (H, Q)
    draws = model.draw(regimes(seed=4), 3, 40_000, seed=1)
    for step, level in itertools.product(range(3), range(len(QUANTILE_LEVELS))):
        assert (draws[:, step] < quantiles[step, level]).mean() == pytest.approx(QUANTILE_LEVELS[level], abs=0.01)


def test_a_training_resumes_to_the_bit(tmp_path, run):
    table = pandas.DataFrame({"ds": pandas.date_range("2024-01-01", periods=400, freq="D"), "y": regimes()})
    settings = {"model.kind": "hmm", "model.num_states": 2, "model.horizon": 6, "model.season": 1}
    training = weft.start_forecast(table, tmp_path / "run", settings)
    steps = training.steps()
    for _ in range(4):
        next(steps)
    training.trainer.save()
    steps.close()
    assert (tmp_path / "run" / CHECKPOINT).exists()
    for _ in weft.resume_forecast(tmp_path / "run").steps():
        pass
    whole, resumed = (weft.load(one, weft.ForecastPredictor).model for one in (run, tmp_path / "run"))
    for name, tensor in whole.hmm.tensors().items():
        assert torch.equal(tensor, resumed.hmm.tensors()[name]), name


def test_anomalies_by_the_predictive_mixture(run):
    model = weft.load(run, weft.ForecastPredictor)
    values = regimes(seed=5, length=200)
    values[150] = 60.0
    times = pandas.date_range("2025-02-04", periods=200, freq="D")
    table = pandas.DataFrame({"ds": times, "y": values})
    found = model.anomalies(table)
    assert found.anomaly[150]
    assert found.anomaly.sum() < 6
    lines = [f"{ds},{y!r}" for ds, y in zip(times[100:], values[100:].tolist(), strict=True)]
    followed = [one.scores[0] for one in model.follow_anomalies(lines, table[:100])]
    np.testing.assert_array_equal(followed, found.score[100:])
