"""A metric brings its name, unit and direction: a task whose loss is an absolute error says nothing of likelihoods."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.elsewhere import FILES, importable, write_package
from weft.metrics import MEAN_ABSOLUTE_ERROR, PERPLEXITY, Metric
from weft.pictures import to_svg
from weft.tasks import get_task
from weft.tasks.curves import curve_figures
from weft.tasks.runs import compare_run_results, metric_curves, summarize_run
from weft.training.run import open_run
from weft.training.step import Evaluation, Progress
from weft.tuning import tune

LIKELIHOOD = {"perplexity", "nats", "nat", "entropy", "likelihood", "cross", "token", "tokens"}
SETTINGS = {"train.epochs": 20, "train.evaluate_every": 5, "model.hidden_size": 8}
UNITS = {
    "import MEAN_ABSOLUTE_ERROR": "import Metric",
    'MEAN_ABSOLUTE_ERROR.of("step")': 'Metric("error", "volts", "step")',
    "loss=ERROR": 'loss=Metric("absolute_error", per="step")',
}


@pytest.fixture
def series(tmp_path):
    """Series of two channels, and the task of the architecture page that averages them, with an error in volts."""
    code = FILES["running_mean.py"]
    for old, new in UNITS.items():
        assert old in code
        code = code.replace(old, new)
    write_package(tmp_path, "running_mean", {"running_mean": "running_mean:TASK"}, code)
    random = np.random.default_rng(0)
    with importable(tmp_path, "running_mean"):
        yield [random.normal(random.normal(), 0.3, (5, 2)) for _ in range(40)]


def words_of(*texts):
    return {*re.findall(r"[a-z]+", " ".join(texts).lower())}


def test_a_task_with_an_absolute_error(series, tmp_path, capsys):
    runs = [tmp_path / name for name in ("one", "two")]
    for seed, run in enumerate(runs):
        get_task("running_mean").train(series, run, {**SETTINGS, "train.seed": seed})
    shown = capsys.readouterr().err
    assert re.search(r"loss \d\.\d{3}, held-out error \d\.\d{3} volts\*  \d+k? steps/s", shown), shown
    curves = [metric_curves(run) for run in runs]
    assert curves[0]["error"].label == "volts per step"
    assert curves[0]["train_absolute_error"].label == "absolute_error"
    pictures = "".join(map(to_svg, curve_figures(curves)))
    assert "volts per step" in pictures
    summary = summarize_run(runs[0])
    assert summary.metric == "error"
    compared = compare_run_results([str(run) for run in runs])
    found = tune("running_mean", series, tmp_path / "tuned", SETTINGS, trials=2)
    study = found.picture.read_text(encoding="utf-8")
    assert "held-out error, volts" in study
    assert found.best.score == min(trial.score for trial in found.trials)
    texts = [shown, pictures, study, json.dumps(summary.to_dict()), json.dumps(compared.to_dict())]
    texts += [(runs[0] / name).read_text() for name in ("config.json", "metrics.jsonl")]
    assert not words_of(*texts) & LIKELIHOOD


def test_a_run_says_what_it_is_measured_by(series, tmp_path):
    run = get_task("running_mean").start(series, tmp_path / "run", SETTINGS).run
    assert run.metric == Metric("error", "volts", "step")
    assert run.loss == Metric("absolute_error", per="step")
    opened = open_run(tmp_path / "run")
    assert (opened.metric, opened.loss) == (run.metric, run.loss)


def test_the_direction_selects_the_best():
    for higher, better in ((False, 1.0), (True, 3.0)):
        metric, progress = Metric("x", higher_is_better=higher), Progress()
        progress.add_best(Evaluation.by(metric, {"x": 2.0}))
        assert progress.is_best(Evaluation.by(metric, {"x": better}))
        assert not progress.is_best(Evaluation.by(metric, {"x": 4.0 - better}))


@pytest.mark.parametrize("metric", [PERPLEXITY, MEAN_ABSOLUTE_ERROR, Metric("f1", "%", "day", higher_is_better=True)])
def test_a_metric_as_json(metric):
    assert Metric.from_json(json.loads(json.dumps(metric.to_json()))) == metric
    for damaged in (None, {}, {**metric.to_json(), "unit": 3}, {**metric.to_json(), "x": 1}):
        with pytest.raises(ValueError, match="not a metric"):
            Metric.from_json(damaged)
