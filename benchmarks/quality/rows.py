"""One row of docs/results.md: a dataset, a task with its default settings, and its result per seed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Result:
    """The result of one training run: the score that is compared with the goal, and other metrics."""

    metric: str
    score: float
    seconds: float  # of training, evaluations on held-out data included
    metrics: dict[str, Any] = field(default_factory=dict)
    threads: int = field(default_factory=torch.get_num_threads)


@dataclass(frozen=True)
class Row:
    """A row of the table. `run(folder, seed)` trains and evaluates in a temporary folder."""

    goal: float | None
    run: Callable[[Path, int], Result]
    seeds: tuple[int, ...] = (1, 2)
    lower_is_better: bool = False

    def reached(self, score: float) -> bool:
        """Whether a score reaches the goal."""
        return self.goal is None or (score <= self.goal if self.lower_is_better else score >= self.goal)


def data(*parts: str) -> Path:
    """The path of a data file: below $WEFT_DATA, or ../shared/data."""
    folder = Path(os.environ.get("WEFT_DATA") or Path(__file__).parents[3] / "shared" / "data")
    path = folder.joinpath(*parts)
    if not path.exists():
        raise SystemExit(f"{path} is not there: put the data there or set WEFT_DATA")
    return path
