"""One line of docs/results.md: a data set, a task with its default settings, a seed, and what came out."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """What one training reached. `score` is what the goal is held against; `facts` is whatever else is worth saying."""

    metric: str
    score: float
    seconds: float  # of training, evaluations on held-out data included
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """`run(folder, seed)` trains in the folder, which is new and thrown away afterwards, and measures."""

    goal: float | None
    run: Callable[[Path, int], Result]
    seeds: tuple[int, ...] = (1, 2)


def data(*parts: str) -> Path:
    """A file of the real data: below $WEFT_DATA, or ../shared/data."""
    folder = Path(os.environ.get("WEFT_DATA") or Path(__file__).parents[2] / "shared" / "data")
    path = folder.joinpath(*parts)
    if not path.exists():
        raise SystemExit(f"{path} is not there: put the data there or set WEFT_DATA")
    return path
