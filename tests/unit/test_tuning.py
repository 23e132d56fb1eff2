"""Hyper-parameter search: what a study keeps, how it continues, and when it stops a trial."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

import weft
from tests.program import fails, succeeds
from weft.config import AUTO, load_config
from weft.tasks import TASKS, get_task
from weft.text.corpus import Corpus
from weft.training.search_space import Choice, names_of
from weft.training.step import Evaluation
from weft.training.study import open_study, process_lock, take_over

optuna = pytest.importorskip("optuna")
from weft import tuning  # noqa: E402

TEXT = Corpus.from_texts("text", ["the cat sat on the mat and the dog sat on the cat. " * 60])


@pytest.mark.parametrize("task", TASKS)
def test_every_point_of_a_search_space_is_a_valid_setting_and_the_default_is_in_it(task):
    config, space = get_task(task).config_class, tuning.search_space(task)
    defaults = load_config(config)
    for key, way in space.items():
        ends = way.values if isinstance(way, Choice) else (way.low, way.high)
        for value in ends:
            load_config(config, sets=dict.fromkeys(names_of(key), value))
        section, name = names_of(key)[0].split(".")
        default = getattr(getattr(defaults, section), name)
        if default in (AUTO, "auto"):  # what the task chooses, or the nearest value of the space is taken
            continue
        assert default in ends if isinstance(way, Choice) else way.low <= default <= way.high, key


def test_a_study_keeps_its_trials_continues_and_links_the_best(tmp_path):
    seen = []
    first = tuning.tune("ngram", TEXT, tmp_path / "tuned", trials=2, report=seen.append)
    assert [trial.number for trial in seen] == [0, 1]
    assert seen[0].settings["model.order"] == 5  # the default
    again = tuning.tune("ngram", TEXT, tmp_path / "tuned", trials=4, report=seen.append)
    assert [trial.number for trial in seen] == [0, 1, 2, 3]
    assert again.trials[:2] == first.trials
    assert again.best.score == min(trial.score for trial in again.trials)
    best = weft.load(tmp_path / "tuned" / "best")
    assert best.run.config["model"]["order"] == again.best.settings["model.order"]
    assert again.picture.read_text().startswith("<svg")
    if again.best.number:
        assert again.tests
    assert tuning.tune("ngram", TEXT, tmp_path / "tuned", trials=4, report=seen.append).trials == again.trials
    assert len(seen) == 4


def test_texts_of_a_generator_are_there_for_every_trial(tmp_path):
    texts = (f"the cat sat on mat number {number}. " * 9 for number in range(20))
    found = tuning.tune("ngram", texts, tmp_path / "tuned", trials=2)
    assert [trial.state for trial in found.trials] == ["complete", "complete"]


def test_the_trials_of_all_calls_get_the_same_time(tmp_path):
    assert tuning.seconds_of_trial(open_study(optuna, "lm", tmp_path, ""), 5.0) == 5.0
    assert tuning.seconds_of_trial(open_study(optuna, "lm", tmp_path, ""), 60.0) == 5.0


def test_a_setting_that_is_given_is_not_searched(tmp_path):
    found = tuning.tune("ngram", TEXT, tmp_path / "tuned", {"model.order": 3}, trials=1)
    assert found.best.settings == {}
    assert weft.load(tmp_path / "tuned" / "best").run.config["model"]["order"] == 3


def test_a_trial_whose_process_died_is_repeated(tmp_path):
    out = tmp_path / "tuned"
    out.mkdir()
    study = open_study(optuna, "ngram", out, "")
    study.enqueue_trial({"model.order": 2})
    dead = study.ask()
    dead.suggest_categorical("model.order", tuning.search_space("ngram")["model.order"].values)
    dead.set_user_attr("process", ".process-1")
    (out / ".process-1").mkdir()  # with no lock on it
    found = tuning.tune("ngram", TEXT, out, trials=2)
    assert [trial.state for trial in found.trials] == ["failed", "complete", "complete"]
    assert 2 in [trial.settings["model.order"] for trial in found.trials[1:]]
    assert not list(out.glob(".process-*"))


def test_a_trial_of_a_living_process_is_left_alone(tmp_path):
    study = open_study(optuna, "ngram", tmp_path, "")
    here, elsewhere = study.ask(), study.ask()
    elsewhere.set_user_attr("process", ".process-of-another-folder")
    with process_lock(tmp_path) as process:
        here.set_user_attr("process", process)
        take_over(optuna, study, tmp_path)
        assert [trial.state.name for trial in study.trials] == ["RUNNING", "RUNNING"]


def test_a_trial_that_another_process_has_taken_over_is_given_up(tmp_path):
    study = open_study(optuna, "ngram", tmp_path, "")
    trial = study.ask()
    study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    tuning.run_trial(optuna, study, trial, tuning.get_task("ngram"), TEXT, None, tmp_path, {})
    assert study.trials[0].state.name == "FAIL"
    assert not list(tmp_path.glob("trial-*"))


def test_a_trial_that_falls_behind_is_stopped(tmp_path):
    study = open_study(optuna, "lm", tmp_path, "")

    def run(scores):
        trial = study.ask()
        progress = SimpleNamespace(best=math.inf)

        def steps():
            for number, score in enumerate(scores, 1):
                progress.best = min(progress.best, score)
                yield SimpleNamespace(number=number, total=len(scores), evaluation=Evaluation(score, {}), end="")

        pruned = tuning.train_trial(trial, SimpleNamespace(steps=steps, trainer=SimpleNamespace(progress=progress)))
        study.tell(trial, None if pruned else progress.best, state=optuna.trial.TrialState.PRUNED if pruned else None)
        return pruned

    assert not any(run([4.0, 3.0, 2.0, 1.0 + trial]) for trial in range(5))
    assert run([9.0, 9.0, 9.0, 9.0])
    assert not run([3.0, 2.5, 1.5, 0.5])


def test_the_command_prints_the_score_that_trials_are_compared_by(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog sat on the cat. \n" * 60, encoding="utf-8")
    call = ("tune", "ngram", "--data", tmp_path / "text.txt", "--out", tmp_path / "tuned", "--trials", "2")
    done = succeeds(*call)
    scores = [float(line.split("score ")[1]) for line in done.stderr.splitlines() if line.startswith("trial ")]
    assert len(scores) == 2
    assert f"lowest score {min(scores):.4g}" in done.stdout
    record = json.loads(succeeds(*call, "--json").stdout)
    assert [trial["score"] for trial in record["trials"]] == pytest.approx(scores, rel=1e-3)


def test_mistakes(tmp_path):
    with pytest.raises(weft.WeftError, match="the search has no end"):
        tuning.tune("ngram", TEXT, tmp_path / "a")
    with pytest.raises(weft.WeftError, match="the study cannot be opened"):
        tuning.tune("ngram", TEXT, tmp_path / "a", trials=1, storage="nowhere://x")
    with pytest.raises(weft.WeftError, match="is not known"):
        tuning.tune("ngram", TEXT, tmp_path / "b", {"model.ordre": 3}, trials=1)
    assert "--data is missing" in fails("tune", "lm", "--out", tmp_path / "c", "--minutes", 1)
