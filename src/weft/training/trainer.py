"""The trainer: a generator of steps.

    for step in trainer.run():
        ...                       # look at it, print it, stop whenever you like

There are no callbacks. Everything the next step depends on is in the trainer's state: weights, optimizer,
schedule, random state, place in the data, carried state. So 10 steps are 5 steps, a kill, a resume and 5 steps,
bit for bit on the CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.errors import WeftError
from weft.metrics import Likelihood
from weft.nn import map_state
from weft.training.config import TrainConfig
from weft.training.loss import Loss
from weft.training.optimizer import OPTIMIZERS, Optimizer
from weft.training.run import BEST, LAST, Run, below


class Data(Protocol):
    """Batches by epoch and number, so that a resumed run finds its place."""

    @property
    def batches(self) -> int: ...

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]: ...


class Evaluation(NamedTuple):
    """How good the model is on held-out data: one score to choose by, lower is better, and facts to show."""

    score: float
    facts: dict[str, float]


class Step(NamedTuple):
    """What one step did."""

    number: int  # from 1
    total: int  # steps in all, if nothing stops it before
    epoch: int  # from 1
    loss: Likelihood
    norm: float  # of the gradient, before clipping
    rate: float
    seconds: float  # of training so far, evaluations and what came before a resume included
    evaluation: Evaluation | None
    best: bool  # the evaluation is the best so far
    end: str  # why training ends here, or ""


REPORT_EVERY = 20  # steps between lines of metrics.jsonl


@dataclass
class Place:
    """Where training stands: everything of its state that is a number."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    best: float = math.inf
    best_facts: dict[str, float] = field(default_factory=dict)  # what the best evaluation found
    best_step: int = 0
    bad: int = 0  # evaluations since the best one
    plateau_bad: int = 0
    decay: float = 1.0  # the plateau schedule's factor
    nats: float = 0.0  # the loss since the last report, and its count
    count: int = 0


# step, steps in all, warm-up -> the share of the full rate
SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "constant": lambda step, total, warmup: 1.0,
    "plateau": lambda step, total, warmup: 1.0,  # its factor depends on evaluations: Place.decay
    "cosine": lambda step, total, warmup: (
        (step + 1) / (warmup + 1)
        if step < warmup
        else 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
    ),
}


class Trainer:
    """Trains `model` on `data` by the `objective`, evaluates, and saves into the run directory if one is given.

    `objective(batch, carried)` gives the loss of one batch and, in its `state`, what to carry to the next.
    `evaluate()` is called after each epoch, or every so many steps, and gives what the best weights are chosen by.
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
        self.place = Place()
        self.carried: State = None
        self.average = self._copies() if config.ema_decay else None  # running means of the weights
        self.stop_wanted = False

    @property
    def total(self) -> int:
        return self.config.epochs * self.data.batches

    def stop(self) -> None:
        """Finish the step under way, save, and end. For signal handlers."""
        self.stop_wanted = True

    def run(self) -> Iterator[Step]:
        """Train from where the state stands; yields every step after it is done (and saved, where it is)."""
        started = time.perf_counter() - self.place.seconds
        saved = time.perf_counter()
        while self.place.epoch < self.config.epochs:
            for batch in self.data.epoch(self.place.epoch, self.place.batch):
                step = self._step(batch)
                self.place.seconds = time.perf_counter() - started
                if self._evaluation_due():
                    step = self._evaluate(step)
                    self.place.seconds = time.perf_counter() - started
                step = step._replace(seconds=self.place.seconds, end=self._end() or self._interruption())
                self._report(step)
                if self.place.batch == self.data.batches:
                    self.place.epoch, self.place.batch, self.carried = self.place.epoch + 1, 0, None
                if step.end or step.evaluation or time.perf_counter() - saved >= self.config.save_seconds:
                    self.save()
                    saved = time.perf_counter()
                yield step
                if step.end:
                    return

    def _step(self, batch: Any) -> Step:
        config, place = self.config, self.place
        # A short training must not end before it has reached its full rate.
        warmup = min(config.warmup_steps, self.total // 4)
        rate = config.learning_rate * place.decay * SCHEDULES[config.schedule](place.step, self.total, warmup)
        if not self.model.training:
            self.model.train()
        loss = self.objective(batch, self.carried)
        self.optimizer.zero_grad()
        loss.total.backward(loss.total.new_full((), 1 / max(1, loss.count)))  # type: ignore[no-untyped-call]
        nats = float(loss.total.detach())
        norm = self._move(rate) if math.isfinite(nats) else math.nan
        if not math.isfinite(norm):
            self._diverged(nats, norm, rate)
        self.carried = loss.state
        place.step += 1
        place.batch += 1
        return Step(
            place.step, self.total, place.epoch + 1, Likelihood(nats, loss.count), norm, rate, 0.0, None, False, ""
        )

    def _move(self, rate: float) -> float:
        """A step of the weights and of their means; the gradient's norm. Nothing moves if that is not finite."""
        clip, place = self.config.clip_norm, self.place
        if self.average is None:
            return self.optimizer.step(rate, clip=clip)
        # The first weights are far from where training goes: a short memory at first, so that they are forgotten.
        stays = min(self.config.ema_decay, place.step / (place.step + 10))
        return self.optimizer.step(rate, clip=clip, averages=list(self.average.values()), stays=stays)

    def _evaluation_due(self) -> bool:
        if self.evaluate is None:
            return False
        every = self.config.evaluate_every or self.data.batches
        # Not at an interruption: the resumed run would then have evaluated once more than an undisturbed one.
        return self.place.step % every == 0 or bool(self._end())

    def _evaluate(self, step: Step) -> Step:
        assert self.evaluate is not None
        self.model.eval()
        with self._averaged():
            return self._judge(step, self.evaluate())

    def _judge(self, step: Step, evaluation: Evaluation) -> Step:
        place = self.place
        best = evaluation.score < place.best
        if best:
            place.best, place.best_facts = evaluation.score, evaluation.facts
            place.best_step, place.bad, place.plateau_bad = place.step, 0, 0
            if self.run_directory:
                self.run_directory.save(BEST, self._weights(), {"step": place.step, **evaluation.facts})
        else:
            place.bad += 1
            place.plateau_bad += 1
            if self.config.schedule == "plateau" and place.plateau_bad > self.config.plateau_patience:
                place.decay *= self.config.plateau_factor
                place.plateau_bad = 0
        return step._replace(evaluation=evaluation, best=best)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The model has the mean weights for a while, where means are kept."""
        if self.average is None:
            yield
            return
        own = self._copies()
        self._fill(self.average)
        try:
            yield
        finally:
            self._fill(own)

    def _copies(self) -> dict[str, Tensor]:
        """Of the parameters that are trained, in the optimizer's order."""
        named = self.model.named_parameters()
        return {name: parameter.detach().clone() for name, parameter in named if parameter.requires_grad}

    @torch.no_grad()
    def _fill(self, weights: dict[str, Tensor]) -> None:
        for parameter, weight in zip(self.parameters, weights.values(), strict=True):
            parameter.copy_(weight)

    def _end(self) -> str:
        config, place = self.config, self.place
        if place.step >= self.total:
            return "finished"
        if config.patience and place.bad >= config.patience:
            return "no better evaluation"
        if config.minutes and place.seconds >= 60 * config.minutes:
            return "time is up"
        return ""

    def _interruption(self) -> str:
        return "interrupted" if self.stop_wanted else ""

    def _report(self, step: Step) -> None:
        """A line for metrics.jsonl every REPORT_EVERY steps, over all of them, and for every evaluation."""
        place = self.place
        place.nats, place.count = place.nats + step.loss.nats, place.count + step.loss.count
        if not (step.evaluation or step.number % REPORT_EVERY == 0):
            return
        loss = Likelihood(place.nats, place.count)
        place.nats, place.count = 0.0, 0
        record: dict[str, Any] = {"step": step.number, "epoch": step.epoch, "train_nats": loss.cross_entropy}
        record |= {"norm": step.norm, "rate": step.rate, "seconds": round(step.seconds, 3)}
        if step.evaluation:
            record |= {"evaluation": step.evaluation.facts, "best": step.best}
        if self.run_directory:
            self.run_directory.report(record)

    def _diverged(self, nats: float, norm: float, rate: float) -> None:
        where = ""
        if self.run_directory:
            if all(bool(parameter.isfinite().all()) for parameter in self.parameters):
                self.save()
            where = f"; the last good state is in {self.run_directory.path}, --resume goes on from there"
        raise WeftError(
            f"step {self.place.step + 1}: the loss is {nats} and the gradient's norm {norm} at a rate of {rate:.3g}",
            expected="finite numbers",
            hint=f"--set train.learning_rate={self.config.learning_rate / 3:.2g} or --set train.clip_norm=1{where}",
        )

    def save(self) -> None:
        """Write everything a resumed run needs into the run directory, if there is one."""
        if self.run_directory:
            tensors, facts = self.state()
            self.run_directory.save(LAST, tensors, facts)

    def _weights(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All of the training's state: tensors by name, and numbers."""
        tensors = {f"model.{name}": tensor for name, tensor in self._weights().items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in self.optimizer.state().items()}
        if self.average is not None:
            tensors |= {f"average.{name}": mean for name, mean in self.average.items()}
        tensors["random"] = torch.get_rng_state()
        for number, tensor in enumerate(_leaves(self.carried)):
            tensors[f"carried.{number}"] = tensor
        return tensors, {"place": vars(self.place).copy(), "config": vars(self.config).copy()}

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any], carried: State = None) -> None:
        """Take up a saved state; `carried` is any carried state of the right shape, to be filled."""
        self.model.load_state_dict(below(tensors, "model."))
        self.optimizer.restore(below(tensors, "optimizer."))
        if self.average is not None:
            saved, self.average = below(tensors, "average."), self._copies()
            for name, mean in self.average.items():
                if saved:  # none are saved by a run that had none
                    mean.copy_(saved[name])
        torch.set_rng_state(tensors["random"])
        self.place = Place(**facts["place"])
        leaves = iter([tensors[f"carried.{number}"] for number in range(len(below(tensors, "carried.")))])
        self.carried = map_state(lambda like: next(leaves).to(like.device), carried) if "carried.0" in tensors else None


def _leaves(state: State) -> list[Tensor]:
    found: list[Tensor] = []
    if state is not None:
        map_state(lambda tensor: found.append(tensor) or tensor, state)  # type: ignore[func-returns-value]
    return found
