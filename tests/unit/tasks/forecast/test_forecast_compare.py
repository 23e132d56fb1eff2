"""Forecasters side by side: paired tests over series, backtests as pictures, the search for settings."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weft
from tests.program import fails, succeeds
from weft.errors import WeftError
from weft.tasks.forecast.backtest import backtest_figures
from weft.tasks.runs import compare_run_results

HORIZON, SEASON, SERIES = 4, 4, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of several kinds on quarterly series of a trend, which a seasonal naive forecast does not see."""
    found = tmp_path_factory.mktemp("compare")
    random, lines = np.random.default_rng(0), ["unique_id,ds,y"]
    for number in range(SERIES):
        pattern = random.uniform(0, 9, SEASON)
        for quarter in range(40):
            value = 50 + 2 * quarter + pattern[quarter % SEASON] + random.normal(0, 0.5)
            lines.append(f"s{number},{2010 + quarter // 4}-{3 * (quarter % 4) + 1:02}-01,{value:.3f}")
    (found / "series.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for kind in ("linear", "baselines"):
        settings = {"model.kind": kind}
        weft.train_forecast(found / "series.csv", found / kind, settings, horizon=HORIZON, progress=False)
    weft.train_forecast(found / "series.csv", found / "longer", {"model.kind": "linear"}, horizon=6, progress=False)
    return found


def test_statistics_of_series_are_those_of_the_evaluation(folder):
    model = weft.load(folder / "linear")
    for statistics in model.held_out_statistics():
        assert statistics.sums.shape == (SERIES, 2)
        assert float(statistics.score(statistics.sums.sum(0))) == pytest.approx(model.evaluate()[statistics.metric])


def test_runs_are_compared_by_a_paired_test_over_series(folder):
    found = compare_run_results([folder / "linear", folder / "baselines"])
    assert found.settings["model.kind"] == ("linear", "baselines")
    assert [(test.metric, test.unit, test.examples) for test in found.tests] == [
        ("mase", "series", SERIES),
        ("scaled_crps", "series", SERIES),
    ]
    scores = [weft.load(folder / name).evaluate()["mase"] for name in ("linear", "baselines")]
    assert found.tests[0].difference == pytest.approx(scores[1] - scores[0])
    assert found.tests[0].better == ("first" if scores[1] > scores[0] else "second")
    other = compare_run_results([folder / "linear", folder / "longer"])
    assert not other.tests
    assert "held-out data differs" in other.notes[0]
    assert (
        "12 held-out examples (one is a series)" in succeeds("compare", folder / "linear", folder / "baselines").stdout
    )


def test_an_evaluation_against_baselines_and_runs(folder):
    done = succeeds("eval", folder / "linear", "--against", "snaive,ets", "--against", folder / "baselines", "--json")
    record = json.loads(done.stdout)
    assert [one["name"] for one in record["compared"]] == ["snaive", "ets", str(folder / "baselines")]
    naive = record["compared"][0]["mase"]
    assert naive["score"] + naive["difference"] == pytest.approx(record["mase"])
    assert naive["high"] < 0
    assert naive["p_value"] < 0.01
    shown = succeeds("eval", folder / "linear", "--data", folder / "series.csv", "--against", "snaive").stdout
    assert "better" in shown
    assert "over 12 series" in shown


def test_what_cannot_be_compared_is_refused(folder):
    assert "forecasts 6 steps" in fails("eval", folder / "linear", "--against", folder / "longer")
    model = weft.load(folder / "linear")
    with pytest.raises(WeftError, match="other"):
        model.evaluation(against=("other",))


def test_a_backtest_is_drawn(folder, tmp_path):
    file = tmp_path / "backtest.json"
    options = ["--windows", "3", "--step", "2", "--against", "snaive", "--keep", "2"]
    succeeds("backtest", folder / "linear", *options, "--json", "--out", file)
    record = json.loads(file.read_text(encoding="utf-8"))
    assert [one["id"] for one in record["forecasts"]] == ["s0", "s1"]
    (figure, _) = backtest_figures(record)
    assert [curve.name for curve in figure.curves] == ["snaive", "truth", "forecast"]
    forecast = figure.curves[2]
    assert forecast.x.tolist() == [8, 9, 10, 11, 12, 13, 14, 15]  # two of each of the first windows, all of the last
    windows = record["forecasts"][0]["windows"]
    assert forecast.y.tolist() == [*windows[0]["forecasts"]["forecast"][:2], *windows[1]["forecasts"]["forecast"][:2],
                                   *windows[2]["forecasts"]["forecast"]]  # fmt: skip
    errors = [abs(windows[2]["forecasts"]["snaive"][step] - record["forecasts"][0]["values"][12 + step])
              for step in range(4)]  # fmt: skip
    assert max(errors) < 30
    succeeds("plot", file, "--out", tmp_path / "backtest.svg")
    assert "Backtest of s1, 3 cutoffs" in (tmp_path / "backtest.svg").read_text(encoding="utf-8")
    assert "truth\t2018-01-01\t" in succeeds("plot", file).stdout


def test_a_file_that_is_no_backtest_is_refused(folder, tmp_path):
    for text in ("{", "[]", '{"forecasts": [{"values": 3}]}', '{"forecasts": [3]}'):
        (tmp_path / "wrong.json").write_text(text, encoding="utf-8")
        assert "weft backtest" in fails("plot", tmp_path / "wrong.json")
    assert "such files alone" in fails("plot", tmp_path / "wrong.json", folder / "linear")


def test_the_search_for_settings(folder, tmp_path):
    pytest.importorskip("optuna")
    shown = succeeds("tune", "forecast", "--data", folder / "series.csv", "--out", tmp_path / "tuned", "--trials", "2",
                     "--set", f"model.horizon={HORIZON}")  # fmt: skip
    assert "mase" in shown.stdout + shown.stderr
    assert np.isfinite(weft.load(tmp_path / "tuned" / "best").evaluate()["mase"])


def test_members_are_refused(folder, tmp_path):
    message = fails("train", "forecast", "--data", folder / "series.csv", "--out", tmp_path / "run", "--members", "3")
    assert "--members" in message
    assert not (tmp_path / "run").exists()
