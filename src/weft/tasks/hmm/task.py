"""The hidden Markov model task: Baum-Welch with restarts, as a phase of training."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from weft.tasks.fill.predictor import FillPredictor
from weft.tasks.hmm.baum_welch import Counts, Iteration, baum_welch, expected_counts, random_hmm
from weft.tasks.hmm.config import HmmConfig
from weft.tasks.hmm.model import HMM, Observations
from weft.tasks.inspection import ChainView, Inspection
from weft.tasks.lm.inspection import inspect_steps, read_tokens
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.text_task import TextData, TextTask
from weft.text.text_field import Text
from weft.training.build import check_memory
from weft.training.distributed import current_workers, split_evenly
from weft.training.loss import MeanLoss
from weft.training.run import Run, decoding, with_prefix
from weft.training.slices import sum_slices
from weft.training.step import Evaluation, Progress
from weft.training.trainer import Phase, Update

EMISSIONS = 5  # the most probable observations shown of each state


class BaumWelch(Phase):
    """Trains by Baum-Welch from one or more random models and keeps the best.

    A step is one iteration on the whole text, an epoch one restart; `progress.batch` counts iterations of a restart. A
    resumed run repeats the E-step of the last saved model, so results equal those of an undisturbed run bit for bit.
    """

    save_seconds = 5.0
    report_every = 1
    can_evaluate = True  # the best model is that of the best objective, with held-out text or without

    def __init__(self, config: HmmConfig, data: TextData) -> None:
        self.config, self.data, self.description = config, data, data.description
        self.epochs, self.minutes = config.train.restarts, config.train.minutes
        self.workers = current_workers()
        self.size = len(data.text_field.vocabulary)
        states = config.model.num_states
        check_memory("training this model", 8 * 4 * states * (states + self.size + 1))  # doubles; model, best, counts
        self.model = self._first_model(0)
        self.best: Iteration[HMM] | None = None
        self.before = -math.inf  # the objective one iteration ago
        self._iterations: Iterator[Iteration[HMM]] | None = None  # the rest of the restart
        self._stopping = False

    def _first_model(self, restart: int) -> HMM:
        return random_hmm(self.config.model.num_states, self.size, seed=self.config.train.seed + restart)

    def steps(self, progress: Progress) -> int:
        left = (self.epochs - progress.epoch) * (self.config.train.iterations + 1) - progress.batch
        return progress.step + left

    def step(self, progress: Progress, total: int, *, stop: bool) -> Update:
        train, self._stopping = self.config.train, stop
        if self._iterations is None:
            tokens, length = self.data.train, train.seq_length
            sequences = [tokens[begin : begin + length] for begin in range(0, len(tokens), length)]
            self._iterations = baum_welch(self.model, sequences, smoothing=train.smoothing, expect=self._expect)
            if progress.batch:
                next(self._iterations)  # the model that was saved, whose step was reported already
        iteration, number, epoch = next(self._iterations), progress.batch, progress.epoch + 1
        progress.step += 1
        progress.batch += 1
        self.model = iteration.model
        if self.best is None or iteration.objective > self.best.objective:
            self.best = iteration
        gain, self.before = iteration.objective - self.before, iteration.objective
        # The first iteration of a restart, number 0, is the random model.
        converged = number >= train.iterations or gain < train.tolerance * len(self.data.train)
        if converged:
            progress.epoch, progress.batch, self.before, self._iterations = epoch, 0, -math.inf, None
            if epoch < self.epochs:
                self.model = self._first_model(epoch)
        loss = MeanLoss(-iteration.log_likelihood, len(self.data.train))
        return Update(loss, epoch, evaluation_due=converged, stop=self._stopping)

    def _expect(self, model: HMM, sequences: Sequence[Observations]) -> Counts:
        """The expected counts of all sequences; with `train.slices`, summed over slices and workers."""
        slices = self.config.train.slices
        if slices == 1:
            return expected_counts(model, sequences)
        own = split_evenly(slices, self.workers.size)[self.workers.rank]
        notes = list[float]()

        def parts() -> Iterator[Tensor]:
            for number in own:
                yield expected_counts(model, sequences[number::slices]).flat()
            notes.extend([time.perf_counter(), float(self._stopping)])

        like = model.initial.new_empty(model.states * (1 + model.states + model.size) + 1)
        total, found = sum_slices(self.workers, slices, parts(), notes, like=like)
        if not self.workers.alone:
            self.workers.set_clock(float(found[0, 0]))
        self._stopping = bool(found[:, 1].any())  # in all workers, at the same iteration
        return Counts.from_flat(total, model)

    def evaluate(self) -> Evaluation:
        assert self.best is not None
        dev = self.data.dev
        return Evaluation(-self.best.objective, {} if dev is None else self.best.model.evaluate(dev).metrics())

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        self.model = HMM.from_tensors(weights)

    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        assert self.best is not None
        return self.best.model.tensors(), {"log_likelihood": self.best.log_likelihood}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"model.{name}": tensor for name, tensor in self.model.tensors().items()}
        metadata: dict[str, Any] = {"before": self.before, "best": None}
        if self.best is not None:
            tensors |= {f"best.{name}": tensor.clone() for name, tensor in self.best.model.tensors().items()}
            metadata["best"] = [self.best.log_likelihood, self.best.objective]
        return tensors, metadata

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        self.model, self.before = HMM.from_tensors(with_prefix(tensors, "model.")), metadata["before"]
        self._iterations = None
        if metadata["best"] is not None:
            self.best = Iteration(0, HMM.from_tensors(with_prefix(tensors, "best.")), *metadata["best"])


class HmmTask(TextTask[HmmConfig, LmPredictor]):
    name = "hmm"
    summary = (
        "Train a hidden Markov model by Baum-Welch: it predicts a token from its left context, or from both sides."
    )
    predictors = (LmPredictor, FillPredictor)
    config_class = HmmConfig

    def build(self, run: Run, config: HmmConfig) -> BaumWelch:
        return BaumWelch(config, self.text_data(run))

    def load(self, run: Run) -> LmPredictor:
        weights = run.weights()
        with decoding(run.path):
            model = HMM.from_tensors(weights)
        return LmPredictor(run, model, run.field("text", Text))

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        """The parts of a model of the next token, and the chain of hidden states."""
        model = predictor.model
        assert isinstance(model, HMM)
        tokens, ids = read_tokens(predictor.text_field, text, least=2)
        names = predictor.text_field.vocabulary.tokens

        def chain() -> ChainView:
            model.posterior([ids])  # an impossible text is refused here
            probs, best = model.emission.topk(min(EMISSIONS, model.size))
            emissions = tuple(
                tuple((names[one], prob) for one, prob in zip(row, values, strict=True))
                for row, values in zip(best.tolist(), probs.tolist(), strict=True)
            )
            states = tuple(map(str, range(model.states)))
            return ChainView(tokens, states, model.chains([ids]), model.transition, emissions, "hmm")

        return replace(inspect_steps(predictor, text), chain=chain)


TASK = HmmTask()
start_hmm, train_hmm, resume_hmm = TASK.start, TASK.train, TASK.resume
