"""The forecast task: from a table to forecasts, resumed, evaluated, and on what is not as it should be."""

from __future__ import annotations

import csv
import io
import json
import shutil

import numpy as np
import pandas
import polars
import pytest
import torch
from safetensors.torch import load_file
from starlette.testclient import TestClient
from typer.testing import CliRunner

import weft
import weft.cli
from weft.config import AUTO
from weft.errors import WeftError
from weft.server.app import Server
from weft.server.config import ServerConfig
from weft.tasks.forecast.baselines import BASELINES
from weft.tasks.forecast.predictor import parse_levels
from weft.tasks.forecast.task import TASK
from weft.training.run import CHECKPOINT, CONFIG, WEIGHTS, open_run, read_json, write_json

HORIZON, SEASON = 4, 4


def sales(count=6, length=48, seed=0):
    """Quarterly series of a season and a trend."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        pattern, level = random.uniform(5, 9, SEASON), random.uniform(20, 60)
        values = level + np.arange(length) * 0.3 + np.resize(pattern, length) + random.normal(0, 0.5, length)
        times = pandas.date_range("2010-01-01", periods=length, freq="QS")
        rows.append(pandas.DataFrame({"unique_id": f"shop {number}", "ds": times, "y": values.round(3)}))
    return pandas.concat(rows, ignore_index=True)


@pytest.fixture(scope="module")
def table():
    return sales()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, table):
    found = tmp_path_factory.mktemp("forecast")
    table.to_csv(found / "sales.csv", index=False)
    weft.train_forecast(found / "sales.csv", found / "run", horizon=HORIZON, progress=False)
    return found


@pytest.fixture
def model(folder):
    return weft.load(folder / "run", weft.ForecastPredictor)


def program(*arguments):
    return CliRunner().invoke(weft.cli.app, [str(one) for one in arguments])


def test_the_command_gives_a_table_in_the_format_of_the_input(folder, model):
    done = program("forecast", folder / "run", "--level", "80,99")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == ["unique_id", "ds", "weft", "weft-lo-80", "weft-hi-80", "weft-lo-99", "weft-hi-99"]
    assert [row["ds"] for row in rows[:HORIZON]] == ["2022-01-01", "2022-04-01", "2022-07-01", "2022-10-01"]
    assert [row["unique_id"] for row in rows[::HORIZON]] == [f"shop {number}" for number in range(6)]
    numbers = [[float(row[f"weft{end}"]) for end in ("-lo-99", "-lo-80", "", "-hi-80", "-hi-99")] for row in rows]
    assert all(sorted(row) == row for row in numbers)
    expected = model.forecast(folder / "sales.csv", level=[80, 99])
    assert [float(row["weft"]) for row in rows] == pytest.approx(
        [value for one in expected for value in one.values[:, 0]]
    )


def test_forecasts_are_good_and_intervals_have_a_width(model):
    metrics = model.evaluate()
    assert metrics["mase"] < 0.9
    assert 0.5 < metrics["coverage_80"] <= metrics["coverage_95"]


def test_dataframes_give_dataframes(model, table):
    found = model.forecast(table, level="90")
    assert isinstance(found, pandas.DataFrame)
    assert found.columns.tolist() == ["unique_id", "ds", "weft", "weft-lo-90", "weft-hi-90"]
    assert found["ds"].iloc[0] == pandas.Timestamp("2022-01-01")
    columns = polars.DataFrame(
        {name: table[name].to_numpy() for name in ("ds", "y")} | {"unique_id": list(table["unique_id"])}
    )
    other = model.forecast(columns, level="90")
    assert isinstance(other, polars.DataFrame)
    assert other["weft"].to_list() == pytest.approx(found["weft"].tolist())


def test_a_forecast_depends_on_nothing_after_its_cutoff_and_on_no_other_series(model, table):
    early = table[table["ds"] < "2020-01-01"]
    whole = model.forecast(early)
    alone = model.forecast(early[early["unique_id"] == "shop 2"])
    np.testing.assert_allclose(alone["weft"], whole[whole["unique_id"] == "shop 2"]["weft"], rtol=1e-6)


def test_values_as_json(folder, model):
    series = {"y": [10, 12, 15, 11] * 5 + [None], "start": "2020-01-01", "id": "new"}
    done = program("forecast", folder / "run", json.dumps(series), "--json", "--horizon", "2")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["unique_id"], found["ds"]) == ("new", ["2025-04-01", "2025-07-01"])
    assert found["weft"] == pytest.approx(model.forecast([series], horizon=2)[0].values[:, 0].tolist())
    assert len(model.forecast([[1.0, 2.0, 3.0, 4.0] * 3])[0].times) == HORIZON
    assert json.loads(model.example)["y"]


def test_new_series_may_lack_names_or_have_another_column_of_them(model, table):
    whole = model.forecast(table)
    alone = model.forecast(table[table["unique_id"] == "shop 1"][["ds", "y"]])
    np.testing.assert_allclose(alone["weft"], whole[whole["unique_id"] == "shop 1"]["weft"], rtol=1e-9)
    shops = model.forecast(table.rename(columns={"unique_id": "store"}))
    np.testing.assert_allclose(shops["weft"], whole["weft"], rtol=1e-9)
    with pytest.raises(WeftError, match="column 'y' is not known"):
        model.forecast(table.rename(columns={"y": "sales"}))


def test_a_longer_horizon_feeds_forecasts_back(model):
    short, long = model.forecast(), model.forecast(horizon=11)
    assert len(long[0].times) == 11
    assert (long[0].values[:HORIZON] == short[0].values).all()
    widths = np.subtract(*long[0].intervals["95"][::-1])[:, 0]
    assert widths[HORIZON] > widths[0]


@pytest.mark.parametrize("stop_at", [1, 3])
def test_a_resumed_training_gives_the_same_bits(folder, stop_at, tmp_path):
    config = {"model.horizon": HORIZON}
    for step in weft.start_forecast(folder / "sales.csv", tmp_path / "run", config).trainer.run():
        if step.number == stop_at:
            break
    training = weft.resume_forecast(tmp_path / "run")
    rest = [step.number for step in training.steps()]
    assert rest[-1] == step.total
    for name in (WEIGHTS, CHECKPOINT):
        one, other = load_file(folder / "run" / name), load_file(tmp_path / "run" / name)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one), name


def test_a_resume_in_the_middle_of_a_training(folder, tmp_path):
    training = weft.start_forecast(folder / "sales.csv", tmp_path / "run", {"model.horizon": HORIZON})
    for step in training.trainer.run():
        training.trainer.save()
        if step.number == 3:
            break
    again = weft.resume_forecast(tmp_path / "run")
    assert again.trainer.progress.step == 3
    assert [step.number for step in again.steps()] == list(range(4, step.total + 1))
    one, other = load_file(folder / "run" / WEIGHTS), load_file(tmp_path / "run" / WEIGHTS)
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_evaluation_beside_baselines_on_held_out_and_later_values(folder, model, table):
    done = program("eval", folder / "run")
    assert done.exit_code == 0, done.output
    assert "the best baseline" in done.stdout
    later = sales(length=60)
    later = later[later["ds"] >= "2022-01-01"]
    report = model.evaluation(later)  # 12 steps: three windows
    assert report.record["steps"] == 6 * 12
    assert set(report.record["baselines"]) <= set(BASELINES)
    longer = weft.train_forecast(table, folder / "dev", dev=later, horizon=HORIZON, progress=False)
    assert longer.held_out_metrics()["mase"] == pytest.approx(longer.evaluate(later)["mase"])
    assert longer.forecast()[0].times[0] == "2025-01-01"


def test_a_backtest_knows_nothing_of_what_comes_after(folder, table):
    changed = table.copy()
    last = changed["ds"] >= "2021-01-01"
    changed.loc[last, "y"] = 7.0 * changed.loc[last, "y"]
    runs = [weft.train_forecast(one, folder / f"back{place}", horizon=HORIZON, progress=False)
            for place, one in enumerate((table, changed))]  # fmt: skip
    first, second = (one.backtest(windows=2, against="snaive") for one in runs)
    assert first[0][""].metrics() == pytest.approx(second[0][""].metrics(), rel=1e-9)
    assert first[1][""].metrics() != second[1][""].metrics()
    done = program("backtest", folder / "run", "--windows", "2", "--against", "snaive,ets", "--refit")
    assert done.exit_code == 0, done.output
    assert done.stdout.split("\n")[0].split() == ["window", "weft", "snaive", "ets", "MASE"]


def test_a_backtest_of_a_dataframe_is_one(model, table, tmp_path):
    found = model.backtest(table, windows=2, against="snaive")
    assert list(found) == ["unique_id", "ds", "cutoff", "y", "weft", "weft-lo-80", "weft-hi-80", "weft-lo-95",
                           "weft-hi-95", "snaive"]  # fmt: skip
    assert len(found) == 2 * 6 * HORIZON
    merged = found.merge(table, on=["unique_id", "ds"], suffixes=("", "-true"))
    assert merged["y"].equals(merged["y-true"])
    assert (found["cutoff"] < found["ds"]).all()
    assert sorted(found["cutoff"].dt.strftime("%Y-%m-%d").unique()) == ["2019-10-01", "2020-10-01"]
    both = pandas.DataFrame({"ds": range(30), "load": np.arange(30.0), "heat": np.arange(30.0) ** 2})
    settings = {"data.target": "load,heat", "model.kind": "baselines", "model.season": 1}
    other = weft.train_forecast(both, tmp_path / "both", settings, horizon=2, progress=False)
    found = other.backtest(polars.DataFrame(both.to_dict("list")), windows=1)
    assert isinstance(found, polars.DataFrame)
    assert found["heat"].to_list() == [28.0**2, 29.0**2]
    assert {"load-weft", "load-weft-lo-80", "heat-weft-hi-95"} <= set(found.columns)


def test_known_covariates_help_and_are_needed(tmp_path):
    random = np.random.default_rng(0)
    price = random.uniform(0, 10, 204)
    frame = pandas.DataFrame({"ds": pandas.date_range("2024-01-01", periods=204, freq="D"), "price": price})
    frame["y"] = np.append(50 - 3 * price[:200] + random.normal(0, 0.1, 200), [np.nan] * 4)
    past, future = frame[:200], frame[200:][["ds", "price"]]
    scores = []
    for number, known in enumerate(("", "price")):
        settings = {"data.known": known, "model.kind": "linear", "model.season": 1, "data.target": "y"}
        model = weft.train_forecast(past, tmp_path / str(number), settings, horizon=4, progress=False)
        scores.append(model.evaluate()["mase"])
    assert scores[1] < 0.2 * scores[0]
    found = model.forecast(past, future=future)
    np.testing.assert_allclose(found["weft"], 50 - 3 * price[200:], atol=2)
    with pytest.raises(WeftError, match=r"covariate 'price' .* known for 0 of the 4 steps"):
        model.forecast(past)


@pytest.mark.parametrize("kind", ["linear", "direct", "es-rnn", "recurrent", "ar"])
def test_past_and_static_covariates_help_and_go_along(kind, tmp_path):
    random = np.random.default_rng(0)
    frames = []
    for number in range(8):
        wind, drift = random.normal(size=160), (-1) ** number
        noise = random.normal(0, 0.2, 160)
        y = np.cumsum(0.5 * drift + np.append(0.0, 3 * wind[:-1]) + noise)  # the wind of yesterday, and a trend by kind
        days = pandas.date_range("2024-01-01", periods=160, freq="D")
        kinds = "up" if drift > 0 else "down"
        frames.append(pandas.DataFrame({"unique_id": f"s{number}", "ds": days, "y": y, "wind": wind, "kind": kinds}))
    frame, scores = pandas.concat(frames, ignore_index=True), []
    for columns in (["unique_id", "ds", "y"], list(frame)):
        settings = {"model.kind": kind, "model.season": 1, "model.lags": 4, "model.hidden_size": 16, "train.epochs": 6}
        model = weft.train_forecast(frame[columns], tmp_path / str(len(columns)), settings, horizon=1, progress=False)
        found = model.backtest(windows=12)
        scores.append(np.mean([one[""].score() for one in found]))
    assert scores[1] < 0.5 * scores[0]
    assert len(model.forecast(horizon=3)[0].values) == 3  # beyond the horizon the wind stays as it was
    values = {"y": frame["y"][:160].tolist(), "past": frame["wind"][:160].tolist(), "static": ["up"]}
    values["start"] = "2024-01-01"
    (alone,) = model.forecast([values])
    np.testing.assert_allclose(alone.values, model.forecast()[0].values, rtol=1e-6)
    with pytest.raises(WeftError, match="column 'wind' is not known"):
        model.forecast(frame[["unique_id", "ds", "y", "kind"]])


@pytest.mark.parametrize("kind", ["hmm", "baselines"])
def test_kinds_that_read_no_covariates_say_so(kind, tmp_path):
    text = "ds,y,wind\n" + "".join(f"2024-01-{day:02},{day % 7},{day % 5}\n" for day in range(1, 32))
    (tmp_path / "days.csv").write_text(text, encoding="utf-8")
    options = ["--data", tmp_path / "days.csv", "--set", f"model.kind={kind}", "--out", tmp_path / "run"]
    done = program("train", "forecast", *options, "--horizon", "2")
    assert done.exit_code == 0, done.output
    assert f"model.kind={kind} reads no covariates: wind is left out" in done.stderr


def test_series_that_are_never_negative_stay_so_and_counts_are_whole(tmp_path):
    random = np.random.default_rng(0)
    rows = [random.poisson(0.7, 60).astype(float) for _ in range(4)]
    model = weft.train_forecast(rows, tmp_path / "run", {"model.season": 7}, horizon=7, progress=False)
    for one in model.forecast():
        for values in (one.values, *one.intervals["95"]):
            assert (values >= 0).all()
            assert (values == np.round(values)).all()


@pytest.mark.parametrize(
    "rows",
    [
        [np.full(30, 5.0)],
        [np.arange(3.0), np.array([2.0])],
        [np.append(np.arange(30.0), [np.nan] * 20)],
        [np.zeros(40), np.resize([0.0, 0.0, 3.0], 40)],
    ],
    ids=["constant", "few", "missing at the end", "zeros"],
)
def test_unusual_series_are_forecast(rows, tmp_path):
    model = weft.train_forecast(rows, tmp_path / "run", horizon=2, progress=False)
    for one in model.forecast():
        assert np.isfinite(one.values).all()
        low, high = one.intervals["95"]
        assert (low <= one.values).all()
        assert (one.values <= high).all()


def test_mistakes_are_named(folder, model, tmp_path):
    with pytest.raises(WeftError, match=r"the horizon is 500 steps, and the longest series has 48"):
        weft.train_forecast(folder / "sales.csv", tmp_path / "run", horizon=500)
    assert not (tmp_path / "run").exists()
    with pytest.raises(WeftError, match="all values are missing"):
        weft.train_forecast([np.full(9, np.nan)], tmp_path / "run", horizon=1)
    with pytest.raises(WeftError, match="percent between 0 and 100"):
        parse_levels("80,120")
    with pytest.raises(WeftError, match="too few for these windows"):
        model.backtest(windows=40)
    with pytest.raises(WeftError, match=r"'snaiv' is not known.*snaive"):
        model.backtest(against="snaiv")
    with pytest.raises(WeftError, match="expected every quarter"):
        model.forecast(
            pandas.DataFrame({"unique_id": "a", "ds": pandas.date_range("2024", periods=9, freq="MS"), "y": 1.0})
        )


@pytest.fixture(scope="module")
def client(folder):
    with TestClient(Server({"sales": folder / "run"}, ServerConfig()).app, base_url="http://localhost") as client:
        yield client


def ask(client, texts, **options):
    """The status and the body of a request; texts may be JSON as it is sent."""
    sent = texts if isinstance(texts, str) else json.dumps(texts)
    body = f'{{"texts": [{sent}], "options": {json.dumps(options)}}}'
    answer = client.post("/weft/predict/sales", content=body, headers={"Content-Type": "application/json"})
    return answer.status_code, answer.json()


STEPS = {"y": list(range(1, 25)), "start": "2020-01-01"}


@pytest.mark.parametrize(
    ("series", "options", "message"),
    [
        (STEPS, {"horizon": 2000}, "horizon of 2,000; expected at most 20,000 values with a horizon of 4"),
        ({"y": [1, 2] * 10_000}, {}, "series of 20,000 values and a horizon of 4; expected at most 20,000"),
        ([1] * 50_000, {}, "a text has 150,000 characters"),
        (STEPS, {"level": ",".join(str(number / 2) for number in range(1, 100))}, "99 intervals; expected at most 20"),
        (STEPS, {"level": "9" * 10_000}, "the level is '999"),
        ('{"y": [1e61, 1, 2, 3, 4]}', {}, "is 1e+61; expected numbers up to 1e+60"),
        (f'{{"y": [{"9" * 400}, 1, 2, 3, 4]}}', {}, "y is [999"),
        ('{"y": [1e999, 1]}', {}, "is inf; expected a number"),
        ('{"y": [["a"], 1]}', {}, "expected a number"),
        (f"{'[' * 500}1{']' * 500}", {}, "expected a number"),
        ({**STEPS, "static": 5}, {}, "static is 5; expected a list"),
        ({**STEPS, "freq": f"{'9' * 5000}D"}, {}, "expected at least one step"),
        ({**STEPS, "start": "9999-07-01"}, {}, "times go beyond the years 1 to 9999"),
        ({**STEPS, "start": "1" * 9000}, {}, "is not a time"),
        (STEPS, {"future": "/etc/passwd"}, "'future' is not known"),
    ],
)  # fmt: skip
def test_hostile_requests_to_a_forecaster(client, series, options, message):
    status, body = ask(client, series, **options)
    assert status == 400
    assert message in body["error"]["message"]
    assert len(body["error"]["message"]) < 400


def test_a_forecast_does_not_depend_on_the_other_series_of_its_batch(client):
    (alone,), (named,) = (ask(client, one)[1]["results"] for one in (STEPS, {**STEPS, "id": "a"}))
    assert "unique_id" not in alone
    assert named == {"unique_id": "a", **alone}
    both = ask(client, f"{json.dumps(STEPS)}, {json.dumps({**STEPS, 'id': 'a'})}")[1]["results"]
    assert [list(one) for one in both] == [list(alone), list(named)]
    for name in alone:
        assert both[0][name] == pytest.approx(alone[name]) if name != "ds" else both[0][name] == alone[name]


def test_values_at_the_limit_give_numbers(model):
    for values in ([1e60, -1e60, 3.0] * 8, [1e60] * 24, [5e-324, 0.0] * 12):
        (found,) = model.forecast([values])
        assert np.isfinite(found.values).all()


@pytest.mark.parametrize("name", ["horizon", "season"])
def test_settings_that_were_never_chosen_are_refused(folder, tmp_path, name):
    shutil.copytree(folder / "run", tmp_path / "run")
    content = read_json(tmp_path / "run" / CONFIG)
    content["config"]["model"][name] = AUTO
    write_json(
        tmp_path / "run" / CONFIG,
        {key: part for key, part in content.items() if key not in ("format", "weft", "sha256")},
    )
    with pytest.raises(WeftError, match=r"config\.json is damaged"):
        TASK.resume(open_run(tmp_path / "run"))


def test_a_damaged_model_is_refused(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / WEIGHTS).write_bytes(b"x" * 100)
    with pytest.raises(WeftError):
        weft.load(tmp_path / "run")
