"""Learning rate schedules, and the number of steps that fit into a time limit.

A schedule such as cosine has to know the number of steps of the whole training. A time limit (`train.minutes`) becomes
such a number: the first stretch of the training measures how long a step, an evaluation and a checkpoint take, and the
trainer plans the rest, so that the schedule is complete when the time is up. The plan is part of the training state.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

# (step, total steps, warmup steps) -> factor of the learning rate
SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "constant": lambda step, total, warmup: 1.0,
    "plateau": lambda step, total, warmup: 1.0,  # its factor depends on evaluations: Progress.decay
    "cosine": lambda step, total, warmup: (
        (step + 1) / (warmup + 1)
        if step < warmup
        else 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
    ),
}

STRETCH, LONGEST_STRETCH = 0.1, 60.0  # of the time left, and seconds: measured before the steps are planned
STRETCH_STEPS = 5  # at least, unless they take a quarter of the time
HEADROOM = 0.03  # of the time limit: the plan leaves it free, since speeds vary


class Ends(NamedTuple):
    """When a plan may end, in time limits; one that would end earlier or later is made anew."""

    earliest: float
    latest: float


PLANNED = Ends(0.92, 1.0)
RESUMED = Ends(0.85, 1.1)  # a resumed run keeps its plan, so that it repeats the steps of before


class Pace:
    """How long the steps, evaluations and checkpoints of a training take; measured anew after a resume."""

    MEMORY = 500  # steps; the time of a step is their mean, so a long training follows the speed of the machine

    def __init__(self, evaluate_every: int, save_seconds: float, ends: Ends = PLANNED) -> None:
        self.evaluate_every, self.save_seconds, self.ends = evaluate_every, save_seconds, ends
        self.steps = 0
        self.elapsed = 0.0  # all of it, in seconds
        self.step_seconds = self.evaluation_seconds = self.checkpoint_seconds = 0.0  # of one

    def add_step(self, seconds: float) -> None:
        """Counts a step. The first one sets up memory and caches: the second replaces it."""
        self.steps += 1
        self.elapsed += seconds
        share = max(1 / max(1, self.steps - 1), 1 / self.MEMORY)
        self.step_seconds += share * (seconds - self.step_seconds)

    def add_evaluation(self, seconds: float) -> None:
        self.elapsed, self.evaluation_seconds = self.elapsed + seconds, seconds

    def add_checkpoint(self, seconds: float) -> None:
        self.elapsed, self.checkpoint_seconds = self.elapsed + seconds, seconds

    def is_measured(self, seconds: float) -> bool:
        """Whether the stretch is over that plans a training of this many seconds."""
        if self.steps < STRETCH_STEPS:
            return self.elapsed >= seconds / 4
        return self.elapsed >= min(STRETCH * seconds, LONGEST_STRETCH)

    def knows_evaluations(self, step: int) -> bool:
        """Whether `forecast` counts all evaluations: their length is known, and none is due after this very step."""
        return not self.evaluate_every or (self.evaluation_seconds > 0 and step % self.evaluate_every > 0)

    def misses(self, end: float, step: int, *, can_grow: bool) -> bool:
        """Whether a plan that will end at `end`, in time limits, is to be made anew: longer only if it `can_grow`."""
        is_early = can_grow and end < self.ends.earliest and self.knows_evaluations(step)
        return end > self.ends.latest or is_early

    def forecast(self, step: int, ahead: int) -> float:
        """The seconds that the training takes to its end, which is `ahead` steps after `step`."""
        if not ahead:
            return 0.0
        every, last = self.evaluate_every, step + ahead
        evaluations = last // every - step // every + bool(last % every) if every else 0
        training = ahead * self.step_seconds
        checkpoints = evaluations + min(ahead, training / self.save_seconds if self.save_seconds else ahead)
        return training + evaluations * self.evaluation_seconds + checkpoints * self.checkpoint_seconds

    def steps_within(self, seconds: float, step: int, most: int) -> int:
        """The number of steps after `step` that fit into the time, at least 1 and at most `most`."""
        fitting = bisect_right(range(most + 1), seconds, key=lambda ahead: self.forecast(step, ahead)) - 1
        return max(1, fitting)
