"""The battery of tasks: what `weft train`, `weft.load`, the server and the pages ask of each."""

from __future__ import annotations

from typing import Any

from weft.metrics import Metric
from weft.tasks.operation import operations
from weft.tasks.task import Task


def check_task(task: Any, name: str) -> None:
    """Checks what a task declares."""
    assert isinstance(task, Task), "task: no Task"
    assert task.name == name, f"task: it is called {task.name}"
    for part in ("summary", "data_help", "dev_help"):
        assert getattr(task, part).endswith("."), f"task: {part} is no sentence"
    assert isinstance(task.metric, Metric), "task: no metric"
    assert isinstance(task.config_class(), task.config_class), "task: the settings have no defaults"
    assert task.predictors, "task: no predictor"
    for predictor in task.predictors:
        assert "evaluate" in operations(predictor), f"task: {predictor.__name__} does not evaluate"
        for operation in operations(predictor).values():
            assert operation.help, f"task: {operation.name} does not say what it does"
