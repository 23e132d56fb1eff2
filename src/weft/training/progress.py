"""The progress of a training run: one live line on a terminal or in a notebook, plain lines elsewhere.

The line has the smoothed loss, the last held-out metric (* the best model so far), the speed and the remaining time;
where the metric is a function of the loss, its value for that too.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from weft.html import progress_bar
from weft.metrics import Metric
from weft.metrics.metric import plural
from weft.terminal import TerminalConsole
from weft.training.step import Step

PLAIN_SECONDS = 10.0  # between plain lines without an evaluation
SHARE = 0.02  # of a batch's loss in the loss of progress lines, a moving average


class Speed:
    """Predictions per second of training time: evaluations do not count. Follows the last few hundred steps."""

    MEMORY = 200  # steps

    def __init__(self) -> None:
        self.steps = 0
        self.count = self.seconds = 0.0

    def add(self, step: Step) -> float:
        """Counts a step and returns the speed. The first step sets up memory and caches: it is replaced."""
        self.steps += 1
        keep = 0.0 if self.steps <= 2 else 1 - 1 / self.MEMORY
        self.count = keep * self.count + step.loss.count
        self.seconds = keep * self.seconds + step.step_seconds
        return self.count / max(1e-9, self.seconds)


class NotebookLine:
    """A line in the output of a notebook that changes in place."""

    SECONDS = 0.2  # between changes

    def __init__(self) -> None:
        display = import_module("IPython.display").display  # of the notebook that this runs in
        self.handle = display({"text/plain": ""}, raw=True, display_id=True)
        self.changed = 0.0

    def show(self, share: float, text: str, *, last: bool) -> None:
        now = time.perf_counter()
        if last or now - self.changed >= self.SECONDS:
            self.changed = now
            self.handle.update({"text/plain": text, "text/html": progress_bar(share, text)}, raw=True)


class TrainingProgress:
    """`with TrainingProgress(metric, loss) as progress: for step in trainer.run(): progress.step(step)`."""

    def __init__(self, metric: Metric, loss: Metric) -> None:
        self.metric, self.loss = metric, loss
        self.console = TerminalConsole(stderr=True, highlight=False)
        self.live = (
            Progress(
                TextColumn("epoch {task.fields[epoch]}", table_column=Column(no_wrap=True)),
                BarColumn(bar_width=None, table_column=Column(ratio=1)),  # the remaining width
                TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
                console=self.console,
                expand=True,
            )
            if sys.stderr.isatty() and not self.console.is_jupyter
            else None
        )
        self.notebook = NotebookLine() if self.console.is_jupyter else None
        self.task = self.live.add_task("", total=None, epoch=0, facts="") if self.live else None
        self.running = 0.0  # exponential moving average of the loss
        self.speed = Speed()
        self.held_out = ""
        self.printed = time.perf_counter()

    def __enter__(self) -> TrainingProgress:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if self.live:
            self.live.stop()

    def say(self, text: str) -> None:
        """Prints lines above the progress."""
        print(text, file=sys.stderr, flush=True)

    def step(self, step: Step) -> None:
        """Shows a step."""
        if step.note:
            text = f"{step.note}  {step.number}/{step.total}  {_duration(int(step.remaining))} left"
            self._show(step, step.number / step.total, text, text)
            return
        # The mean of the first steps, then a moving average: it does not start from the loss of the first step alone.
        share = max(SHARE, 1 / (self.speed.steps + 1)) if step.of_batch else 1.0
        self.running += share * (step.loss.value - self.running)
        speed, left = self.speed.add(step), int(step.remaining)
        if step.evaluation:
            score = self.metric.show(step.evaluation.metrics[self.metric.name])
            self.held_out = f", held-out {score}{'*' if step.best else ''}"
        of_loss = self.metric.of_loss
        same = "" if of_loss is None else f"  {self.metric.name} {of_loss(self.running):.2f}"
        shown = f"{speed / 1000:.0f}k" if speed >= 10_000 else f"{speed:.0f}"
        text = (
            f"loss {self.running:.3f}{same}{self.held_out}  {shown} {plural(self.loss.per)}/s  {_duration(left)} left"
        )
        line = f"epoch {step.epoch}  step {step.number}/{step.total}  {text}"
        self._show(step, step.seconds / max(1e-9, step.seconds + step.remaining), text, line)

    def _show(self, step: Step, done: float, facts: str, line: str) -> None:
        """Shows the part of the time that is done, 0 to 1, and the facts; as a line of text, where nothing can move."""
        now = time.perf_counter()
        if self.live and self.task is not None:
            self.live.update(self.task, completed=done, total=1, epoch=step.epoch, facts=facts)
        elif self.notebook is not None:
            self.notebook.show(done, line, last=bool(step.end))
        elif step.evaluation or step.end or now - self.printed >= PLAIN_SECONDS:
            self.printed = now
            print(line, file=sys.stderr, flush=True)


def _duration(seconds: int) -> str:
    """Hours, minutes and seconds, as 1:02:03 or 2:03."""
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02d}:{seconds % 60:02d}" if hours else f"{minutes}:{seconds % 60:02d}"
