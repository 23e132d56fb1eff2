"""The n-gram task: one step that counts, and a model like any other language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from weft.errors import WeftError
from weft.metrics import CROSS_ENTROPY
from weft.tasks.inspection import Inspection
from weft.tasks.kneser_ney import NGram, modified_kneser_ney
from weft.tasks.lm.inspection import inspect_steps
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.ngram.config import NgramConfig
from weft.tasks.text_task import TextData, TextTask
from weft.text.text_field import Text
from weft.training.loss import MeanLoss
from weft.training.run import WEIGHTS, Run, decoding
from weft.training.step import Evaluation, Progress
from weft.training.trainer import Phase, Update


class Counting(Phase):
    """Counts the n-grams of a text, in one step. Every worker does it."""

    epochs = report_every = 1
    save_seconds = 0.0

    def __init__(self, config: NgramConfig, data: TextData) -> None:
        self.config, self.data, self.description = config, data, data.description
        self.evaluate_every = int(data.dev is not None)
        self.model: NGram | None = None

    def steps(self, progress: Progress) -> int:
        return 1

    def step(self, progress: Progress, total: int, *, stop: bool) -> Update:
        tokens = self.data.train
        self.model = modified_kneser_ney(tokens, len(self.data.text_field.vocabulary), self.config.model.order)
        progress.step = progress.epoch = 1
        found = self.model.evaluate(tokens) if len(tokens) > 1 else None
        loss = MeanLoss(0.0, 0) if found is None else MeanLoss(found.nats, found.count)
        return Update(loss, epoch=1, evaluation_due=True)

    def evaluate(self) -> Evaluation:
        assert self.model is not None
        assert self.data.dev is not None
        return Evaluation.by(CROSS_ENTROPY, self.model.evaluate(self.data.dev).metrics())

    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        assert self.model is not None
        return self.model.tensors(), {
            "size": self.model.size,
            "discounts": self.model.discounts,
            "ngrams": len(self.model),
        }


class NgramTask(TextTask[NgramConfig, LmPredictor]):
    """Counts the n-grams of a text: a smoothed language model with a short context."""

    name = "ngram"
    summary = "Train an n-gram language model by counting: a strong, fast baseline."
    predictors = (LmPredictor,)
    config_class = NgramConfig

    def read(self, source: Any, dev: Any, config: NgramConfig, folder: Path, origin: Run | None = None) -> Any:
        if origin is not None:
            raise WeftError("n-grams are counted, not fine-tuned", expected="a new run on all the text")
        return super().read(source, dev, config, folder)

    def make_phase(self, run: Run, config: NgramConfig, data: TextData) -> Counting:
        return Counting(config, data)

    def load(self, run: Run) -> LmPredictor:
        saved = run.load(WEIGHTS)
        with decoding(run.file(WEIGHTS)):
            model = NGram.from_tensors(*saved)
        return LmPredictor(run, model, run.field("text", Text))

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        return inspect_steps(predictor, text)


TASK = NgramTask()
start_ngram, train_ngram, resume_ngram = TASK.start, TASK.train, TASK.resume
