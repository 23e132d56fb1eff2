"""The battery of tasks passes for each, and fails for tasks with one defect."""

from __future__ import annotations

import pytest

from tests.checks.tasks import check_task
from weft.tasks import TASKS, get_task
from weft.tasks.predictor import TaskPredictor

CLASSIFY = type(get_task("classify"))


@pytest.mark.parametrize("name", TASKS)
def test_task(name):
    check_task(get_task(name), name)


class PredictorWithoutEvaluation(TaskPredictor):
    pass


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("name", "tag", "it is called tag"),
        ("summary", "classifier", "summary is no sentence"),
        ("metric", "accuracy", "no metric"),
        ("predictors", (), "no predictor"),
        ("predictors", (PredictorWithoutEvaluation,), "does not evaluate"),
        ("config_class", lambda: None, "."),
    ],
)
def test_task_mutants_fail(name, value, message):
    mutant = type("Mutant", (CLASSIFY,), {name: value})()
    with pytest.raises((AssertionError, TypeError), match=message):
        check_task(mutant, "classify")
