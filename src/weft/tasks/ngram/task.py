"""The n-gram task: one step that counts, and a model like any other language model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from weft.cells import State
from weft.errors import WeftError
from weft.metrics import Likelihood
from weft.tasks.inspection import Inspection
from weft.tasks.lm.inspection import inspect_steps
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.lm.service import serve_lm
from weft.tasks.ngram.command import COMMANDS
from weft.tasks.ngram.config import NgramConfig
from weft.tasks.ngram.model import NGram, modified_kneser_ney
from weft.tasks.service import Service
from weft.tasks.stored_data import StoreData
from weft.tasks.text_task import TextData, TextTask
from weft.text.codec import Codec
from weft.training.distributed import current_workers
from weft.training.run import CHECKPOINT, WEIGHTS, Run
from weft.training.step import Evaluation, Progress, Step


class NgramTrainer:
    """Counts the n-grams of a text, in one step. Of several workers, rank 0 does it."""

    def __init__(self, run: Run, config: NgramConfig, data: TextData) -> None:
        self.run_directory: Run | None = run
        self.config, self.data, self.progress = config, data, Progress()
        self.model: NGram | None = None

    def run(self) -> Iterator[Step]:
        if self.progress.step or current_workers().rank:
            return
        began = time.perf_counter() - self.progress.seconds
        tokens, dev = self.data.train, self.data.dev
        self.model = modified_kneser_ney(tokens, len(self.data.codec.vocabulary), self.config.model.order)
        self.progress.step = 1
        evaluation, loss = None, self.model.evaluate(tokens) if len(tokens) > 1 else Likelihood(0.0, 0)
        if dev is not None:
            found = self.model.evaluate(dev)
            metrics = {"cross_entropy": found.cross_entropy, "perplexity": found.perplexity}
            evaluation = Evaluation(found.cross_entropy, metrics)
            self.progress.best, self.progress.best_metrics, self.progress.best_step = evaluation.score, metrics, 1
        self.progress.seconds = time.perf_counter() - began
        if self.run_directory is not None:
            metadata = {"size": self.model.size, "discounts": self.model.discounts, "ngrams": len(self.model)}
            self.run_directory.save(WEIGHTS, self.model.tensors(), metadata)
            record = {"step": 1, "epoch": 1, "train_cross_entropy": loss.cross_entropy}
            record |= {"seconds": round(self.progress.seconds, 3)}
            self.run_directory.report(record if evaluation is None else record | {"evaluation": evaluation.metrics})
            self.run_directory.save(CHECKPOINT, *self.state())
        seconds, best = self.progress.seconds, evaluation is not None
        yield Step(1, 1, 1, loss, 0.0, 0.0, seconds, evaluation, best, "finished", seconds, 0.0)

    def end_reason(self) -> str:
        return "finished" if self.progress.step else ""

    def stop(self) -> None:
        """Counting is one step, and a step is finished."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"progress": vars(self.progress).copy()}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any], carried: State = None) -> None:
        self.progress = Progress(**metadata["progress"])


class NgramTask(TextTask[NgramConfig, LmPredictor]):
    """Counts the n-grams of a text: a smoothed language model with a short context."""

    name = "ngram"
    commands = COMMANDS
    config_class = NgramConfig
    loss_smoothing = 0.0

    def seed(self, config: NgramConfig) -> int:
        return 0  # nothing is random

    def open_like(self, source: Any, dev: Any, config: NgramConfig, origin: Run) -> StoreData:
        raise WeftError("n-grams are counted, not fine-tuned", expected="a new run on all the text")

    def make_trainer(self, run: Run, config: NgramConfig, data: TextData) -> tuple[NgramTrainer, None]:
        return NgramTrainer(run, config, data), None

    def load(self, run: Run) -> LmPredictor:
        tensors, metadata = run.load(WEIGHTS)
        model = NGram.from_tensors(tensors, metadata["size"], [tuple(row) for row in metadata["discounts"]])
        return LmPredictor(run, model, Codec.from_json(run.vocabulary))

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        return inspect_steps(predictor, text)

    def serve(self, predictor: LmPredictor) -> Service:
        return serve_lm(predictor)


TASK = NgramTask()
start_ngram, train_ngram, resume_ngram = TASK.start, TASK.train, TASK.resume
