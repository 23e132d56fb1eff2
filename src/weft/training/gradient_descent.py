"""Gradient descent: the phase of a training that trains a torch model on batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.data.sharing import sharing
from weft.metrics import CROSS_ENTROPY, Metric
from weft.nn import map_state
from weft.nn.states import state_leaves
from weft.training.config import TrainConfig
from weft.training.devices import mixed_precision
from weft.training.distributed import current_workers
from weft.training.loss import Loss, MeanLoss
from weft.training.optimizer import LayerGroups, Optimizer, rules_for
from weft.training.run import with_prefix
from weft.training.schedule import SCHEDULES
from weft.training.slices import SlicedGradient
from weft.training.step import Evaluation, Progress
from weft.training.trainer import NotFiniteError, Phase, Update


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


class GradientDescent(Phase):
    """Trains the weights of a model by gradient descent.

    Args:
        model: the model; parameters with requires_grad are trained.
        objective: maps (batch, carried state) to the loss; the state of that loss is carried to the next batch.
        config: the `train` settings.
        evaluate: evaluates the model on held-out data, after each epoch or every `config.evaluate_every` steps.
        groups: learning rates of their own for groups of parameters, and when they are unfrozen; None: all alike.
        carried: a state of the structure that the loss carries between batches, if it carries any.

    `done` is the part of the training that is done, from 0 to 1, for objectives that change.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        objective: Callable[[Any, State], Loss],
        config: TrainConfig,
        *,
        evaluate: Callable[[], Evaluation] | None = None,
        groups: LayerGroups | None = None,
        carried: State = None,
        description: str = "",
        loss: Metric = CROSS_ENTROPY,
    ) -> None:
        self.model, self.data, self.objective, self.config, self.groups = model, data, objective, config, groups
        self.description, self.epochs, self.minutes = description, config.epochs, config.minutes
        self.loss, self.done = loss, 0.0
        self.patience, self.save_seconds = config.patience, config.save_seconds
        self.evaluate_every = 0 if evaluate is None else config.evaluate_every or data.batches
        self.trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.parameters = list(self.trained.values())
        factors = None if groups is None else groups.rate_factors(self.parameters)
        self.optimizer = Optimizer(self.parameters, rules_for(model, self.parameters, config), factors)
        self.ema = self._copies() if config.ema_decay else None  # averaged weights by name
        self.workers = current_workers()
        self.sliced = SlicedGradient(self.parameters, config, self.workers) if config.slices > 1 else None
        self.carried: Any = None  # the state to carry to the next batch; a list with one of each own slice
        self._evaluate, self._structure = evaluate, carried
        self._batches: Iterator[Any] | None = None  # the rest of the epoch

    def steps(self, progress: Progress) -> int:
        return self.config.epochs * self.data.batches

    def step(self, progress: Progress, total: int, *, stop: bool) -> Update:
        config, self.done = self.config, progress.step / max(1, total)
        if config.schedule == "plateau" and progress.plateau_bad > config.plateau_patience:
            progress.decay *= config.plateau_factor
            progress.plateau_bad = 0
        # A short training must not end before it has reached its full learning rate.
        warmup = min(config.warmup_steps, total // 4)
        factor = SCHEDULES[config.schedule](progress.step, total, warmup)
        learning_rate = config.learning_rate * progress.decay * factor
        if not self.model.training:
            self.model.train()
        if self.groups is not None:
            self.groups.freeze(self.groups.active(progress.step, epoch_steps=self.data.batches, total=total))
        loss, stop = self._gradient(self._next_batch(progress), progress.step, stop=stop)
        grad_norm = self._update(learning_rate, progress.step) if math.isfinite(loss.total) else math.nan
        if not math.isfinite(grad_norm):
            raise self._diverged(progress.step + 1, loss.total, grad_norm, learning_rate)
        epoch = progress.epoch + 1
        progress.step += 1
        progress.batch += 1
        due = bool(self.evaluate_every) and progress.step % self.evaluate_every == 0
        if progress.batch == self.data.batches:
            progress.epoch, progress.batch, self.carried, self._batches = epoch, 0, None, None
        return Update(loss, epoch, grad_norm, learning_rate, evaluation_due=due, stop=stop)

    def _next_batch(self, progress: Progress) -> Any:
        """The batch at the present position; where batches are cut into slices, a function that reads a slice."""
        if self._batches is None:
            position = progress.epoch, progress.batch
            self._batches = iter(
                self.data.sliced_epoch(*position, self.config.slices) if self.sliced else self.data.epoch(*position)
            )
        return next(self._batches)

    def _gradient(self, batch: Any, step: int, *, stop: bool) -> tuple[MeanLoss, bool]:
        """Sets the gradients to those of the batch's mean loss; returns that loss, and whether to stop."""
        if self.sliced is not None:
            self.sliced.stop_requested = stop
            loss, self.carried = self.sliced.compute(batch, self._forward, self.carried, step)
            return loss, self.sliced.stop_requested  # by any worker
        found = self._forward(batch, self.carried)
        self.optimizer.zero_grad()
        (found.total * (1 / max(1, found.count))).backward()  # type: ignore[no-untyped-call]
        self.carried = found.state
        return MeanLoss(float(found.total.detach()), found.count), stop

    def _forward(self, batch: Any, carried: State) -> Loss:
        with mixed_precision(self.config.precision, self.parameters[0].device):
            return self.objective(batch, carried)

    def _update(self, learning_rate: float, step: int) -> float:
        """Updates the weights and their EMA unless the gradient norm is not finite. Returns that norm."""
        ema = None if self.ema is None else list(self.ema.values())
        # The initial weights are far from the final ones: a small decay at first removes them from the average.
        decay = min(self.config.ema_decay, step / (step + 10))
        return self.optimizer.step(learning_rate, clip_norm=self.config.clip_norm, ema=ema, ema_decay=decay)

    def _diverged(self, step: int, total: float, grad_norm: float, learning_rate: float) -> NotFiniteError:
        kinds = (type(self.config), TrainConfig)
        usual = next(rate for kind in kinds if (rate := kind().learning_rate) > 0)  # not AUTO
        lower = self.config.learning_rate / 3 if self.config.learning_rate <= 10 * usual else usual
        error = NotFiniteError(
            f"step {step}: the loss is {total} and the gradient norm {grad_norm} "
            f"at a learning rate of {learning_rate:.3g}",
            expected="finite values",
            hint=f"a lower learning rate (`train.learning_rate={lower:.2g}`) or gradient clipping "
            "(`train.clip_norm=1`)",
        )
        error.can_be_saved = all(bool(parameter.isfinite().all()) for parameter in self.parameters)
        return error

    def evaluate(self) -> Evaluation:
        assert self._evaluate is not None
        self.model.eval()
        computed = mixed_precision(self.config.precision, self.parameters[0].device)
        with self._averaged(), sharing(self.config.slices, self.workers.map), computed:
            return self._evaluate()

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

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Starts from given weights instead of random ones."""
        self.model.load_state_dict(weights)
        self.ema = self._copies() if self.config.ema_decay else None

    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {**self.model.state_dict(), **(self.ema or {})}, {}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in self.optimizer.state().items()}
        if self.ema is not None:
            tensors |= {f"ema.{name}": average for name, average in self.ema.items()}
        tensors["random"] = torch.get_rng_state()
        carried = self.carried if self.sliced is None else self.sliced.join(self.carried)
        for number, tensor in enumerate(state_leaves(carried)):
            tensors[f"carried.{number}"] = tensor
        return tensors, {"config": vars(self.config).copy()}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        self.model.load_state_dict(with_prefix(tensors, "model."))
        self.optimizer.restore(with_prefix(tensors, "optimizer."))
        if self.ema is not None:
            saved, self.ema = with_prefix(tensors, "ema."), self._copies()
            for name, average in self.ema.items():
                if saved:  # a run without an EMA has saved none
                    average.copy_(saved[name])
        torch.set_rng_state(tensors["random"])
        leaves = iter([tensors[f"carried.{number}"] for number in range(len(with_prefix(tensors, "carried.")))])
        whole = (
            map_state(lambda like: next(leaves).to(like.device), self._structure) if "carried.0" in tensors else None
        )
        self.carried = whole if self.sliced is None else self.sliced.split(whole)
        self._batches = None
