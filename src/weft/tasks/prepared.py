"""A trainer before its first step: what a task's `prepare` returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from weft.cells import State
from weft.training.run import Run
from weft.training.step import Progress, Step


class TaskTrainer(Protocol):
    """What trains a model: `weft.training.trainer.Trainer`, or a task's own."""

    run_directory: Run | None
    progress: Progress

    @property
    def model(self) -> Any: ...

    def run(self) -> Iterator[Step]:
        """Trains from the present state on; yields each step after it is done and, where due, saved."""
        ...

    def end_reason(self) -> str:
        """Why training is over, or "" if it is not."""
        ...

    def stop(self) -> None:
        """Finishes the step under way, saves, and ends."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The complete state: tensors by name, and plain values."""
        ...

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any], carried: State = None) -> None:
        """Continues from a saved state."""
        ...


class Prepared(NamedTuple):
    """A trainer before its first step."""

    trainer: TaskTrainer
    description: str  # the data, in one line
    carried: State = None  # a state of the shape that the trainer carries between steps
    unit: str | None = None  # what losses are counted in, where it is not the task's
