"""The trainer: a generator of steps.

    for step in trainer.run():
        ...                       # inspect it, print it, stop at any time

There are no callbacks. A training is a list of phases: gradient descent, Baum-Welch, counting; one for each member of
an ensemble. A phase computes; the trainer has the time limit, the evaluations, the best weights and the checkpoints.
The state has all that the next step depends on, so 10 steps equal 5 steps, a kill, a resume and 5 steps, bit for bit
on the CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from weft.engine import reproducible
from weft.errors import WeftError, warn
from weft.metrics import CROSS_ENTROPY, Metric
from weft.training.distributed import current_workers
from weft.training.loss import MeanLoss
from weft.training.run import CHECKPOINT, WEIGHTS, Run, decoding, with_prefix
from weft.training.schedule import HEADROOM, PLANNED, RESUMED, Pace
from weft.training.step import INTERRUPTED, TIME_IS_UP, Evaluation, Progress, Step


class Update(NamedTuple):
    """What a phase did in one step."""

    loss: MeanLoss
    epoch: int  # from 1
    grad_norm: float | None = None  # global norm of the gradient before clipping; None where there is no gradient
    learning_rate: float | None = None
    evaluation_due: bool = False
    stop: bool = False  # some worker was asked to stop
    note: str = ""  # what was done, where a step has no loss


class NotFiniteError(WeftError):
    """The loss or the gradient is not finite."""

    can_be_saved = True  # whether the weights are finite


class Phase(ABC):
    """A part of a training that is done in steps."""

    description: str = ""  # the data, in one line
    loss: Metric = CROSS_ENTROPY  # what the loss is, and what it is counted in
    model: Any  # what is trained
    epochs: int  # how many epochs it takes; `Progress.epoch` counts them
    minutes: float = 0.0  # its time limit; 0: none
    evaluate_every: int = 0  # the steps between evaluations; 0: they are irregular, or there are none
    patience: int = 0  # it ends after this many evaluations without a better one; 0: it does not
    save_seconds: float  # the seconds between checkpoints
    report_every: int = 20  # the steps between lines of metrics.jsonl; 1 where each step reads all data
    weights_file: str = WEIGHTS  # the file of the run that has its best weights
    member: int = 0  # its number among the members of an ensemble; 0: there are none
    # the phases whose results it needs, such as linear models that are mixed with it. Their time is its own; their
    # steps are not counted. The run has their results, so only the first member has to wait
    preparations: Sequence[Callable[[], Phase]] = ()
    # the held-out metric of simple baselines on the same data, by name
    baselines: Callable[[], Mapping[str, float]] = dict

    @abstractmethod
    def steps(self, progress: Progress) -> int:
        """The number of steps of the whole phase, if nothing ends it earlier."""

    @abstractmethod
    def step(self, progress: Progress, total: int, *, stop: bool) -> Update:
        """Does one step, of `total`, and advances the position in `progress`. Other workers learn of `stop`."""

    def evaluate(self) -> Evaluation:
        """Evaluates on held-out data."""
        raise AssertionError(f"{type(self).__name__} is not evaluated")

    @property
    def can_evaluate(self) -> bool:
        """Whether there is something to evaluate on."""
        return bool(self.evaluate_every)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Starts from given weights."""
        raise AssertionError(f"{type(self).__name__} starts from nothing")

    @abstractmethod
    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a run is loaded from: tensors by name, and metadata."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that its next step depends on, but for the progress: tensors by name, and metadata."""
        return {}, {}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:  # noqa: B027
        """Restores what `state` returned."""


class Trainer:
    """Trains phase after phase, evaluates, and saves checkpoints.

    Args:
        phases: builds each phase when it begins.
        run: the run directory to save into, or None to save nothing.
        evaluate_all: the held-out metrics of the run as it is loaded: of all phases together after the last one, or of
            what the preparations have made, where there was no time for a step.
    """

    def __init__(
        self,
        phases: Sequence[Callable[[], Phase]],
        *,
        run: Run | None = None,
        evaluate_all: Callable[[], dict[str, float]] | None = None,
    ) -> None:
        self.phases, self.run_directory, self.evaluate_all, self.run_read = phases, run, evaluate_all, run
        self.phase, self.progress = phases[0](), Progress()
        self.workers = current_workers()
        self.stop_requested = False
        self.preparation: Phase | None = None  # the one under way, and its steps
        self.preparation_steps = Progress()
        self.pace = self._new_pace()
        self._budget = 0.0  # seconds to the time limit when `run` began

    @property
    def model(self) -> Any:
        """What the present phase trains."""
        return self.phase.model

    @property
    def total(self) -> int:
        """The number of steps of the whole training, if further phases have as many as the present one."""
        return self.progress.steps_before + (len(self.phases) - self.progress.phase) * self._phase_total

    @property
    def _phase_total(self) -> int:
        steps = self.phase.steps(self.progress)
        return min(steps, self.progress.planned_steps) if self._is_planned else steps

    @property
    def _is_planned(self) -> bool:
        """Whether the number of steps for the present time limit is known; a resume may have changed the limit."""
        return self.progress.planned_steps > 0 and self.progress.planned_minutes == self.phase.minutes

    def _new_pace(self) -> Pace:
        ends = RESUMED if self._is_planned else PLANNED
        return Pace(self.phase.evaluate_every, self.phase.save_seconds, ends)

    def stop(self) -> None:
        """Requests the end: training finishes the current step, saves, and ends. Safe in signal handlers."""
        self.stop_requested = True

    def run(self) -> Iterator[Step]:
        """Trains from the current state. Yields every step after it is done (and saved, if it is saved)."""
        while True:
            for step in chain(self._prepare(), self._run_phase()):
                yield step
                if step.end == INTERRUPTED:
                    return
            if self.progress.phase + 1 == len(self.phases):
                self._evaluate_together()
                return
            self._next_phase()
            if self.stop_requested:
                return

    def _prepare(self) -> Iterator[Step]:
        """Runs the preparations of the present phase that have not been run. Saves after each step."""
        progress, pending = self.progress, self.phase.preparations
        began = self.workers.now() - progress.seconds
        while progress.prepared < len(pending) and not progress.phase:
            if self.preparation is None:
                self.preparation = pending[progress.prepared]()
            phase, own, before = self.preparation, self.preparation_steps, self.workers.now()
            total = phase.steps(own)
            with reproducible():
                update = phase.step(own, total, stop=False)
            stopped = self.workers.first(self.stop_requested)
            progress.seconds = self.workers.now() - began
            if own.step >= total:
                if self.run_directory:
                    self.run_directory.save(phase.weights_file, *phase.weights())
                self.workers.synchronize()
                if self.run_read and not self.run_read.has(phase.weights_file):  # a copy on another machine
                    self.run_read.save(phase.weights_file, *phase.weights())
                progress.prepared, self.preparation, self.preparation_steps = progress.prepared + 1, None, Progress()
            self.save()
            seconds = self.workers.now() - before
            yield Step(
                number=own.step,
                total=total,
                epoch=0,
                loss=update.loss,
                grad_norm=0.0,
                learning_rate=0.0,
                seconds=progress.all_seconds,
                end=INTERRUPTED if stopped else "",
                step_seconds=seconds,
                remaining=(total - own.step) * seconds,
                note=update.note,
            )

    def _run_phase(self) -> Iterator[Step]:
        """Trains the present phase to its end."""
        progress = self.progress
        progress.seconds = self.workers.first(progress.seconds)
        if self._has_ended():
            return
        began = self.workers.now() - progress.seconds
        self.pace = self._new_pace()
        self._budget = 60 * self.phase.minutes - progress.seconds
        saved = ended = self.workers.now()  # of the last checkpoint, of the last step
        end = ""
        while not end:
            update = self._update()
            self.pace.add_step(taken := self.workers.now() - ended)
            progress.seconds = self.workers.now() - began
            end, planning = self._phase_end(), self._plan_is_due()
            evaluation, best = None, False
            if self._evaluation_due(update, end, planning):
                evaluation, best = self._evaluate()
                progress.seconds = self.workers.now() - began
                end = self._phase_end()
            end = end or (INTERRUPTED if update.stop else "")
            self._report(update, evaluation, best=best)
            if planning and not end:
                self._timed_save()
                progress.seconds = self.workers.now() - began
                self._plan()
            step = self._step(update, evaluation, end, taken, best=best)
            if end and end != INTERRUPTED:
                self._save_unselected_weights()
            if end or evaluation or planning or self.workers.now() - saved >= self.phase.save_seconds:
                self._timed_save()
                saved = self.workers.now()
            ended = self.workers.now()
            yield self._last_of_all(step) if end and end != INTERRUPTED else step

    @reproducible()
    def _update(self) -> Update:
        try:
            return self.phase.step(self.progress, self._phase_total, stop=self.stop_requested)
        except NotFiniteError as error:
            if self.run_directory is None:
                raise
            if error.can_be_saved:
                self.save()
            hint = f"{error.hint}; the last checkpoint is in {self.run_directory.path}, `resume` continues from it"
            raise WeftError(error.given, expected=error.expected, hint=hint) from error

    def _step(self, update: Update, evaluation: Evaluation | None, end: str, taken: float, *, best: bool) -> Step:
        """The report of a step: its numbers and times are those of the whole training."""
        progress, after = self.progress, len(self.phases) - self.progress.phase - 1
        remaining = self._remaining()
        return Step(
            number=progress.all_steps,
            total=self.total,
            epoch=update.epoch,
            loss=update.loss,
            grad_norm=update.grad_norm or 0.0,
            learning_rate=update.learning_rate or 0.0,
            seconds=progress.all_seconds,
            evaluation=evaluation,
            best=best,
            end="" if after and end != INTERRUPTED else end,
            step_seconds=taken,
            remaining=remaining + after * (progress.seconds + remaining),
            of_batch=self.phase.report_every > 1,
        )

    def _plan_is_due(self) -> bool:
        """Whether the steps that fit into the time limit are to be counted: once, and if the speed changes much."""
        if not self.phase.minutes or not self.pace.is_measured(self._budget):
            return False
        end = (self.progress.seconds + self._remaining()) / (60 * self.phase.minutes)
        can_grow = self.progress.planned_steps < self.phase.steps(self.progress)
        return not self._is_planned or self.pace.misses(end, self.progress.step, can_grow=can_grow)

    def _plan(self) -> None:
        """Sets the number of steps, so that the training ends at the time limit with its schedule complete."""
        progress, most = self.progress, self.phase.steps(self.progress) - self.progress.step
        left = 60 * self.phase.minutes * (1 - HEADROOM) - progress.seconds
        progress.planned_steps = progress.step + self.pace.steps_within(left, progress.step, most)
        progress.planned_minutes = self.phase.minutes
        self.pace.ends = PLANNED

    def _remaining(self) -> float:
        """Estimates the seconds to the end of the phase."""
        forecast = self.pace.forecast(self.progress.step, self._phase_total - self.progress.step)
        limited = self.phase.minutes and not self._is_planned
        return min(forecast, max(0.0, 60 * self.phase.minutes - self.progress.seconds)) if limited else forecast

    def _timed_save(self) -> None:
        began = self.workers.now()
        self.save()
        self.workers.synchronize()
        self.pace.add_checkpoint(self.workers.now() - began)
        self.progress.reserve = max(self.progress.reserve, self.pace.checkpoint_seconds + self.pace.evaluation_seconds)

    def _evaluation_due(self, update: Update, end: str, planning: bool) -> bool:
        if not self.phase.can_evaluate:
            return False
        # Not at an interruption: the resumed run would then have one evaluation more than an uninterrupted one.
        unknown = planning and not self.pace.evaluation_seconds  # a plan has to know how long an evaluation takes
        return update.evaluation_due or bool(end) or unknown

    @reproducible()
    def _evaluate(self) -> tuple[Evaluation, bool]:
        """Evaluates; updates the best weights and the counters of early stopping. Returns whether it is the best."""
        began = self.workers.now()
        evaluation, progress = self.phase.evaluate(), self.progress
        best = progress.is_best(evaluation)
        if best:
            progress.add_best(evaluation)
            if self.run_directory:
                tensors, metadata = self.phase.weights()
                metadata = {**metadata, "step": progress.step, **evaluation.metrics}
                self.run_directory.save(self.phase.weights_file, tensors, metadata)
        else:
            progress.bad += 1
            progress.plateau_bad += 1
        self.workers.synchronize()
        self.pace.add_evaluation(self.workers.now() - began)
        return evaluation, best

    def _has_ended(self) -> bool:
        """Whether there is no step to take: the phase ended before it was resumed, or reading took all the time."""
        end = self._phase_end()
        if end == TIME_IS_UP and not self.progress.step:
            warn(
                f"the time limit of {self.phase.minutes:g} minutes was over before the first step: "
                f"{'preparing' if self.phase.preparations else 'reading and encoding'} the data took "
                f"{self.progress.seconds:.0f} s; the {'network' if self.phase.preparations else 'model'} is not trained"
            )
        return bool(end)

    def end_reason(self) -> str:
        """Why training is over, or "" if it is not."""
        return self._phase_end() if self.progress.phase + 1 == len(self.phases) else ""

    def _phase_end(self) -> str:
        """Why the present phase is over, or "" if it is not.

        The time limit covers reading the data, every step, evaluation and checkpoint, the last ones included. Once the
        steps are planned, their number ends the training.
        """
        phase, progress = self.phase, self.progress
        if progress.epoch >= phase.epochs:
            return "finished"
        if progress.step >= self._phase_total:
            return TIME_IS_UP
        if phase.patience and progress.bad >= phase.patience:
            return "no better evaluation"
        limited = phase.minutes and not self._is_planned
        return TIME_IS_UP if limited and progress.seconds + progress.reserve >= 60 * phase.minutes else ""

    def _report(self, update: Update, evaluation: Evaluation | None, *, best: bool) -> None:
        """Writes a line to metrics.jsonl every so many steps, with their mean loss, and for every evaluation."""
        progress = self.progress
        progress.loss_total += update.loss.total
        progress.loss_count += update.loss.count
        if not (evaluation or progress.step % self.phase.report_every == 0):
            return
        loss = MeanLoss(progress.loss_total, progress.loss_count)
        progress.loss_total, progress.loss_count = 0.0, 0
        record: dict[str, Any] = {"step": progress.all_steps, "epoch": update.epoch}
        record[f"train_{self.phase.loss.name}"] = loss.value
        if update.grad_norm is not None:
            record |= {"grad_norm": update.grad_norm, "learning_rate": update.learning_rate}
        record["seconds"] = round(progress.seconds, 3)
        if evaluation:
            record |= {"evaluation": evaluation.metrics, "best": best}
        if self.phase.member:
            record["member"] = self.phase.member
        if self.run_directory:
            self.run_directory.report(record)

    def save(self) -> None:
        """Saves a checkpoint into the run directory, if there is one."""
        if self.run_directory or not self.workers.alone:  # all workers, because each has its part of the carried state
            tensors, metadata = self.state()
            if self.run_directory:
                self.run_directory.save(CHECKPOINT, tensors, metadata)

    def _save_unselected_weights(self) -> None:
        """Stores the weights at the end of a phase, if no evaluation has selected the best."""
        phase, run = self.phase, self.run_directory
        if run and not (phase.can_evaluate and run.has(phase.weights_file)):
            tensors, metadata = phase.weights()
            run.save(phase.weights_file, tensors, {**metadata, "step": self.progress.step})

    def _next_phase(self) -> None:
        done = self.progress
        self.progress = Progress(done.phase + 1, steps_before=done.all_steps, seconds_before=done.all_seconds)
        self.phase = self.phases[self.progress.phase]()
        self.save()

    def _last_of_all(self, step: Step) -> Step:
        """The last step of a phase; that of the last phase has the evaluation of all phases together."""
        together = self.progress.phase + 1 == len(self.phases) and self._evaluate_together()
        return step._replace(evaluation=together, best=True) if together else step

    @reproducible()
    def _evaluate_together(self) -> Evaluation | None:
        """Evaluates all phases together, once, after the last of them; None if that has been done or is of no use."""
        progress = self.progress
        untrained = bool(progress.prepared) and not progress.all_steps
        if self.evaluate_all is None or self.run_directory is None or progress.evaluated_together:
            return None
        if len(self.phases) == 1 and not untrained:  # its own evaluations are all that there is to know
            return None
        metrics, progress.evaluated_together = self.evaluate_all(), True
        if metrics:
            progress.best_metrics, progress.best_step = metrics, progress.all_steps
        self.save()
        if not metrics:
            return None
        record = {"step": progress.all_steps, "epoch": progress.epoch, "members": len(self.phases)}
        self.run_directory.report({**record, "evaluation": metrics, "best": True})
        return Evaluation(0.0, metrics)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns the complete training state: tensors by name, and metadata."""
        tensors, metadata = self.phase.state()
        if self.preparation is not None:
            own, content = self.preparation.state()
            tensors = {**tensors, **{f"preparation.{name}": tensor for name, tensor in own.items()}}
            metadata = {**metadata, "preparation": [content, vars(self.preparation_steps).copy()]}
        return tensors, {**metadata, "progress": vars(self.progress).copy()}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        """Restores a state that `state` returned."""
        file = Path(CHECKPOINT) if self.run_directory is None else self.run_directory.file(CHECKPOINT)
        with decoding(file):
            progress = Progress.from_json(metadata["progress"])
            make_phase = self.phases[progress.phase]
        if progress.phase != self.progress.phase:
            self.phase = make_phase()
        self.progress = progress
        with decoding(file):
            self.phase.restore(tensors, metadata)
            content, steps = metadata.get("preparation", (None, None))
            make_preparation = None if steps is None else self.phase.preparations[progress.prepared]
        if make_preparation is not None:
            self.preparation = make_preparation()
            with decoding(file):
                self.preparation_steps = Progress.from_json(steps)
                self.preparation.restore(with_prefix(tensors, "preparation."), content)
