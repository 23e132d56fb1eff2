"""Forecasts over HTTP: values in, forecasts out, and what a client may get wrong."""

from __future__ import annotations

import concurrent.futures

import numpy as np
import pytest

import weft
from tests.serving import served

HORIZON = 4
WAVE = (20 + 5 * np.sin(np.arange(48) * np.pi / 6)).round(3).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs without covariates, with one known in advance, and with two channels."""
    found = tmp_path_factory.mktemp("served")
    months = [f"{2015 + month // 12}-{month % 12 + 1:02}-01" for month in range(48)]
    table = {"ds": months, "y": WAVE, "price": [round(2 + month % 5 / 3, 3) for month in range(48)]}
    for name, settings in (
        ("plain", {"data.past": "", "data.target": "y"}),
        ("priced", {"data.known": "price"}),
        ("both", {"data.target": "y,price"}),
    ):
        used = {key: table[key] for key in ("ds", "y")} if name == "plain" else table
        settings = {**settings, "model.horizon": HORIZON, "model.kind": "linear"}
        weft.train("forecast", used, found / name, settings, progress=False)
    return found


@pytest.fixture(scope="module")
def server(folder):
    with served(*(folder / name for name in ("plain", "priced", "both"))) as found:
        yield found


def forecast(server, model, *series, **options):
    return server.ask(f"/weft/predict/{model}", {"texts": list(series), "options": options})


def test_values_get_a_forecast(server, folder):
    series = {"y": WAVE, "start": "2020-01-01", "id": "new"}
    answer = forecast(server, "plain", series, horizon=6, level="90")
    assert answer.status == 200, answer.body
    (first,) = answer.body["results"]
    (second,) = forecast(server, "plain", WAVE, horizon=6, level="90").body["results"]
    model = weft.load(folder / "plain")
    (expected,) = model.forecast([series], horizon=6, level="90")
    assert first == expected.to_json()
    assert list(first) == ["unique_id", "ds", "weft", "weft-lo-90", "weft-hi-90"]
    assert first["ds"][:2] == ["2024-01-01", "2024-02-01"]
    assert second == model.forecast([WAVE], horizon=6, level="90")[0].to_json()
    assert second["ds"] == ["48", "49", "50", "51", "52", "53"]
    assert first["weft"] == pytest.approx(second["weft"])


def test_an_answer_does_not_depend_on_other_requests(server):
    asked = [WAVE[:place] for place in range(30, 48)] + [{"y": WAVE, "start": "2020-01-01"}]
    alone = [forecast(server, "plain", one).body for one in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as threads:
        together = list(threads.map(lambda one: forecast(server, "plain", one).body, asked))
    for one, other in zip(together, alone, strict=True):
        (found,), (expected,) = one["results"], other["results"]
        assert found.keys() == expected.keys()
        assert found["ds"] == expected["ds"]
        assert found["weft"] == pytest.approx(expected["weft"])


def test_covariates_and_channels(server):
    known = [2 + month % 5 / 3 for month in range(48 + HORIZON)]
    assert forecast(server, "priced", {"y": WAVE, "known": known}).status == 200
    (found,) = forecast(server, "both", {"y": [[one, 2.0] for one in WAVE]}).body["results"]
    assert {"y", "price", "price-lo-80"} <= set(found)


@pytest.mark.parametrize(
    ("model", "series", "options", "message"),
    [
        ("plain", "a text", {}, "inputs[0]"),
        ("plain", {"values": WAVE}, {}, "inputs[0]"),
        ("plain", {"y": WAVE, "price": WAVE}, {}, "price"),
        ("plain", [], {}, "inputs[0]"),
        ("plain", [1, "two", 3], {}, "inputs[0]"),
        ("plain", {"y": [[1, 2], [3, 4], [5, 6]]}, {}, "2 channels"),
        ("plain", {"y": [None] * 9}, {}, "missing"),
        ("plain", {"y": WAVE, "start": "yesterday"}, {}, "yesterday"),
        ("plain", {"y": WAVE, "known": WAVE}, {}, "known covariates"),
        ("both", {"y": [[1, 2], [3], [5, 6]]}, {}, "y"),
        ("priced", {"y": WAVE}, {}, "price"),
        ("priced", {"y": WAVE, "known": WAVE}, {}, "covariate 'price' of the series is known for 0 of the 4 steps"),
        ("plain", WAVE, {"horizon": 0}, "horizon"),
        ("plain", WAVE, {"level": "80,120"}, "percent between 0 and 100"),
        ("plain", WAVE, {"colour": 1}, "colour"),
    ],
)
def test_mistakes_are_named(server, model, series, options, message):
    answer = forecast(server, model, series, **options)
    assert answer.status == 400, answer.body
    assert message in str(answer.body)


def test_a_look_at_a_table(server):
    table = "ds,y\n" + "".join(f"2015-{month % 12 + 1:02}-01,{value}\n" for month, value in enumerate(WAVE[:12]))
    answer = server.ask("/weft/look/plain/forecast/figures", {"text": table, "options": {"horizon": 3}, "width": 500})
    assert answer.status == 200, answer.body
    (found,) = answer.body["results"]
    assert found["times"][-3:] == ["2016-01-01", "2016-02-01", "2016-03-01"]
    assert answer.body["figures"][0]["bands"][0]["name"] == "95%"
    wrong = server.ask("/weft/look/plain/forecast", {"text": "ds,y\n2015-01-01,1\n2015-02-01,x\n2015-03-01,2\n"})
    assert wrong.status == 400
    assert "the table:3" in str(wrong.body)
    refused = server.ask("/weft/look/plain/forecast", {"options": {"data": "/etc/passwd"}})
    assert refused.status == 400
