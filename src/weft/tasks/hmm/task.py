"""The hidden Markov model task: Baum-Welch with restarts, in a trainer that saves its state and resumes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from weft.cells import State
from weft.metrics import Likelihood
from weft.tasks.fill.predictor import FillPredictor
from weft.tasks.fill.service import fill_service
from weft.tasks.hmm.baum_welch import Counts, Iteration, baum_welch, expected_counts, random_hmm
from weft.tasks.hmm.command import COMMANDS
from weft.tasks.hmm.config import HmmConfig
from weft.tasks.hmm.inspection import inspect_hmm
from weft.tasks.hmm.model import HMM, Observations
from weft.tasks.inspection import Inspection
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.lm.service import serve_lm
from weft.tasks.prepared import TaskTrainer
from weft.tasks.service import Service
from weft.tasks.text_task import TextData, TextTask
from weft.text.codec import Codec
from weft.training.build import check_memory
from weft.training.distributed import current_workers, split_evenly
from weft.training.run import CHECKPOINT, WEIGHTS, Run, with_prefix
from weft.training.schedule import Pace
from weft.training.slices import sum_slices
from weft.training.step import TIME_IS_UP, Evaluation, Progress, Step

SAVE_SECONDS = 5.0  # between saves of everything a resumed run needs


class Scored(NamedTuple):
    """A model and its scores on the training text."""

    model: HMM
    log_likelihood: float
    objective: float


class HmmTrainer:
    """Trains by Baum-Welch from one or more random models and keeps the best.

    A step is one iteration on the whole text, an epoch one restart; `progress.batch` counts iterations of a restart. A
    resumed run repeats the E-step of the last saved model, so results equal those of an undisturbed run bit for bit.
    """

    def __init__(self, run: Run, config: HmmConfig, data: TextData) -> None:
        self.run_directory: Run | None = run
        self.config, self.data, self.progress = config, data, Progress()
        self.workers = current_workers()
        self.size = len(data.codec.vocabulary)
        states = config.model.num_states
        check_memory("training this model", 8 * 4 * states * (states + self.size + 1))  # doubles; model, best, counts
        self.model = self._first_model(0)
        self.best: Scored | None = None
        self.before = -math.inf  # the objective one iteration ago
        self.stop_requested = False
        self._stopping = False  # in all workers, at the same iteration
        self.pace = Pace(0, SAVE_SECONDS)

    @property
    def total(self) -> int:
        return self.config.train.restarts * (self.config.train.iterations + 1)

    def _first_model(self, restart: int) -> HMM:
        return random_hmm(self.config.model.num_states, self.size, seed=self.config.train.seed + restart)

    def stop(self) -> None:
        self.stop_requested = True

    def end_reason(self) -> str:
        train, progress = self.config.train, self.progress
        if progress.epoch >= train.restarts:
            return "finished"
        return TIME_IS_UP if train.minutes and progress.seconds >= 60 * train.minutes else ""

    def run(self) -> Iterator[Step]:
        if self.progress.step and self.end_reason():
            return
        self.progress.seconds = self.workers.first(self.progress.seconds)
        began = self.workers.now() - self.progress.seconds
        saved = ended = self.workers.now()  # of the last checkpoint, of the last step
        tokens, length = self.data.train, self.config.train.seq_length
        sequences = [tokens[begin : begin + length] for begin in range(0, len(tokens), length)]
        while self.progress.epoch < self.config.train.restarts:
            done = self.progress.batch  # iterations of this restart before a resume
            steps = baum_welch(self.model, sequences, smoothing=self.config.train.smoothing, expect=self._expect)
            if done:
                next(steps)  # the model that was saved, whose step was reported already
            for iteration in steps:
                converged = self._advance(iteration)
                self.pace.add_step(self.workers.now() - ended)
                self.progress.seconds = self.workers.now() - began
                finished = converged and self.progress.epoch + 1 == self.config.train.restarts
                end = "finished" if finished else self.end_reason()
                evaluation = self._evaluate() if (converged or end) and self.data.dev is not None else None
                end = end or ("interrupted" if self._stopping else "")
                self.progress.seconds = self.workers.now() - began
                step = self._step(iteration, evaluation, end)
                self._report(step)
                if converged:
                    self._next_restart()
                if end or converged or self.workers.now() - saved >= SAVE_SECONDS:
                    self.save()
                    self.workers.synchronize()
                    saved = self.workers.now()
                ended = self.workers.now()
                yield step
                if end:
                    return
                if converged:
                    break

    def _expect(self, model: HMM, sequences: Sequence[Observations]) -> Counts:
        """The expected counts of all sequences; with `train.slices`, summed over slices and workers."""
        slices = self.config.train.slices
        if slices == 1:
            counts = expected_counts(model, sequences)
            self._stopping = self.stop_requested
            return counts
        own = split_evenly(slices, self.workers.size)[self.workers.rank]
        notes = list[float]()

        def parts() -> Iterator[Tensor]:
            for number in own:
                yield expected_counts(model, sequences[number::slices]).flat()
            notes.extend([time.perf_counter(), float(self.stop_requested)])

        like = model.initial.new_empty(model.states * (1 + model.states + model.size) + 1)
        total, found = sum_slices(self.workers, slices, parts(), notes, like=like)
        if not self.workers.alone:
            self.workers.set_clock(float(found[0, 0]))
        self._stopping = bool(found[:, 1].any())
        return Counts.from_flat(total, model)

    def _advance(self, iteration: Iteration) -> bool:
        """Takes note of an iteration; returns whether its restart is over."""
        train, progress = self.config.train, self.progress
        number = progress.batch  # from 0: the random model
        progress.step += 1
        progress.batch += 1
        self.model = iteration.model
        if self.best is None or iteration.objective > self.best.objective:
            self.best = Scored(iteration.model, iteration.log_likelihood, iteration.objective)
        gain, self.before = iteration.objective - self.before, iteration.objective
        return number >= train.iterations or gain < train.tolerance * len(self.data.train)

    def _next_restart(self) -> None:
        self.progress.epoch, self.progress.batch, self.before = self.progress.epoch + 1, 0, -math.inf
        if self.progress.epoch < self.config.train.restarts:
            self.model = self._first_model(self.progress.epoch)

    def _evaluate(self) -> Evaluation:
        """The held-out likelihood of the best model so far."""
        assert self.best is not None
        assert self.data.dev is not None
        found = self.best.model.evaluate(self.data.dev)
        metrics = {"cross_entropy": found.cross_entropy, "perplexity": found.perplexity}
        self.progress.best, self.progress.best_metrics, self.progress.best_step = (
            found.cross_entropy,
            metrics,
            self.progress.step,
        )
        return Evaluation(found.cross_entropy, metrics)

    def _step(self, iteration: Iteration, evaluation: Evaluation | None, end: str) -> Step:
        loss = Likelihood(-iteration.log_likelihood, len(self.data.train))
        best = self.best is not None and self.best.model is iteration.model
        epoch, seconds, number = self.progress.epoch + 1, self.progress.seconds, self.progress.step
        took, left = self.pace.step_seconds, self._remaining()
        return Step(number, self.total, epoch, loss, 0.0, 0.0, seconds, evaluation, best, end, took, left)

    def _remaining(self) -> float:
        """Estimates the seconds to the end, if no restart converges early."""
        train, progress = self.config.train, self.progress
        iterations = self.total - progress.epoch * (train.iterations + 1) - progress.batch
        left = self.pace.forecast(progress.step, iterations)
        return min(left, max(0.0, 60 * train.minutes - progress.seconds)) if train.minutes else left

    def _report(self, step: Step) -> None:
        record: dict[str, Any] = {
            "step": step.number,
            "epoch": step.epoch,
            "train_cross_entropy": step.loss.cross_entropy,
        }
        record["seconds"] = round(step.seconds, 3)
        if step.evaluation:
            record["evaluation"] = step.evaluation.metrics
        if self.run_directory:
            self.run_directory.report(record)

    def save(self) -> None:
        """Writes the best model, and everything a resumed run needs."""
        if self.run_directory is not None:
            if self.best is not None:
                metadata = {"log_likelihood": self.best.log_likelihood}
                self.run_directory.save(WEIGHTS, self.best.model.tensors(), metadata)
            self.run_directory.save(CHECKPOINT, *self.state())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"model.{name}": tensor for name, tensor in self.model.tensors().items()}
        metadata: dict[str, Any] = {"progress": vars(self.progress).copy(), "before": self.before, "best": None}
        if self.best is not None:
            tensors |= {f"best.{name}": tensor.clone() for name, tensor in self.best.model.tensors().items()}
            metadata["best"] = [self.best.log_likelihood, self.best.objective]
        return tensors, metadata

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any], carried: State = None) -> None:
        self.progress, self.before = Progress(**metadata["progress"]), metadata["before"]
        self.model = HMM.from_tensors(with_prefix(tensors, "model."))
        if metadata["best"] is not None:
            self.best = Scored(HMM.from_tensors(with_prefix(tensors, "best.")), *metadata["best"])


class HmmTask(TextTask[HmmConfig, LmPredictor]):
    """Trains a hidden Markov model of a text by Baum-Welch."""

    name = "hmm"
    commands = COMMANDS
    config_class = HmmConfig
    loss_smoothing = 0.0
    fixed_settings = ("train.seq_length", "train.seed", "train.smoothing")

    def initialize(self, trainer: TaskTrainer, origin: Run) -> None:
        assert isinstance(trainer, HmmTrainer)
        trainer.model = HMM.from_tensors(origin.weights())

    def make_trainer(self, run: Run, config: HmmConfig, data: TextData) -> tuple[HmmTrainer, None]:
        return HmmTrainer(run, config, data), None

    def load(self, run: Run) -> LmPredictor:
        return LmPredictor(run, HMM.from_tensors(run.weights()), Codec.from_json(run.vocabulary))

    def load_for(self, capability: str, run: Run) -> LmPredictor | FillPredictor:
        if capability == "fill":
            return FillPredictor(run, HMM.from_tensors(run.weights()), Codec.from_json(run.vocabulary))
        return self.load(run)

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        return inspect_hmm(predictor, text)

    def serve(self, predictor: LmPredictor) -> Service:
        assert isinstance(predictor.model, HMM)
        return serve_lm(predictor, fill_service(FillPredictor(predictor.run, predictor.model, predictor.codec)))


TASK = HmmTask()
start_hmm, train_hmm, resume_hmm = TASK.start, TASK.train, TASK.resume
