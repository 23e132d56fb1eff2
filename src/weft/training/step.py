"""What a training step did, and the scalar part of the training state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.metrics import Metric
from weft.training.loss import MeanLoss

TIME_IS_UP, INTERRUPTED = "time is up", "interrupted"  # why training ended, in Step.end


class Evaluation(NamedTuple):
    """The result of an evaluation on held-out data."""

    score: float  # selects the best weights; lower is better
    metrics: dict[str, float]  # to report
    tie_break: float = 0.0  # decides between equal scores; lower is better. The held-out loss where scores are counts

    @classmethod
    def by(cls, metric: Metric, metrics: dict[str, float], tie_break: float = 0.0) -> Evaluation:
        """An evaluation whose score is one of its metrics, in that metric's direction."""
        value = metrics[metric.name]
        return cls(-value if metric.higher_is_better else value, metrics, tie_break)


class Step(NamedTuple):
    """What one training step did."""

    number: int  # from 1
    total: int  # number of steps of the whole training, unless it stops early
    epoch: int  # from 1
    loss: MeanLoss
    grad_norm: float  # global norm of the gradient before clipping
    learning_rate: float
    seconds: float = 0.0  # time so far: reading the data, steps, evaluations, checkpoints, time before a resume
    evaluation: Evaluation | None = None
    best: bool = False  # the evaluation is the best so far
    end: str = ""  # why training ends after this step, or ""
    step_seconds: float = 0.0  # of this step alone, without an evaluation
    remaining: float = 0.0  # estimated seconds to the end, with the evaluations and checkpoints
    of_batch: bool = True  # whether the loss is that of a batch, not of all data
    note: str = ""  # what a preparation did, which has no loss; its steps are counted by themselves


@dataclass
class Progress:
    """The scalar part of the training state; it is saved in every checkpoint. All but `*_before` is of one phase."""

    phase: int = 0  # the number of the present phase
    steps_before: int = 0  # of the phases before it
    seconds_before: float = 0.0
    prepared: int = 0  # the preparations that are done
    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    planned_steps: int = 0  # of the whole training, to end at the time limit; 0: not planned yet
    planned_minutes: float = 0.0  # the time limit of that plan
    reserve: float = 0.0  # seconds that an evaluation and a checkpoint have taken at most; kept free in a time limit
    best: float = math.inf  # best score so far
    best_tie_break: float = 0.0  # of that evaluation
    best_metrics: dict[str, float] = field(default_factory=dict)  # metrics of the best evaluation
    best_step: int = 0
    bad: int = 0  # evaluations since the best one
    plateau_bad: int = 0  # evaluations since the best one or the last reduction of the learning rate
    decay: float = 1.0  # factor of the plateau schedule
    loss_total: float = 0.0  # summed loss since the last report
    loss_count: int = 0  # predictions since the last report
    evaluated_together: bool = False  # whether all phases have been evaluated together, after the last one

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Progress:
        """The inverse of `vars`.

        Raises:
            TypeError: a value is of another type than a new one.
            ValueError: a number is negative.
        """
        found = cls(**values)
        for name, default in vars(cls()).items():
            value = getattr(found, name)
            if type(value) not in ((int, float) if type(default) is float else (type(default),)):
                raise TypeError(f"{name} is {value!r}")
            if type(value) is int and value < 0:
                raise ValueError(f"{name} is {value}")
        return found

    @property
    def all_steps(self) -> int:
        """The steps of all phases so far."""
        return self.steps_before + self.step

    @property
    def all_seconds(self) -> float:
        """The time of all phases so far."""
        return self.seconds_before + self.seconds

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether an evaluation is better than all before it.

        Accuracy and F1 of few examples are often equal. A lower tie break is an improvement then, for patience too.
        """
        return (evaluation.score, evaluation.tie_break) < (self.best, self.best_tie_break)

    def add_best(self, evaluation: Evaluation) -> None:
        """Records the best evaluation so far, that of the present step."""
        self.best, self.best_tie_break, self.best_metrics = evaluation.score, evaluation.tie_break, evaluation.metrics
        self.best_step, self.bad, self.plateau_bad = self.all_steps, 0, 0
