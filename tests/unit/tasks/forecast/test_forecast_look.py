"""What one sees of forecasters: the probe, its figures in a file and in a terminal."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weft
from tests.program import fails, succeeds
from weft import probes
from weft.errors import WeftError

HORIZON, SEASON, LENGTH = 6, 12, 72


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Monthly series of two shops, one with a gap, and a run that is trained on them."""
    found = tmp_path_factory.mktemp("look")
    random, lines = np.random.default_rng(0), ["unique_id,ds,y"]
    for name, size in (("north", 1.0), ("south", 3.0)):
        for month in range(LENGTH):
            value = size * (50 + month / 3 + 8 * np.sin(month * np.pi / 6) + random.normal(0, 1))
            cell = "" if name == "south" and month in (50, 51) else f"{value:.2f}"
            lines.append(f"{name},{2015 + month // 12}-{month % 12 + 1:02}-01,{cell}")
    (found / "shops.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    weft.train_forecast(found / "shops.csv", found / "run", horizon=HORIZON, progress=False)
    return found


@pytest.fixture(scope="module")
def model(folder):
    return weft.load(folder / "run", weft.ForecastPredictor)


def test_the_probe_shows_what_the_model_forecasts(folder, model):
    found = probes.forecast(model, series="south", baselines="snaive,theta")
    forecast = model.forecast()[1]
    np.testing.assert_allclose(found.forecast, forecast.values[:, 0])
    np.testing.assert_allclose(found.intervals["80"], [end[:, 0] for end in forecast.intervals["80"]])
    assert list(found.intervals) == ["95", "80"]  # the widest first
    assert found.times[-HORIZON:] == forecast.times
    assert (found.ids, found.id, list(found.baselines)) == (("north", "south"), "south", ["snaive", "theta"])
    np.testing.assert_allclose(found.baselines["snaive"], found.history[-SEASON:][:HORIZON])
    assert sum(found.weights.values()) == pytest.approx(1)
    assert np.isnan(found.history).sum() == 2
    rows = list(found.records())
    assert len(rows) == len(found.times)
    assert rows[-1]["weft"] == found.forecast[-1]
    assert rows[0]["value"] == found.history[0]


def test_earlier_forecasts_are_those_from_earlier_cutoffs(model):
    found = probes.forecast(model)
    end = len(found.history)
    before = model.history.series[0].target[:-HORIZON, 0]
    quantiles = model.held_out.quantiles(weft.tasks.forecast.model.SeriesRows([before]))
    np.testing.assert_allclose(found.earlier[end - HORIZON :], quantiles[0, :, quantiles.shape[2] // 2])
    np.testing.assert_allclose(found.residuals, found.history - found.earlier)


def test_a_table_or_json_as_text_is_the_same_as_a_file(folder, model):
    table = (folder / "shops.csv").read_text(encoding="utf-8")
    one, other = probes.forecast(model, table, series="south"), probes.forecast(model, data=folder / "shops.csv")
    np.testing.assert_allclose(one.forecast, probes.forecast(model, series="south").forecast)
    assert any("target 'y'" in line for line in one.reading)
    assert other.id == "north"
    assert not probes.forecast(model).reading
    values = [None if np.isnan(value) else value for value in probes.forecast(model).history.tolist()]
    told = probes.forecast(model, json.dumps({"y": values, "start": probes.forecast(model).times[0]}))
    assert told.times == probes.forecast(model).times


def test_figures_have_bands_dates_and_gaps(model):
    fan, earlier, residuals, weights = probes.forecast(model, series="south", steps=40).figures()
    assert [band.name for band in fan.bands] == ["95%", "80%"]
    assert fan.dates[0] == "2017-09-01T00:00:00"
    assert [curve.name for curve in fan.curves][-2:] == ["history", "forecast"]
    svg = weft.pictures.to_svg(fan)
    assert svg.count("fill-opacity") == 2 + 3  # two bands, their key
    assert svg.count('class="line6"') == 1
    history = next(part for part in svg.split("<path") if 'class="line6"' in part)
    assert history.count("M") == 2  # a piece on each side of the gap
    assert ">2019-01<" in svg
    assert [curve.name for curve in earlier.curves] == ["history", "forecast"]
    assert len(residuals.curves[1].x) <= 40
    assert weights.names[0] == next(iter(probes.forecast(model).weights))


def test_anomalies_are_dots_outside_of_the_band(model):
    values = [None if np.isnan(value) else float(value) for value in model.history.series[0].target[:, 0]]
    values[50] = 3 * values[49]
    found = probes.forecast(model, json.dumps({"y": values}), rate=0.01, steps=40)
    expected = model.anomalies([{"y": values}], rate=0.01)[0]
    assert found.anomalies["anomaly"].tolist() == expected.anomalies[-40:].tolist()
    assert found.anomalies["anomaly"][50 - len(values) + 40] == 1
    figure = next(one for one in found.figures() if one.title.startswith("Anomalies"))
    history, dots = figure.curves
    assert dots.x.tolist() == np.flatnonzero(found.anomalies["anomaly"]).tolist()
    assert weft.pictures.to_svg(figure).count("<circle") == len(dots.x)
    band = figure.bands[0]
    assert history.y[18] > band.high[band.x.tolist().index(18)]


def test_the_command(folder, tmp_path):
    shown = succeeds(
        "look", folder / "run", "--data", folder / "shops.csv", "--series", "south", "--level", "90"
    ).stdout
    assert "# Forecast of south" in shown
    assert "forecast\t2021-01-01\t" in shown
    assert "90%\t2021-01-01\t" in shown
    succeeds("look", folder / "run", "--out", tmp_path / "look.html")
    assert "Forecast of north" in (tmp_path / "look.html").read_text(encoding="utf-8")
    (found,) = json.loads(succeeds("look", folder / "run", "--show", "forecast", "--horizon", "3", "--json").stdout)
    assert len(found["forecast"]) == 3


def test_mistakes_are_named(folder, model):
    assert "the series 'nort' is not known" in fails("look", folder / "run", "--series", "nort")
    with pytest.raises(WeftError, match="baseline"):
        probes.forecast(model, baselines="snaiv")
    with pytest.raises(WeftError, match="is no JSON"):
        probes.forecast(model, '{"y": [1, 2')
    with pytest.raises(WeftError, match=r"the table:3"):
        probes.forecast(model, "unique_id,ds,y\na,2020-01-01,1\na,2020-02-01,x\na,2020-03-01,5\n")
    with pytest.raises(WeftError, match="forecast"):
        probes.surprisal(model, "the cat")
