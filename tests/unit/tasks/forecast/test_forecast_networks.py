"""Networks that forecast series: missing values, scales, stages of a training, resuming, own cells, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import load_file

import weft
from weft.cells import RNNCell
from weft.errors import WeftError
from weft.metrics.forecast import QUANTILE_LEVELS
from weft.tasks.forecast.calibration import MEDIAN
from weft.tasks.forecast.distributions import DISTRIBUTIONS, Uniforms
from weft.tasks.forecast.model import NETWORKS, SeriesRows
from weft.tasks.forecast.network import DrawnWindows, NetworkForm, batch_at, panel_of
from weft.tasks.forecast.network_fitting import NetworkFitting, Stage
from weft.training.config import TrainConfig
from weft.training.run import CHECKPOINT, WEIGHTS

HORIZON, SEASON = 4, 6
FORM = NetworkForm(HORIZON, SEASON, 12, hidden_size=8)
SMALL = {"model.horizon": HORIZON, "model.season": SEASON, "model.hidden_size": 8, "train.epochs": 2}


def waves(count=5, length=90, seed=0):
    random = np.random.default_rng(seed)
    pattern = 3 * np.sin(np.arange(length) * 2 * np.pi / SEASON)
    return [
        random.uniform(20, 50) + pattern * random.uniform(0.5, 2) + random.normal(0, 0.5, length) for _ in range(count)
    ]


def make(kind, form=FORM, seed=0):
    """A network with random weights everywhere, also where training starts from 0."""
    torch.manual_seed(seed)
    network = NETWORKS[kind](form)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.2)
    return network.eval()


@pytest.fixture(scope="module", params=NETWORKS)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    settings = {**SMALL, "model.kind": request.param}
    weft.train_forecast(waves(), folder / "run", settings, progress=False)
    return folder / "run", settings


@pytest.mark.parametrize("kind", NETWORKS)
def test_what_stands_under_the_mask_of_a_target_changes_no_bit(kind):
    rows = waves()
    rows[0][30:40] = np.nan
    panel = panel_of(SeriesRows(rows), FORM)
    batch = batch_at(panel, panel.starts[0] + np.arange(24, 44, 3))
    assert not batch.known.all()
    gradients = []
    for value in (0.0, 1e6, float("nan")):
        network = make(kind)
        loss = network.loss(batch._replace(targets=torch.where(batch.known, batch.targets, value)))
        loss.total.backward()
        gradients.append([loss.total, *(parameter.grad for parameter in network.parameters())])
    for other in gradients[1:]:
        assert all(torch.equal(first, second) for first, second in zip(gradients[0], other, strict=True))


def test_smoothing_is_the_recursion_and_leaves_out_missing_values():
    network, row = make("es-rnn"), waves()[0]
    row[-3] = np.nan
    panel = panel_of(SeriesRows([row]), FORM)
    batch = batch_at(panel, panel.ends)
    found = network.prepared(batch)
    values, seen = batch.lags[0].numpy(), batch.seen[0].numpy()
    rates = network.rates(batch.lags).sigmoid()[0].detach().numpy()
    level, season, past = values[:SEASON].mean(), [*(values[:SEASON] - values[:SEASON].mean())], []
    for step, value in enumerate(values):
        past.append(season[step % SEASON])
        error = value - level - past[-1] if seen[step] else 0.0
        level, season[step % SEASON] = level + rates[0] * error, past[-1] + rates[1] * error
    forecast = [level + season[(FORM.lags + step) % SEASON] for step in range(HORIZON)]
    assert seen.tolist().count(0.0) == 1
    np.testing.assert_allclose(found.naive[0].detach(), forecast, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.lags[0].detach(), values - past - level, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("score", ["additive", "bilinear", "dot", "scaled_dot"])
def test_steps_of_the_horizon_attend_to_the_segments(score):
    form = replace(FORM, lags=24, attention=score)
    network, rows = make("direct", form), waves(2)
    early = rows[0].copy()
    early[-2 * SEASON : -SEASON] += 3 * np.arange(SEASON)  # a segment, which the last outputs do not know alone
    assert not np.allclose(network.forecast(SeriesRows([rows[0]])), network.forecast(SeriesRows([early])))
    together = network.forecast(SeriesRows(rows))
    np.testing.assert_allclose(together[1:], network.forecast(SeriesRows(rows[1:])), rtol=1e-5)
    panel = panel_of(SeriesRows(rows), form)
    network.train()
    network.loss(batch_at(panel, panel.starts + 40)).total.backward()
    assert all(parameter.grad.abs().sum() > 0 for name, parameter in network.named_parameters() if "atte" in name)


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_missing_value_is_seen_as_missing(kind):
    rows = waves()
    early, late = (row.copy() for row in (rows[0], rows[0]))
    late[-2] = np.nan
    late_filled = late.copy()
    late_filled[-2] = late[-2 - SEASON]  # what stands in for it
    network = make(kind)
    quantiles = [network.forecast(SeriesRows([row])) for row in (early, late, late_filled)]
    assert all(np.isfinite(one).all() for one in quantiles)
    assert not np.array_equal(quantiles[1], quantiles[2])


@pytest.mark.parametrize("kind", NETWORKS)
def test_forecasts_follow_the_level_and_the_scale_of_a_series(kind):
    network, row = make(kind), waves()[0]
    own, other = (network.forecast(SeriesRows([part])) for part in (row, 1000 * row - 70))
    np.testing.assert_allclose(other, 1000 * own - 70, rtol=1e-3)


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_forecast_depends_on_no_other_series_of_a_batch(kind):
    network, rows = make(kind), waves()
    together, alone = network.forecast(SeriesRows(rows)), network.forecast(SeriesRows(rows[2:3]))
    np.testing.assert_allclose(together[2:3], alone, rtol=1e-5)


def test_windows_are_a_function_of_seed_and_epoch_and_end_before_what_is_held_out():
    rows = waves(length=40)
    rows.append(rows[0][:12])  # too short for a window
    panel = panel_of(SeriesRows(rows), FORM)

    def drawn(seed, epoch, start=0):
        return list(DrawnWindows(panel, 2, batches=3, size=8, seed=seed).epoch(epoch, start))

    for first, second in zip(drawn(1, 4)[1:], drawn(1, 4, start=1), strict=True):
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert not torch.equal(drawn(1, 4)[0].lags, drawn(1, 5)[0].lags)
    assert not torch.equal(drawn(1, 4)[0].lags, drawn(2, 4)[0].lags)
    windows = DrawnWindows(panel, 2, batches=3, size=8, seed=1)
    assert len(windows) == 5 * (40 - (SEASON + 1) - 3 * HORIZON + 1)
    changed = [np.append(row[: -2 * HORIZON], 7 * row[-2 * HORIZON :]) for row in rows[:5]]
    other = DrawnWindows(panel_of(SeriesRows([*changed, rows[5]]), FORM), 2, batches=3, size=8, seed=1)
    for first, second in zip(windows.epoch(0), other.epoch(0), strict=True):
        assert torch.equal(first.targets, second.targets)


def test_a_resumed_training_gives_the_same_bits(run, tmp_path):
    path, settings = run
    training = weft.start_forecast(waves(), tmp_path / "run", settings)
    for step in training.trainer.run():
        training.trainer.save()
        if step.number == 3:  # in the second stage
            break
    again = weft.resume_forecast(tmp_path / "run")
    assert [step.number for step in again.steps()] == list(range(4, step.total + 1))
    for name in (WEIGHTS, CHECKPOINT):
        one, other = load_file(path / name), load_file(tmp_path / "run" / name)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one), name


def test_a_run_forecasts_a_longer_horizon_and_new_series(run):
    model = weft.load(run[0])
    short, long = model.forecast(), model.forecast(horizon=2 * HORIZON + 1)
    assert len(long[0].times) == 2 * HORIZON + 1
    np.testing.assert_allclose(long[0].values[:HORIZON], short[0].values, rtol=1e-6)
    assert np.isfinite(model.forecast([np.arange(3.0)])[0].values).all()


def test_a_pattern_is_learnt(tmp_path):
    steps = np.arange(160)
    rows = [10 + size * np.where(steps // 5 % 2, 1.0, -1.0) * (1 + 0.5 * np.sin(steps)) for size in (1, 2, 3)]
    settings = {**SMALL, "model.kind": "direct", "model.season": 10, "model.hidden_size": 16, "train.epochs": 6}
    model = weft.train_forecast(rows, tmp_path / "run", settings, horizon=5, progress=False)
    assert model.evaluate()["mase"] < 0.3


def autoregression(length, random):
    """y = 0.6 y' - 0.3 y'' + e with a standard normal e."""
    values = np.zeros(length + 100)
    for step in range(2, len(values)):
        values[step] = 0.6 * values[step - 1] - 0.3 * values[step - 2] + random.normal()
    return values[100:]


@pytest.mark.parametrize(("kind", "nats"), [("recurrent", 0.01), ("ar", 0.015)])
def test_the_likelihood_of_an_autoregression_is_near_its_entropy(kind, nats):
    random = np.random.default_rng(0)
    trained, held_out = (SeriesRows([autoregression(1200, random) for _ in range(count)]) for count in (30, 20))
    form = NetworkForm(16, 1, 128, hidden_size=16 if kind == "recurrent" else 0, dropout=0.0, distribution="gaussian")
    config = TrainConfig(learning_rate=0.01, ema_decay=0.99, weight_decay=0.0)
    fitting = NetworkFitting(kind, form, trained, [Stage(0, 12)], config, 64)
    while fitting.stage < 1:
        fitting.epoch()
    panel = panel_of(held_out, form)
    places = np.concatenate([np.arange(600, 1180, 16) + start for start in panel.starts])
    batch = batch_at(panel, places)
    with torch.no_grad():
        own = float(fitting.network.eval().loss(batch).total) / batch.known.sum() + batch.scales.log().mean()
    steps = places[:, None] + np.arange(16)
    errors = panel.values[steps] - 0.6 * panel.values[steps - 1] + 0.3 * panel.values[steps - 2]
    true = 0.5 * np.log(2 * np.pi) + 0.5 * (errors**2).mean()  # the entropy as these values show it
    assert abs(true - 0.5 * np.log(2 * np.pi * np.e)) < 0.01
    assert 0 < own - true < nats


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_are_those_of_the_distribution(name):
    distribution, generator = DISTRIBUTIONS[name](), torch.Generator().manual_seed(0)
    parameters = 0.5 * torch.randn(distribution.size, generator=generator)
    first, second = torch.rand(2, 100_000, generator=generator).clamp(1e-6, 1 - 1e-6)
    offset, scale = torch.tensor(-1.0), torch.tensor(7.0)
    drawn = distribution.draw(parameters.expand(len(first), -1), Uniforms(first, second), offset, scale)
    if name == "quantiles":
        quantiles = torch.quantile(drawn, torch.tensor(QUANTILE_LEVELS))
        losses = [distribution.losses(parameters, drawn + shift, offset, scale).mean() for shift in (-0.1, 0.0, 0.1)]
        assert losses[1] < min(losses[0], losses[2])
        assert (quantiles.diff() > 0).all()
        return
    counts = name == "negative-binomial"
    grid = (torch.arange(0, 3000.0) / scale + offset) if counts else torch.linspace(-200, 200, 400_001)
    masses = (-distribution.losses(parameters, grid, offset, scale)).exp() * (1.0 if counts else 1e-3)
    assert masses.sum() == pytest.approx(1, abs=1e-3)
    for value in (-0.5, 0.5, 2.0):
        assert (drawn <= value).float().mean() == pytest.approx(float(masses[grid <= value].sum()), abs=0.01)


def test_counts_are_forecast_by_their_distribution(tmp_path):
    random = np.random.default_rng(0)
    rows = [random.poisson(0.8 + 0.6 * (np.arange(120) % 7 < 2)).astype(float) for _ in range(6)]
    settings = {"model.kind": "recurrent", "model.season": 7, "model.hidden_size": 8, "train.epochs": 2,
                "model.distribution": "negative-binomial"}  # fmt: skip
    model = weft.train_forecast(rows, tmp_path / "run", settings, horizon=7, progress=False)
    for one in model.forecast(horizon=10):
        for values in (one.values, *one.intervals["95"]):
            assert (values >= 0).all()
            assert (values == np.round(values)).all()
    with pytest.raises(WeftError, match="values that are no counts"):
        weft.train_forecast([row + 0.5 for row in rows], tmp_path / "other", settings, horizon=7, progress=False)


def test_paths_go_on_beyond_the_horizon():
    network = make("recurrent")
    short, long = network.forecast(SeriesRows(waves())), network.forecast(SeriesRows(waves()), 3 * HORIZON)
    np.testing.assert_allclose(long[:, :HORIZON], short, rtol=1e-6)
    assert long.shape[1] == 3 * HORIZON


def test_a_time_limit_gives_fewer_epochs_and_a_resume_keeps_them(tmp_path):
    settings = {**SMALL, "model.kind": "direct", "train.epochs": 2000, "train.minutes": 0.02}
    training = weft.start_forecast(waves(), tmp_path / "run", settings)
    for step in training.trainer.run():
        if step.number == 2:
            training.trainer.save()
            break
    again = weft.resume_forecast(tmp_path / "run")
    assert again.trainer.phase.steps(again.trainer.progress) == step.total < 1000
    assert [step.number for step in again.steps()][-1] == step.total
    assert np.isfinite(weft.load(tmp_path / "run").evaluate()["mase"])


def test_the_calendar_is_an_input(tmp_path):
    days, random = pandas.date_range("2023-01-01", periods=400), np.random.default_rng(0)
    values = 10 + 5 * (days.day_of_week < 2) + random.normal(0, 0.1, len(days))
    settings = {"model.kind": "ar", "model.season": 1, "model.lags": 2, "model.hidden_size": 16, "train.epochs": 8,
                "train.learning_rate": 0.02}  # fmt: skip
    table = pandas.DataFrame({"ds": days, "y": values})
    model = weft.train_forecast(table, tmp_path / "run", settings, horizon=14, progress=False)
    (form,) = {network.form for name, network in model.model.networks.items() if name == "ar"}
    assert form.calendar == 6
    expected = 10 + 5 * (pandas.date_range("2024-02-05", periods=28).day_of_week < 2)
    assert np.corrcoef(model.forecast(horizon=28)[0].values[:, 0], expected)[0, 1] > 0.9
    assert np.isfinite(model.forecast([values[:50].tolist()])[0].values).all()  # without times


def test_an_own_cell(tmp_path):
    class Slow(RNNCell):
        def step(self, x_proj, state):
            new, gates = super().step(x_proj, state)
            return type(new)(0.5 * state.h + 0.5 * new.h), gates

    settings = {**SMALL, "model.kind": "direct", "train.epochs": 1, "model.cell": Slow}
    model = weft.train_forecast(waves(), tmp_path / "run", settings, progress=False)
    expected = model.forecast()[0].values
    assert (weft.load(tmp_path / "run", cells=[Slow]).forecast()[0].values == expected).all()


@pytest.mark.parametrize("kind", NETWORKS)
def test_series_that_are_too_short_are_refused(kind, tmp_path):
    with pytest.raises(WeftError, match=r"a network cannot be trained on series of at most 12 values"):
        weft.train_forecast(waves(length=12), tmp_path / "run", {**SMALL, "model.kind": kind}, progress=False)
    assert not (tmp_path / "run").exists()


def test_beside_other_forecasters_a_network_needs_more_windows(tmp_path):
    model = weft.train_forecast(
        waves(count=1, length=40), tmp_path / "run", SMALL | {"train.epochs": 1}, progress=False
    )
    assert "direct" not in model.model.weights


def test_quantiles_are_in_order(run):
    quantiles = weft.load(run[0]).model.quantiles(SeriesRows(waves()))
    assert quantiles.shape == (5, HORIZON, len(QUANTILE_LEVELS))
    assert (np.diff(quantiles) >= 0).all()
    assert (quantiles[..., 0] < quantiles[..., MEDIAN]).all()
