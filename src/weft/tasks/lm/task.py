"""The language modelling task: how a recurrent language model is trained and loaded."""

from __future__ import annotations

from functools import cache

from weft.config import auto_settings, from_dict
from weft.data.windows import WINDOWS
from weft.errors import WeftError
from weft.metrics import CROSS_ENTROPY
from weft.nn.bptt import unroll
from weft.tasks.inspection import Inspection
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.inspection import inspect_lm
from weft.tasks.lm.interpolation import (
    NGRAM,
    Counting,
    evaluate_with_ngrams,
    fitted_weight,
    interpolate,
    load_ngrams,
    networks_of,
)
from weft.tasks.lm.model import make_language_model
from weft.tasks.lm.predictor import LmPredictor, TokenModel
from weft.tasks.lm.recipe import choose_settings
from weft.tasks.members import load_members
from weft.tasks.mixture import Array
from weft.tasks.text_task import TextTask
from weft.text.text_field import Text
from weft.training.build import build_model
from weft.training.devices import find_device
from weft.training.gradient_descent import GradientDescent
from weft.training.run import Run
from weft.training.step import Evaluation


class LmTask(TextTask[LmConfig, LmPredictor]):
    name = "lm"
    summary = "Train a recurrent language model: it predicts the next token and generates text."
    predictors = (LmPredictor,)
    config_class = LmConfig

    def choose(self, run: Run, config: LmConfig) -> tuple[LmConfig, str]:
        data = self.text_data(run)
        return choose_settings(config, len(data.train), len(data.text_field.vocabulary))

    def build(self, run: Run, config: LmConfig) -> GradientDescent:
        data, order = self.text_data(run), config.model.ngram_order
        size, dev = len(data.text_field.vocabulary), data.dev
        windows = WINDOWS[config.batch.sampling](
            data.train, config.batch.size, config.batch.seq_length, config.train.seed
        )
        model = build_model(lambda: make_language_model(size, config.model)).to(find_device(config.train.device))
        bptt = unroll(config.bptt.method, steps=config.bptt.steps, keep=config.bptt.keep_probability)

        @cache
        def ngram_log_probs() -> Array:
            assert dev is not None
            return load_ngrams(run).token_log_probs(dev)

        def evaluate() -> Evaluation:
            assert dev is not None
            metrics = evaluate_with_ngrams(model, ngram_log_probs(), dev) if order else model.evaluate(dev).metrics()
            return Evaluation.by(CROSS_ENTROPY, metrics)

        phase = GradientDescent(
            model,
            windows,
            lambda window, state: model.loss(window, state, unroll=bptt),
            config.train,
            evaluate=None if dev is None else evaluate,
            carried=model.initial_state(config.batch.size),
            description=data.description,
        )
        if order:
            phase.preparations = [lambda: Counting(order, data, NGRAM)]
        return phase

    def load(self, run: Run) -> LmPredictor:
        text_field = run.field("text", Text)
        settings = from_dict(LmConfig, run.config)
        if unknown := auto_settings(settings):
            raise WeftError(
                f"{run.path}: {unknown[0]} is auto", expected="the value that was chosen", hint="copy the run anew"
            )
        model: TokenModel = load_members(
            run, lambda: make_language_model(len(text_field.vocabulary), settings.model), interpolate
        )
        if run.has(NGRAM):
            model = interpolate(networks_of(model), load_ngrams(run), fitted_weight(run))
        return LmPredictor(run, model, text_field)

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        return inspect_lm(predictor, text)


TASK = LmTask()
start_lm, train_lm, resume_lm = TASK.start, TASK.train, TASK.resume
