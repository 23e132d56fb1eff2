"""The trainer: a generator of steps.

    for step in trainer.run():
        ...                       # inspect it, print it, stop at any time

There are no callbacks. The state has all that the next step depends on: weights, optimizer, schedule, random state,
position, carried recurrent state. So 10 steps equal 5 steps, a kill, a resume and 5 steps, bit for bit on the CPU.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.data.sharing import sharing
from weft.errors import WeftError, WeftWarning
from weft.metrics import Likelihood
from weft.nn import map_state
from weft.training.config import TrainConfig
from weft.training.devices import mixed_precision
from weft.training.distributed import current_workers
from weft.training.layer_groups import LayerGroups
from weft.training.loss import Loss
from weft.training.optimizer import Optimizer, rules_for
from weft.training.run import CHECKPOINT, WEIGHTS, Run, with_prefix
from weft.training.schedule import HEADROOM, PLANNED, RESUMED, SCHEDULES, Pace
from weft.training.slices import SlicedGradient, state_leaves
from weft.training.step import TIME_IS_UP, Evaluation, Progress, Step


class Data(Protocol):
    """Training data in batches that are addressed by epoch and number, so that training can resume anywhere."""

    @property
    def batches(self) -> int:
        """The number of batches in an epoch."""
        ...

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """Yields the batches of an epoch from batch `start` on."""
        ...

    def sliced_epoch(self, number: int, start: int, slices: int) -> Iterator[Callable[[int], Any]]:
        """The same, but yields functions that read a slice of a batch by its number; None if it is empty."""
        ...


REPORT_EVERY = 20  # steps between lines of metrics.jsonl


class Trainer:
    """Trains a model, evaluates it, and saves checkpoints.

    Args:
        model: the model; parameters with requires_grad are trained.
        data: the training data.
        objective: maps (batch, carried state) to the loss; the state of that loss is carried to the next batch.
        config: the `train` settings.
        evaluate: called after each epoch or every `config.evaluate_every` steps; selects the best weights.
        run: the run directory to save into, or None to save nothing.
        groups: learning rates of their own for groups of parameters, and when they are unfrozen; None: all alike.
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
        groups: LayerGroups | None = None,
    ) -> None:
        self.model, self.data, self.objective, self.config = model, data, objective, config
        self.evaluate, self.run_directory, self.groups = evaluate, run, groups
        self.trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.parameters = list(self.trained.values())
        factors = None if groups is None else groups.rate_factors(self.parameters)
        self.optimizer = Optimizer(self.parameters, rules_for(model, self.parameters, config), factors)
        self.progress = Progress()
        self.workers = current_workers()
        self.sliced = SlicedGradient(self.parameters, config, self.workers) if config.slices > 1 else None
        self.carried: Any = None  # the state to carry to the next batch; a list with one of each own slice
        self.ema = self._copies() if config.ema_decay else None  # averaged weights by name
        self.stop_requested = False
        self.pace = Pace(self._evaluate_every, config.save_seconds)
        self._budget = 0.0  # seconds to the time limit when `run` began

    @property
    def total(self) -> int:
        """The number of steps of the whole training."""
        epochs = self.config.epochs * self.data.batches
        return min(epochs, self.progress.planned_steps) if self._is_planned else epochs

    @property
    def _is_planned(self) -> bool:
        """Whether the number of steps for the present time limit is known; a resume may have changed the limit."""
        return self.progress.planned_steps > 0 and self.progress.planned_minutes == self.config.minutes

    @property
    def _evaluate_every(self) -> int:
        return 0 if self.evaluate is None else self.config.evaluate_every or self.data.batches

    def stop(self) -> None:
        """Requests the end: training finishes the current step, saves, and ends. Safe in signal handlers."""
        self.stop_requested = True

    def run(self) -> Iterator[Step]:
        """Trains from the current state. Yields every step after it is done (and saved, if it is saved)."""
        self.progress.seconds = self.workers.first(self.progress.seconds)
        if self._has_ended():
            return
        began = self.workers.now() - self.progress.seconds
        self.pace = Pace(self._evaluate_every, self.config.save_seconds, RESUMED if self._is_planned else PLANNED)
        self._budget = 60 * self.config.minutes - self.progress.seconds
        saved = ended = self.workers.now()  # of the last checkpoint, of the last step
        while self.progress.epoch < self.config.epochs:
            for batch in self._batches():
                step = self._step(batch)
                step = step._replace(step_seconds=self.workers.now() - ended)
                self.pace.add_step(step.step_seconds)
                self.progress.seconds = self.workers.now() - began
                end, planning = self.end_reason(), self._plan_is_due()
                if self._evaluation_due(end, planning):
                    step = self._evaluate(step)
                    self.progress.seconds = self.workers.now() - began
                    end = self.end_reason()
                step = step._replace(seconds=self.progress.seconds, end=end or self._interruption())
                self._report(step)
                if self.progress.batch == self.data.batches:
                    self.progress.epoch, self.progress.batch, self.carried = self.progress.epoch + 1, 0, None
                if planning and not step.end:
                    self._timed_save()
                    self.progress.seconds = self.workers.now() - began
                    self._plan()
                if step.end or step.evaluation or planning or self.workers.now() - saved >= self.config.save_seconds:
                    self._timed_save()
                    saved = self.workers.now()
                ended = self.workers.now()
                yield step._replace(total=self.total, remaining=self._remaining())
                if step.end:
                    return

    def _batches(self) -> Iterator[Any]:
        """The batches from the present position on; functions that read a slice where batches are cut into slices."""
        position = self.progress.epoch, self.progress.batch
        return self.data.sliced_epoch(*position, self.config.slices) if self.sliced else self.data.epoch(*position)

    def _plan_is_due(self) -> bool:
        """Whether the steps that fit into the time limit are to be counted: once, and if the speed changes much."""
        if not self.config.minutes or not self.pace.is_measured(self._budget):
            return False
        end = (self.progress.seconds + self._remaining()) / (60 * self.config.minutes)
        can_grow = self.progress.planned_steps < self.config.epochs * self.data.batches
        return not self._is_planned or self.pace.misses(end, self.progress.step, can_grow=can_grow)

    def _plan(self) -> None:
        """Sets the number of steps, so that the training ends at the time limit with its schedule complete."""
        progress, most = self.progress, self.config.epochs * self.data.batches - self.progress.step
        left = 60 * self.config.minutes * (1 - HEADROOM) - progress.seconds
        progress.planned_steps = progress.step + self.pace.steps_within(left, progress.step, most)
        progress.planned_minutes = self.config.minutes
        self.pace.ends = PLANNED

    def _remaining(self) -> float:
        """Estimates the seconds to the end."""
        forecast = self.pace.forecast(self.progress.step, self.total - self.progress.step)
        limited = self.config.minutes and not self._is_planned
        return min(forecast, max(0.0, 60 * self.config.minutes - self.progress.seconds)) if limited else forecast

    def _timed_save(self) -> None:
        began = self.workers.now()
        self.save()
        self.workers.synchronize()
        self.pace.add_checkpoint(self.workers.now() - began)
        self.progress.reserve = max(self.progress.reserve, self.pace.checkpoint_seconds + self.pace.evaluation_seconds)

    def _step(self, batch: Any) -> Step:
        config, progress = self.config, self.progress
        # A short training must not end before it has reached its full learning rate.
        warmup = min(config.warmup_steps, self.total // 4)
        factor = SCHEDULES[config.schedule](progress.step, self.total, warmup)
        learning_rate = config.learning_rate * progress.decay * factor
        if not self.model.training:
            self.model.train()
        if self.groups is not None:
            self.groups.freeze(self.groups.active(progress.step, epoch_steps=self.data.batches, total=self.total))
        loss = self._gradient(batch)
        grad_norm = self._update(learning_rate) if math.isfinite(loss.nats) else math.nan
        if not math.isfinite(grad_norm):
            self._diverged(loss.nats, grad_norm, learning_rate)
        progress.step += 1
        progress.batch += 1
        return Step(
            number=progress.step,
            total=self.total,
            epoch=progress.epoch + 1,
            loss=loss,
            grad_norm=grad_norm,
            learning_rate=learning_rate,
        )

    def _gradient(self, batch: Any) -> Likelihood:
        """Sets the gradients to those of the batch's mean loss, and returns that loss."""
        if self.sliced is not None:
            self.sliced.stop_requested = self.stop_requested
            loss, self.carried = self.sliced.compute(batch, self._forward, self.carried, self.progress.step)
            return loss
        found = self._forward(batch, self.carried)
        self.optimizer.zero_grad()
        (found.total * (1 / max(1, found.count))).backward()  # type: ignore[no-untyped-call]
        self.carried = found.state
        return Likelihood(float(found.total.detach()), found.count)

    def _forward(self, batch: Any, carried: State) -> Loss:
        with mixed_precision(self.config.precision, self.parameters[0].device):
            return self.objective(batch, carried)

    def _update(self, learning_rate: float) -> float:
        """Updates the weights and their EMA unless the gradient norm is not finite. Returns that norm."""
        ema, step = None if self.ema is None else list(self.ema.values()), self.progress.step
        # The initial weights are far from the final ones: a small decay at first removes them from the average.
        decay = min(self.config.ema_decay, step / (step + 10))
        return self.optimizer.step(learning_rate, clip_norm=self.config.clip_norm, ema=ema, ema_decay=decay)

    def _evaluation_due(self, end: str, planning: bool) -> bool:
        every = self._evaluate_every
        if not every:
            return False
        # Not at an interruption: the resumed run would then have one evaluation more than an uninterrupted one.
        unknown = planning and not self.pace.evaluation_seconds  # a plan has to know how long an evaluation takes
        return self.progress.step % every == 0 or bool(end) or unknown

    def _evaluate(self, step: Step) -> Step:
        assert self.evaluate is not None
        self.model.eval()
        began = self.workers.now()
        computed = mixed_precision(self.config.precision, self.parameters[0].device)
        with self._averaged(), sharing(self.config.slices, self.workers.map), computed:
            step = self._record_evaluation(step, self.evaluate())
        self.workers.synchronize()
        self.pace.add_evaluation(self.workers.now() - began)
        return step

    def _record_evaluation(self, step: Step, evaluation: Evaluation) -> Step:
        """Updates the best weights, the early-stopping counters and the plateau schedule."""
        progress = self.progress
        best = progress.is_best(evaluation)
        if best:
            progress.add_best(evaluation)
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
        return {name: parameter.detach().clone() for name, parameter in self.trained.items()}

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

        The time limit covers reading the data, every step, evaluation and checkpoint, the last ones included. Once the
        steps are planned, their number ends the training.
        """
        config, progress = self.config, self.progress
        if progress.step >= self.total:
            return "finished" if progress.step >= config.epochs * self.data.batches else TIME_IS_UP
        if config.patience and progress.bad >= config.patience:
            return "no better evaluation"
        limited = config.minutes and not self._is_planned
        return TIME_IS_UP if limited and progress.seconds + progress.reserve >= 60 * config.minutes else ""

    def _interruption(self) -> str:
        requested = self.stop_requested if self.sliced is None else self.sliced.stop_requested  # by any worker
        return "interrupted" if requested else ""

    def _report(self, step: Step) -> None:
        """Writes a line to metrics.jsonl every REPORT_EVERY steps, with their mean loss, and for every evaluation."""
        progress = self.progress
        progress.nats, progress.count = progress.nats + step.loss.nats, progress.count + step.loss.count
        if not (step.evaluation or step.number % REPORT_EVERY == 0):
            return
        loss = Likelihood(progress.nats, progress.count)
        progress.nats, progress.count = 0.0, 0
        record: dict[str, Any] = {"step": step.number, "epoch": step.epoch, "train_cross_entropy": loss.cross_entropy}
        record |= {"grad_norm": step.grad_norm, "learning_rate": step.learning_rate, "seconds": round(step.seconds, 3)}
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
        usual = next(
            rate for kind in (type(self.config), TrainConfig) if (rate := kind().learning_rate) > 0
        )  # not AUTO
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
        if self.run_directory or not self.workers.alone:  # all workers, because each has its part of the carried state
            tensors, metadata = self.state()
            if self.run_directory:
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
        carried = self.carried if self.sliced is None else self.sliced.join(self.carried)
        for number, tensor in enumerate(state_leaves(carried)):
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
        whole = map_state(lambda like: next(leaves).to(like.device), carried) if "carried.0" in tensors else None
        self.carried = whole if self.sliced is None else self.sliced.split(whole)
