"""The n-gram task: one step that counts, and a model like any other language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.tasks.inspection import Inspection
from weft.tasks.lm.inspection import inspect_steps
from weft.tasks.lm.interpolation import Counting, load_ngrams
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.ngram.config import NgramConfig
from weft.tasks.text_task import TextTask
from weft.text.text_field import Text
from weft.training.run import WEIGHTS, Run


class NgramTask(TextTask[NgramConfig, LmPredictor]):
    name = "ngram"
    summary = "Train an n-gram language model by counting: a strong, fast baseline."
    predictors = (LmPredictor,)
    config_class = NgramConfig

    def read(self, source: Any, dev: Any, config: NgramConfig, folder: Path, origin: Run | None = None) -> Any:
        if origin is not None:
            raise WeftError("n-grams are counted, not fine-tuned", expected="a new run on all the text")
        return super().read(source, dev, config, folder)

    def build(self, run: Run, config: NgramConfig) -> Counting:
        return Counting(config.model.order, self.text_data(run))

    def load(self, run: Run) -> LmPredictor:
        return LmPredictor(run, load_ngrams(run, WEIGHTS), run.field("text", Text))

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        return inspect_steps(predictor, text)


TASK = NgramTask()
start_ngram, train_ngram, resume_ngram = TASK.start, TASK.train, TASK.resume
