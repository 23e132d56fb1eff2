"""A metric brings its name, unit and direction: a task whose loss is an absolute error says nothing of likelihoods."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.checks import check_metric
from tests.unit.test_task import TOY
from weft.metrics import MEAN_ABSOLUTE_ERROR, PERPLEXITY, AbsoluteError, Metric
from weft.pictures import to_svg
from weft.tasks import TASKS, get_task
from weft.tasks.curves import curve_figures
from weft.tasks.runs import compare_run_results, metric_curves, summarize_run
from weft.training.run import open_run
from weft.training.step import Evaluation, Progress
from weft.tuning import tune

LIKELIHOOD = {"perplexity", "nats", "nat", "entropy", "likelihood", "cross", "token", "tokens"}
WORDS = ["apple", "bee", "sky", "ocean", "tree", "audio", "hymn", "idea", "stone", "queue", "lamp", "radio"]
SETTINGS = {"train.epochs": 20, "train.evaluate_every": 5}
SEARCH = """
from weft.training.search_space import Range
VowelsConfig.search_space = {"train.learning_rate": Range(0.001, 0.1, log=True)}
"""


@pytest.fixture
def words(tmp_path, monkeypatch):
    """The file of the words; the task of the architecture page is `vowels`, its loss a mean absolute error."""
    (tmp_path / "vowels").mkdir()
    (tmp_path / "vowels" / "__init__.py").touch()
    for name, source in {**TOY, "config.py": TOY["config.py"] + SEARCH}.items():
        changed = source.replace("- targets).square().sum()", "- targets).abs().sum()").replace("squared", "absolute")
        (tmp_path / "vowels" / name).write_text(changed, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [name for name in sys.modules if name.partition(".")[0] == "vowels"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(TASKS, "vowels", "vowels")
    (tmp_path / "words.txt").write_text("\n".join(WORDS * 4), encoding="utf-8")
    yield str(tmp_path / "words.txt")
    for module in [name for name in sys.modules if name.partition(".")[0] == "vowels"]:
        del sys.modules[module]


def words_of(*texts):
    return {*re.findall(r"[a-z]+", " ".join(texts).lower())}


def test_a_task_with_an_absolute_error(words, tmp_path, capsys):
    runs = [tmp_path / name for name in ("one", "two")]
    for seed, run in enumerate(runs):
        get_task("vowels").train(words, run, {**SETTINGS, "train.seed": seed})
    shown = capsys.readouterr().err
    assert re.search(r"loss \d\.\d{3}, held-out error \d\.\d{3} vowels\*  \d+k? words/s", shown), shown
    curves = [metric_curves(run) for run in runs]
    assert curves[0]["error"].label == "vowels per word"
    assert curves[0]["train_absolute_error"].label == "absolute_error"
    pictures = "".join(map(to_svg, curve_figures(curves)))
    assert "vowels per word" in pictures
    summary = summarize_run(runs[0])
    assert summary.metric == "error"
    compared = compare_run_results([str(run) for run in runs])
    found = tune("vowels", words, tmp_path / "tuned", SETTINGS, trials=2)
    study = found.picture.read_text(encoding="utf-8")
    assert "held-out error, vowels" in study
    assert found.best.score == min(trial.score for trial in found.trials)
    texts = [shown, pictures, study, json.dumps(summary.to_dict()), json.dumps(compared.to_dict())]
    texts += [(runs[0] / name).read_text() for name in ("config.json", "metrics.jsonl")]
    assert not words_of(*texts) & LIKELIHOOD


def test_a_run_says_what_it_is_measured_by(words, tmp_path):
    run = get_task("vowels").start(words, tmp_path / "run", SETTINGS).run
    assert run.metric == Metric("error", "vowels", "word")
    assert run.loss == Metric("absolute_error", per="word")
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


def test_absolute_errors_add_up():
    check_metric(AbsoluteError(12.0, 9), [AbsoluteError(2.0, 4), AbsoluteError(7.0, 2), AbsoluteError(3.0, 3)])
    assert AbsoluteError(2.0, 4).signature("day") == "mean_absolute_error|per:day|values:4"
