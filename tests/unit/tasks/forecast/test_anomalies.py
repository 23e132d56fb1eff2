"""Anomaly scores: their rate of false alarms, what they find, and that following a series equals scoring it whole."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import numpy as np
import pandas
import polars
import pytest
import torch
from typer.testing import CliRunner

import weft
import weft.cli
from weft.errors import WeftError
from weft.series.frequency import Frequency
from weft.server.operations import served_operations
from weft.tasks.forecast.anomalies import Tail, fit_linear_detector
from weft.tasks.forecast.anomaly_records import alarms_in_words, lines_as_they_arrive
from weft.tasks.forecast.task import TASK

SEASON, TRAINED, LENGTH = 24, 480, 960
SPIKE, FLAT = 700, slice(800, 824)


def waves(seed=0, length=LENGTH):
    """Hourly values of a day's wave and autoregressive noise."""
    random, steps = np.random.default_rng(seed), np.arange(length)
    noise = np.zeros(length)
    for step in steps[1:]:
        noise[step] = 0.6 * noise[step - 1] + random.normal(0, 0.5)
    return 20 + 6 * np.sin(2 * np.pi * steps / SEASON) + noise


def table(names=("a", "b"), first=0, last=LENGTH):
    times = pandas.date_range("2024-01-01", periods=LENGTH, freq="h")[first:last]
    parts = []
    for name in names:
        values = waves(ord(name))
        if name == "b":
            values[SPIKE] += 9
            values[FLAT] = values[FLAT.start]
            values[600:603] = np.nan
        parts.append(pandas.DataFrame({"unique_id": name, "ds": times, "y": values[first:last].round(4)}))
    return pandas.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("anomalies")
    table(last=TRAINED).to_csv(found / "train.csv", index=False)
    table().to_csv(found / "whole.csv", index=False)
    table(first=TRAINED).to_csv(found / "later.csv", index=False)
    weft.train_forecast(found / "train.csv", found / "run", {"model.kind": "linear"}, horizon=4, progress=False)
    return found


@pytest.fixture(scope="module")
def model(folder):
    return weft.load(folder / "run", weft.ForecastPredictor)


def program(*arguments, lines=""):
    return CliRunner().invoke(weft.cli.app, [str(one) for one in arguments], input=lines)


def alarms(flags):
    """Neighbours above the threshold are one alarm."""
    flags = np.asarray(flags, bool)
    return int((flags & ~np.concatenate([[False], flags[:-1]])).sum())


def test_the_columns_and_what_is_found(folder, model):
    done = program("anomalies", folder / "run", "--data", folder / "later.csv")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == ["unique_id", "ds", "y", "score", "anomaly"]
    assert "with a value every hour" in done.stderr
    assert "1 a " not in done.stdout
    assert len(rows) == 2 * (LENGTH - TRAINED)
    assert rows[0]["ds"] == "2024-01-21 00:00:00"
    found = model.anomalies(folder / "later.csv")
    clean, spoiled = found[0], found[1]
    assert np.isfinite(clean.scores).all(), "the training came before the first value"
    assert spoiled.anomalies[SPIKE - TRAINED]
    assert spoiled.scores[SPIKE - TRAINED] > 4
    assert spoiled.anomalies[FLAT.start - TRAINED : FLAT.stop - TRAINED + SEASON].any()
    assert alarms(clean.anomalies) <= 3
    missing = slice(600 - TRAINED, 603 - TRAINED)
    assert np.isnan(spoiled.scores[missing]).all()
    assert not spoiled.anomalies[missing].any()
    assert rows[len(rows) // 2 + missing.start]["score"] == ""
    assert rows[missing.start]["anomaly"] == "false"


def test_following_equals_the_whole_to_the_bit(folder, model):
    later = table(first=TRAINED)
    mixed = later.sort_values(["ds", "unique_id"])
    lines = mixed.to_csv(index=False, na_rep="").splitlines(keepends=True)
    followed = list(model.follow_anomalies(lines))
    whole = {
        (one.id, time): one.scores[place]
        for one in model.anomaly_records(later)
        for place, time in enumerate(one.times)
    }
    assert len(followed) == len(whole)
    for one in followed:
        np.testing.assert_array_equal(one.scores, [whole[one.id, one.times[0]]])
    clean = next(iter(model.anomaly_records(later)))
    np.testing.assert_array_equal([one.lower[0, 0] for one in followed[::2]], clean.lower[:, 0])


def test_the_command_follows_lines_after_data(folder, tmp_path):
    table(names=("b",), first=TRAINED, last=650).to_csv(tmp_path / "until.csv", index=False)
    after = table(names=("b",), first=650, last=720)
    lines = "".join(f"{ds},{y}\n" for ds, y in zip(after.ds, after.y, strict=True))
    done = program("anomalies", folder / "run", "--data", tmp_path / "until.csv", "--follow", lines=lines)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["ds"] for row in rows] == [str(ds) for ds in after.ds]
    table_of_all = program("anomalies", folder / "run", "--data", folder / "later.csv").stdout
    whole = {one["ds"]: one for one in csv.DictReader(io.StringIO(table_of_all)) if one["unique_id"] == "b"}
    assert [row["score"] for row in rows] == [whole[row["ds"]]["score"] for row in rows]
    assert whole[str(after.ds.iloc[SPIKE - 650])]["anomaly"] == "true"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"\xff\xfe\n", "line 1 or one after it is no text"),
        (b'{"y":' + b"[" * 100_000, "line 1 is no JSON: maximum recursion depth"),
        (b"7" * 3_000_000, "line 1 has 1,048,576 characters or more"),
        (b"20\n" + b"1," * 100_000 + b"\n", "line 2 has 100001 cells"),
        (b"1\r2,3\n", "expected values with commas"),
        (b'{"y": {}}\n', "line 1 has the value '{}'"),
        (b'{"y": 1e400}\n', "line 1 has a value that is infinite or too large"),
    ],
)
def test_hostile_lines_are_refused_in_words(model, lines, message):
    stream = io.TextIOWrapper(io.BytesIO(lines), encoding="utf-8", newline="\n")
    with pytest.raises(WeftError, match=message):
        list(model.follow_anomalies(lines_as_they_arrive(stream), table(names=("a",), last=TRAINED)))


def test_a_line_is_scored_before_the_next_is_read(model):
    sent = []

    def lines():
        for value in ("20.1", "", '{"y": 21.5}', "2024-01-21 06:00:00,19"):
            sent.append(value)
            yield f"{value or 'nan'}\n"

    found = model.follow_anomalies(lines(), table(names=("a",), last=TRAINED))
    first = next(found)
    assert sent == ["20.1"]
    assert np.isfinite(first.scores[0])
    assert first.times == ("2024-01-21 00:00:00",)
    rest = list(found)
    assert np.isnan(rest[0].scores[0])
    assert rest[0].times == ("2024-01-21 01:00:00",)
    assert rest[2].times == ("2024-01-21 06:00:00",), "the steps between are missing"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["2024-01-02 00:00:00,5"], "is at 2024-01-02 00:00:00"),
        (["2024-01-21 00:30:00,5"], "is at 2024-01-21 00:30:00"),
        (["c,2024-01-21 00:00:00,5"], "of the series 'c'"),
        (["1", "five"], "line 2 has the value 'five'"),
        (["1", "1,2,3,4"], "line 2 has 4 cells"),
        (["1", "{5"], "line 2 is no JSON"),
        (["inf"], "infinite"),
        (["1", "-1e70"], "line 2 has a value that is infinite or too large"),
    ],
)
def test_lines_that_are_no_next_value_are_refused(model, lines, words):
    with pytest.raises(WeftError, match=words):
        list(model.follow_anomalies(lines, table(names=("a",), last=TRAINED)))


def test_a_request_of_a_server_has_the_same_record_alone_and_with_others(model):
    served = served_operations(TASK, model.run, model)["anomalies"]
    assert "follow" not in {entry.name for entry in dataclasses.fields(served.options)}
    inputs = [{"y": waves(1)[:90].tolist()}, waves(2)[:60].tolist()]
    options = served.options(rate=0.01, interval=True)
    served.check_inputs(inputs, options)
    together = served.predict(inputs, options)
    assert together == [record for one in inputs for record in served.predict([one], options)]
    assert list(together[1]) == ["ds", "y", "score", "anomaly", "weft", "weft-lo", "weft-hi"]
    assert together[1]["score"][: SEASON + 1] == [None] * (SEASON + 1)


def test_dataframes_come_out_where_they_came_in(model):
    later = table(first=TRAINED)
    found = model.anomalies(later)
    assert isinstance(found, pandas.DataFrame)
    assert list(found) == ["unique_id", "ds", "y", "score", "anomaly"]
    assert found.ds.equals(later.ds)
    assert found.anomaly.dtype == bool
    assert isinstance(
        model.anomalies(
            polars.DataFrame(
                {
                    name: later[name].to_numpy(object) if name == "unique_id" else later[name].to_numpy()
                    for name in later
                }
            )
        ),
        polars.DataFrame,
    )


def test_a_higher_rate_gives_more_alarms_and_the_interval_is_where_there_is_none(model):
    later = table(first=TRAINED)
    few, many = (model.anomalies(later, rate=rate).anomaly.sum() for rate in (0.001, 0.05))
    assert few < many
    one = next(iter(model.anomaly_records(later, rate=0.01)))
    inside = (one.lower[:, 0] <= one.values[:, 0]) & (one.values[:, 0] <= one.upper[:, 0])
    assert (one.lower < one.expected).all()
    assert (one.expected < one.upper).all()
    assert one.anomalies[~inside].all(), "a value outside is one"


def test_false_alarms_are_as_rare_as_the_rate_says():
    rows = [waves(seed, 1200) for seed in range(10, 22)]
    detector = fit_linear_detector(None, rows[:6], SEASON)
    scores = np.concatenate([one.values for one in detector.score(rows[6:])])
    known = scores[~np.isnan(scores)]
    for rate in (0.05, 0.01):
        assert 0.2 * rate < alarms(known >= -np.log10(rate)) / len(known) < 1.5 * rate
    assert alarms(known >= 3) / len(known) < 0.002


def test_scores_do_not_know_what_comes_after():
    row, changed = waves(3), waves(3)
    changed[500:] = 1e6
    detector = fit_linear_detector(None, [waves(4)], SEASON)
    before, after = (detector.score([one])[0].values[:500] for one in (row, changed))
    np.testing.assert_array_equal(before, after)
    assert np.isnan(before[: SEASON + 1]).all()
    assert np.isfinite(before[SEASON + 1 :]).all()


def test_rows_alone_equal_rows_together_to_the_bit():
    rows = [waves(5), waves(6)[:300], np.concatenate([[np.nan] * 7, waves(7)[:100]])]
    detector = fit_linear_detector(None, rows, SEASON)
    for row, together in zip(rows, detector.score(rows), strict=True):
        for alone, joined in zip(detector.score([row])[0], together, strict=True):
            np.testing.assert_array_equal(alone, joined)


def test_a_tail_gives_rates_that_fall(model):
    tail = Tail.fit([np.random.default_rng(0).normal(size=4000)])
    scores = tail.scores(np.linspace(0, 30, 300))
    assert (np.diff(scores) >= 0).all()
    assert scores[0] < 0.5
    assert scores[-1] > 3
    for rate in (0.1, 0.01, 1e-4):
        assert 10 ** -tail.scores(np.array([tail.size_of(rate)]))[0] == pytest.approx(rate, rel=0.02)
    assert np.isnan(tail.scores(np.array([np.nan])))[0]


def test_an_enormous_value_is_scored_and_leaves_no_warning(reconstruction):
    row = waves(8)[:200]
    row[[120, 121]] = 1e59, -1e59
    for detector in (fit_linear_detector(None, [waves(4)], SEASON), reconstruction.detector):
        scores = detector.score([row])[0].values
        assert scores[120] > 3
        assert np.isfinite(scores[SEASON + 1 :]).all()


@pytest.mark.parametrize("values", [np.full(60, 3.0), np.arange(8.0), np.full(30, np.nan), np.zeros(0)])
def test_constant_short_and_empty_series(values):
    detector = fit_linear_detector(None, [values], 4)
    scores = detector.score([values])[0].values
    assert len(scores) == len(values)
    assert not (scores > 2).any()


def test_a_change_of_a_constant_series_is_an_anomaly():
    detector = fit_linear_detector(None, [np.full(100, 3.0)], 4)
    assert detector.score([np.concatenate([np.full(50, 3.0), [4.0]])])[0].values[-1] > 3


def test_channels_share_the_rate(tmp_path):
    steps = np.arange(400)
    data = pandas.DataFrame({"ds": pandas.date_range("2024-01-01", periods=400, freq="h"), "p": waves(1)[:400],
                             "q": waves(2)[:400]})  # fmt: skip
    model = weft.train_forecast(data, tmp_path / "run", {"data.target": "p,q", "model.kind": "linear"}, horizon=4,
                                progress=False)  # fmt: skip
    data.loc[300, "q"] += 12
    found = model.anomalies(data)
    assert list(found) == ["ds", "p", "q", "score", "anomaly"]
    assert found.anomaly[300]
    assert len(found) == len(steps)
    record = json.loads(json.dumps(next(iter(model.anomaly_records(data))).to_json(interval=True)))
    assert {"p-weft", "q-weft-lo", "q-weft-hi"} <= set(record)
    assert record["q-weft-hi"][300] < record["q"][300]
    lines = data[300:310].to_csv(index=False, header=False).splitlines()
    followed = [one.scores[0] for one in model.follow_anomalies(lines, data[:300])]
    np.testing.assert_array_equal(followed, found.score[300:310])


def test_the_rate_in_words():
    assert alarms_in_words(0.001, Frequency.parse("5min")).endswith("2 a week in each series")
    assert alarms_in_words(0.01, Frequency.parse("h")).endswith("1.7 a week in each series")
    assert alarms_in_words(0.001, Frequency.parse("MS")).endswith("1.2 a century in each series")
    assert alarms_in_words(0.02, Frequency.parse("step")) == "a rate of 0.02 is one false alarm in 50 values"


@pytest.fixture(scope="module")
def reconstruction(tmp_path_factory):
    settings = {"model.kind": "autoencoder", "model.cell": "lstm", "model.lags": 24, "train.epochs": 6}
    out = tmp_path_factory.mktemp("autoencoder") / "run"
    return weft.train_forecast(table(names=("a", "c"), last=TRAINED), out, settings, progress=False)


def test_an_autoencoder_finds_what_it_cannot_write(reconstruction):
    model = weft.load(reconstruction.run.path, weft.ForecastPredictor)
    assert "autoencoder of 24 values by 4 numbers" in repr(model)
    data = table(names=("b",), first=550, last=850)
    found = model.anomalies(data)
    assert found.anomaly[SPIKE - 550]
    assert found.score[FLAT.start - 550 : FLAT.stop - 550].max() > np.nanmedian(found.score) + 1
    assert np.isnan(found.score[50:53]).all()
    lines = data[100:].to_csv(index=False, header=False).splitlines()
    followed = [one.scores[0] for one in model.follow_anomalies(lines, data[:100])]
    np.testing.assert_array_equal(followed, found.score[100:])


def test_an_autoencoder_does_not_forecast(reconstruction):
    for use in (reconstruction.forecast, reconstruction.evaluate):
        with pytest.raises(WeftError, match="does not forecast"):
            use()


def test_the_training_of_an_autoencoder_resumes_to_the_bit(reconstruction, tmp_path):
    settings = {"model.kind": "autoencoder", "model.cell": "lstm", "model.lags": 24, "train.epochs": 6}
    training = weft.start_forecast(table(names=("a", "c"), last=TRAINED), tmp_path / "run", settings)
    steps = training.steps()
    for _ in range(70):
        next(steps)
    training.trainer.save()
    steps.close()
    for _ in weft.resume_forecast(tmp_path / "run").steps():
        pass
    resumed = weft.load(tmp_path / "run", weft.ForecastPredictor).model.network.state_dict()
    for name, tensor in reconstruction.model.network.state_dict().items():
        assert torch.equal(tensor, resumed[name]), name
