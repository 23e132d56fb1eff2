"""The trainer: a generator of steps.

    for step in trainer.run():
        ...                       # inspect it, print it, stop at any time

There are no callbacks. The trainer's state contains everything that the next step depends on: weights, optimizer,
schedule, random state, position in the data, carried recurrent state. So 10 steps equal 5 steps, a kill, a resume and
5 steps, bit for bit on the CPU.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.errors import WeftError, WeftWarning
from weft.metrics import Likelihood
from weft.nn import map_state
from weft.training.config import TrainConfig
from weft.training.loss import Loss
from weft.training.optimizer import OPTIMIZERS, Optimizer
from weft.training.run import CHECKPOINT, WEIGHTS, Run, with_prefix


class Data(Protocol):
    """Training data in batches that are addressed by epoch and number, so that training can resume anywhere."""

    @property
    def batches(self) -> int:
        """The number of batches in an epoch."""
        ...

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """Yields the batches of an epoch from batch `start` on."""
        ...


class Evaluation(NamedTuple):
    """The result of an evaluation on held-out data."""

    score: float  # selects the best weights; lower is better
    metrics: dict[str, float]  # to report


class Step(NamedTuple):
    """What one training step did."""

    number: int  # from 1
    total: int  # number of steps of the whole training, unless it stops early
    epoch: int  # from 1
    loss: Likelihood
    grad_norm: float  # global norm of the gradient before clipping
    learning_rate: float
    seconds: float  # time so far: reading the data, steps, evaluations, checkpoints, time before a resume
    evaluation: Evaluation | None
    best: bool  # the evaluation is the best so far
    end: str  # why training ends after this step, or ""


TIME_IS_UP = "time is up"
REPORT_EVERY = 20  # steps between lines of metrics.jsonl


@dataclass
class Progress:
    """The scalar part of the training state; it is saved in every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    reserve: float = 0.0  # seconds that an evaluation and a checkpoint have taken at most; kept free in a time limit
    best: float = math.inf  # best score so far
    best_metrics: dict[str, float] = field(default_factory=dict)  # metrics of the best evaluation
    best_step: int = 0
    bad: int = 0  # evaluations since the best one
    plateau_bad: int = 0  # evaluations since the best one or the last reduction of the learning rate
    decay: float = 1.0  # factor of the plateau schedule
    nats: float = 0.0  # summed loss since the last report
    count: int = 0  # predictions since the last report


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


class Trainer:
    """Trains a model, evaluates it, and saves checkpoints.

    Args:
        model: the model; parameters with requires_grad are trained.
        data: the training data.
        objective: maps (batch, carried state) to the loss; the state of that loss is carried to the next batch.
        config: the `train` settings.
        evaluate: called after each epoch or every `config.evaluate_every` steps; selects the best weights.
        run: the run directory to save into, or None to save nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        objective: Callable[[Any, State], Loss],
        config: TrainConfig,
        *,
        evaluate: Callable[[], Evaluation] | None = None,
        run: Run | None = None,
    ) -> None:
        self.model, self.data, self.objective, self.config = model, data, objective, config
        self.evaluate, self.run_directory = evaluate, run
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = Optimizer(self.parameters, OPTIMIZERS[config.optimizer](config))
        self.progress = Progress()
        self.carried: State = None
        self.ema = self._copies() if config.ema_decay else None  # averaged weights by name
        self.stop_requested = False
        self._evaluation_seconds = 0.0  # of the last evaluation

    @property
    def total(self) -> int:
        """The number of steps of the whole training."""
        return self.config.epochs * self.data.batches

    def stop(self) -> None:
        """Requests the end: training finishes the current step, saves, and ends. Safe in signal handlers."""
        self.stop_requested = True

    def run(self) -> Iterator[Step]:
        """Trains from the current state. Yields every step after it is done (and saved, if it is saved)."""
        if self._has_ended():
            return
        started = time.perf_counter() - self.progress.seconds
        saved = time.perf_counter()
        while self.progress.epoch < self.config.epochs:
            for batch in self.data.epoch(self.progress.epoch, self.progress.batch):
                step = self._step(batch)
                self.progress.seconds = time.perf_counter() - started
                end = self.end_reason()
                if self._evaluation_due(end):
                    step = self._evaluate(step)
                    self.progress.seconds = time.perf_counter() - started
                    end = self.end_reason()
                step = step._replace(seconds=self.progress.seconds, end=end or self._interruption())
                self._report(step)
                if self.progress.batch == self.data.batches:
                    self.progress.epoch, self.progress.batch, self.carried = self.progress.epoch + 1, 0, None
                if step.end or step.evaluation or time.perf_counter() - saved >= self.config.save_seconds:
                    saved = time.perf_counter()
                    self.save()
                    progress, seconds = self.progress, time.perf_counter() - saved
                    progress.reserve = max(progress.reserve, seconds + self._evaluation_seconds)
                    saved += seconds
                yield step
                if step.end:
                    return

    def _step(self, batch: Any) -> Step:
        config, progress = self.config, self.progress
        # A short training must not end before it has reached its full learning rate.
        warmup = min(config.warmup_steps, self.total // 4)
        factor = SCHEDULES[config.schedule](progress.step, self.total, warmup)
        learning_rate = config.learning_rate * progress.decay * factor
        if not self.model.training:
            self.model.train()
        loss = self.objective(batch, self.carried)
        self.optimizer.zero_grad()
        loss.total.backward(loss.total.new_full((), 1 / max(1, loss.count)))  # type: ignore[no-untyped-call]
        nats = float(loss.total.detach())
        grad_norm = self._update(learning_rate) if math.isfinite(nats) else math.nan
        if not math.isfinite(grad_norm):
            self._diverged(nats, grad_norm, learning_rate)
        self.carried = loss.state
        progress.step += 1
        progress.batch += 1
        return Step(
            number=progress.step,
            total=self.total,
            epoch=progress.epoch + 1,
            loss=Likelihood(nats, loss.count),
            grad_norm=grad_norm,
            learning_rate=learning_rate,
            seconds=0.0,
            evaluation=None,
            best=False,
            end="",
        )

    def _update(self, learning_rate: float) -> float:
        """Updates the weights and their EMA unless the gradient norm is not finite. Returns that norm."""
        clip_norm, step = self.config.clip_norm, self.progress.step
        if self.ema is None:
            return self.optimizer.step(learning_rate, clip_norm=clip_norm)
        # The initial weights are far from the final ones: a small decay at first removes them from the average.
        decay = min(self.config.ema_decay, step / (step + 10))
        return self.optimizer.step(learning_rate, clip_norm=clip_norm, ema=list(self.ema.values()), ema_decay=decay)

    def _evaluation_due(self, end: str) -> bool:
        if self.evaluate is None:
            return False
        every = self.config.evaluate_every or self.data.batches
        # Not at an interruption: the resumed run would then have one evaluation more than an uninterrupted one.
        return self.progress.step % every == 0 or bool(end)

    def _evaluate(self, step: Step) -> Step:
        assert self.evaluate is not None
        self.model.eval()
        began = time.perf_counter()
        with self._averaged():
            step = self._record_evaluation(step, self.evaluate())
        self._evaluation_seconds = time.perf_counter() - began
        return step

    def _record_evaluation(self, step: Step, evaluation: Evaluation) -> Step:
        """Updates the best weights, the early-stopping counters and the plateau schedule."""
        progress = self.progress
        best = evaluation.score < progress.best
        if best:
            progress.best, progress.best_metrics = evaluation.score, evaluation.metrics
            progress.best_step, progress.bad, progress.plateau_bad = progress.step, 0, 0
            if self.run_directory:
                self.run_directory.save(WEIGHTS, self._weights(), {"step": progress.step, **evaluation.metrics})
        else:
            progress.bad += 1
            progress.plateau_bad += 1
            if self.config.schedule == "plateau" and progress.plateau_bad > self.config.plateau_patience:
                progress.decay *= self.config.plateau_factor
                progress.plateau_bad = 0
        return step._replace(evaluation=evaluation, best=best)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Gives the model its averaged weights inside the block, if there is an EMA."""
        if self.ema is None:
            yield
            return
        own = self._copies()
        self._assign(self.ema)
        try:
            yield
        finally:
            self._assign(own)

    def _copies(self) -> dict[str, Tensor]:
        """Returns copies of the trained parameters, in the optimizer's order."""
        named = self.model.named_parameters()
        return {name: parameter.detach().clone() for name, parameter in named if parameter.requires_grad}

    @torch.no_grad()
    def _assign(self, weights: dict[str, Tensor]) -> None:
        for parameter, weight in zip(self.parameters, weights.values(), strict=True):
            parameter.copy_(weight)

    def _has_ended(self) -> bool:
        """Whether there is no step to take: the run ended before it was resumed, or reading took all the time."""
        end = self.end_reason()
        if end == TIME_IS_UP and not self.progress.step:
            warnings.warn(
                f"the time limit of {self.config.minutes:g} minutes was over before the first step: reading and "
                f"encoding the data took {self.progress.seconds:.0f} s; the model is not trained",
                WeftWarning,
                stacklevel=3,
            )
        return bool(end)

    def end_reason(self) -> str:
        """Why training is over, or "" if it is not.

        The time limit covers reading the data, every step, evaluation and checkpoint, the last ones included.
        """
        config, progress = self.config, self.progress
        if progress.step >= self.total:
            return "finished"
        if config.patience and progress.bad >= config.patience:
            return "no better evaluation"
        if config.minutes and progress.seconds + progress.reserve >= 60 * config.minutes:
            return TIME_IS_UP
        return ""

    def _interruption(self) -> str:
        return "interrupted" if self.stop_requested else ""

    def _report(self, step: Step) -> None:
        """Writes a line to metrics.jsonl every REPORT_EVERY steps, with their mean loss, and for every evaluation."""
        progress = self.progress
        progress.nats, progress.count = progress.nats + step.loss.nats, progress.count + step.loss.count
        if not (step.evaluation or step.number % REPORT_EVERY == 0):
            return
        loss = Likelihood(progress.nats, progress.count)
        progress.nats, progress.count = 0.0, 0
        record: dict[str, Any] = {"step": step.number, "epoch": step.epoch, "train_cross_entropy": loss.cross_entropy}
        record |= {
            "grad_norm": step.grad_norm,
            "learning_rate": step.learning_rate,
            "seconds": round(step.seconds, 3),
        }
        if step.evaluation:
            record |= {"evaluation": step.evaluation.metrics, "best": step.best}
        if self.run_directory:
            self.run_directory.report(record)

    def _diverged(self, nats: float, grad_norm: float, learning_rate: float) -> None:
        where = ""
        if self.run_directory:
            if all(bool(parameter.isfinite().all()) for parameter in self.parameters):
                self.save()
            where = f"; the last checkpoint is in {self.run_directory.path}, `resume` continues from it"
        usual = type(self.config)().learning_rate
        lower = self.config.learning_rate / 3 if self.config.learning_rate <= 10 * usual else usual
        raise WeftError(
            f"step {self.progress.step + 1}: the loss is {nats} and the gradient norm {grad_norm} "
            f"at a learning rate of {learning_rate:.3g}",
            expected="finite values",
            hint=f"a lower learning rate (`train.learning_rate={lower:.2g}`) or gradient clipping "
            f"(`train.clip_norm=1`){where}",
        )

    def save(self) -> None:
        """Saves a checkpoint into the run directory, if there is one."""
        if self.run_directory:
            tensors, metadata = self.state()
            self.run_directory.save(CHECKPOINT, tensors, metadata)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Starts from given weights instead of random ones."""
        self.model.load_state_dict(weights)
        self.ema = self._copies() if self.config.ema_decay else None

    def _weights(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns the complete training state: tensors by name, and metadata."""
        tensors = {f"model.{name}": tensor for name, tensor in self._weights().items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in self.optimizer.state().items()}
        if self.ema is not None:
            tensors |= {f"ema.{name}": average for name, average in self.ema.items()}
        tensors["random"] = torch.get_rng_state()
        for number, tensor in enumerate(_leaves(self.carried)):
            tensors[f"carried.{number}"] = tensor
        return tensors, {"progress": vars(self.progress).copy(), "config": vars(self.config).copy()}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any], carried: State = None) -> None:
        """Restores a state that `state` returned.

        Args:
            tensors: the tensors of the checkpoint.
            metadata: the metadata of the checkpoint.
            carried: any carried state of the right structure; its tensors are replaced by the saved ones.
        """
        self.model.load_state_dict(with_prefix(tensors, "model."))
        self.optimizer.restore(with_prefix(tensors, "optimizer."))
        if self.ema is not None:
            saved, self.ema = with_prefix(tensors, "ema."), self._copies()
            for name, average in self.ema.items():
                if saved:  # a run without an EMA has saved none
                    average.copy_(saved[name])
        torch.set_rng_state(tensors["random"])
        self.progress = Progress(**metadata["progress"])
        leaves = iter([tensors[f"carried.{number}"] for number in range(len(with_prefix(tensors, "carried.")))])
        self.carried = map_state(lambda like: next(leaves).to(like.device), carried) if "carried.0" in tensors else None


def _leaves(state: State) -> list[Tensor]:
    found: list[Tensor] = []
    if state is not None:
        map_state(lambda tensor: found.append(tensor) or tensor, state)  # type: ignore[func-returns-value]
    return found
