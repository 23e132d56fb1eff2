"""The progress of a training run: one live line on a terminal, plain lines elsewhere, all to standard error.

The line has the smoothed loss, the last held-out metric (* the best model so far), the speed and the remaining time;
where the metric is perplexity, that of the loss too.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from weft.metrics import Likelihood
from weft.training.trainer import Step

PLAIN_SECONDS = 10.0  # between plain lines without an evaluation


class TrainingProgress:
    """`with TrainingProgress(metric, unit) as progress: for step in trainer.run(): progress.step(step)`."""

    def __init__(self, metric: str, unit: str, smoothing: float, time_limit: float = 0.0) -> None:
        self.time_limit = time_limit  # in seconds; 0: none
        self.metric, self.unit, self.smoothing = metric, unit, smoothing
        self.console = Console(stderr=True, highlight=False)
        self.live = (
            Progress(
                TextColumn("epoch {task.fields[epoch]}", table_column=Column(no_wrap=True)),
                BarColumn(bar_width=None, table_column=Column(ratio=1)),  # the remaining width
                TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
                console=self.console,
                expand=True,
            )
            if sys.stderr.isatty() or self.console.is_jupyter
            else None
        )
        self.task = self.live.add_task("", total=None, epoch=0, facts="") if self.live else None
        self.running = 0.0  # exponential moving average of the loss, in nats
        self.tokens = 0
        self.first: Step | None = None
        self.held_out = ""
        self.began = self.printed = time.perf_counter()

    def __enter__(self) -> TrainingProgress:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if self.live:
            self.live.stop()

    def step(self, step: Step) -> None:
        now = time.perf_counter()
        if self.first is None:
            self.first, self.running = step, step.loss.cross_entropy
        self.running += (1 - self.smoothing) * (step.loss.cross_entropy - self.running)
        self.tokens += step.loss.count
        if step.evaluation:
            score = step.evaluation.metrics[self.metric]
            self.held_out = f", held-out {self.metric} {score:.3f}{'*' if step.best else ''}"
        done = step.number - self.first.number + 1
        left = int((now - self.began) / done * (step.total - step.number))
        if self.time_limit:
            left = max(0, min(left, int(self.time_limit - step.seconds)))
        perplexity = f"  perplexity {Likelihood(self.running, 1).perplexity:.2f}" if self.metric == "perplexity" else ""
        speed = self.tokens / (now - self.began)
        shown = f"{speed / 1000:.0f}k" if speed >= 10_000 else f"{speed:.0f}"
        text = (
            f"loss {self.running:.3f}{perplexity}{self.held_out}  "
            f"{shown} {self.unit}/s  {left // 60}:{left % 60:02d} left"
        )
        if self.live and self.task is not None:
            self.live.update(self.task, completed=step.number, total=step.total, epoch=step.epoch, facts=text)
        elif step.evaluation or step.end or now - self.printed >= PLAIN_SECONDS:
            self.printed = now
            print(f"epoch {step.epoch}  step {step.number}/{step.total}  {text}", file=sys.stderr, flush=True)
