"""The probes of networks on those of forecasters: their steps are named by times."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weft
from tests.program import fails, succeeds
from weft import probes
from weft.errors import WeftError
from weft.server.look import supported

HORIZON, HIDDEN = 4, 5
VALUES = [round(50 + 8 * np.sin(month * np.pi / 6) + month % 5, 2) for month in range(60)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inside")
    months = [f"{2015 + month // 12}-{month % 12 + 1:02}-01" for month in range(60)]
    for kind in ("recurrent", "direct", "linear"):
        settings = {"model.kind": kind, "model.hidden_size": HIDDEN, "train.epochs": 1}
        table = {"ds": months, "y": VALUES}
        weft.train_forecast(table, folder / kind, settings, horizon=HORIZON, progress=False)
    return folder


@pytest.fixture(params=["recurrent", "direct"])
def model(request, runs):
    return weft.load(runs / request.param, weft.ForecastPredictor)


def test_gates_over_the_dates(model):
    (layer,) = probes.activations(model, "").layers
    T = len(layer.steps)
    assert {name: values.shape for name, values in layer.gates.items()} == dict.fromkeys("rzn", (T, HIDDEN))
    if model.run.config["model"]["kind"] == "recurrent":  # a step is a month
        assert layer.steps[-1] == "2019-12-01"
        assert layer.steps[-13] == "2018-12-01"
    else:  # a step is a season
        assert layer.steps[-1] == "2019-01-01"
        assert layer.steps[-2] == "2018-01-01"


def test_gradients_through_the_dates(model):
    (layer,) = probes.gradient_flow(model, "").layers
    norms = layer.states["h"]
    direct = model.run.config["model"]["kind"] == "direct"
    assert norms.shape == (HORIZON if direct else len(layer.steps), len(layer.steps))
    if not direct:  # the loss of a step does not depend on later ones
        assert np.nanmax(np.triu(norms, 1), initial=0.0) == 0
    assert np.nanmax(norms) > 0
    assert probes.step_jacobians(model, "")[0].norm.min() > 0
    assert probes.connectivity(model, "").figures()
    with pytest.raises(WeftError, match="predicts values"):
        probes.evidence(model, "")


def test_a_series_of_its_own(model):
    text = json.dumps({"y": VALUES[:48], "start": "2020-01-01"})
    layer = probes.activations(model, text).layers[0]
    assert layer.steps[-1] == ("2023-12-01" if len(layer.steps) > 10 else "2023-01-01")
    assert {"forecast", "gates", "gradient", "connectivity"} <= set(supported(model, model.example))


def test_the_command(runs):
    assert "2019-12-01" in succeeds("look", runs / "recurrent", "", "--show", "gates").stdout
    message = fails("look", runs / "linear", "", "--show", "gates")
    assert "combines forecasters without recurrent layers" in message
