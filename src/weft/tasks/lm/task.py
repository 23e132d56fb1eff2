"""The language modelling task: how a recurrent language model is trained and loaded."""

from __future__ import annotations

from collections.abc import Callable

from weft.config import auto_settings, from_dict
from weft.data.windows import WINDOWS
from weft.errors import WeftError
from weft.metrics import CROSS_ENTROPY
from weft.nn.bptt import unroll
from weft.tasks.inspection import Inspection
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.inspection import inspect_lm
from weft.tasks.lm.interpolation import join_networks
from weft.tasks.lm.model import LanguageModel, make_language_model
from weft.tasks.lm.ngram_mixture import NGRAM, NgramEvaluation, NgramMixture, count_ngrams, fitted_weight, load_ngrams
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.lm.recipe import choose_settings
from weft.tasks.members import trained_members
from weft.tasks.text_task import TextData, TextTask
from weft.text.text_field import Text
from weft.training.build import build_model, load_model
from weft.training.devices import find_device
from weft.training.gradient_descent import GradientDescent
from weft.training.run import Run
from weft.training.step import Evaluation


class LmTask(TextTask[LmConfig, LmPredictor]):
    """Trains a recurrent model to predict the next token of a text."""

    name = "lm"
    summary = "Train a recurrent language model: it predicts the next token and generates text."
    predictors = (LmPredictor,)
    reads_windows = True
    config_class = LmConfig

    def choose(self, run: Run, config: LmConfig) -> tuple[LmConfig, str]:
        return choose_settings(config, self.train_token_count(run), len(run.field("text", Text).vocabulary))

    def make_phase(self, run: Run, config: LmConfig, data: TextData) -> GradientDescent:
        windows = WINDOWS[config.batch.sampling](
            data.train, config.batch.size, config.batch.seq_length, config.train.seed
        )
        size = len(data.text_field.vocabulary)
        model = build_model(lambda: make_language_model(size, config.model)).to(find_device(config.train.device))
        bptt = unroll(config.bptt.method, steps=config.bptt.steps, keep=config.bptt.keep_probability)
        return GradientDescent(
            model,
            windows,
            lambda window, state: model.loss(window, state, unroll=bptt),
            config.train,
            evaluate=self._evaluation(run, config, data, model),
            carried=model.initial_state(config.batch.size),
            description=data.description,
        )

    def _evaluation(
        self, run: Run, config: LmConfig, data: TextData, model: LanguageModel
    ) -> Callable[[], Evaluation] | None:
        """What evaluates the model on held-out text in training, if there is any; counts n-grams if they are wanted."""
        ngram = None
        if config.model.ngram_order:
            ngram = count_ngrams(run, config.model.ngram_order, data.train, len(data.text_field.vocabulary))
        dev = data.dev
        if dev is None:
            return None
        if ngram is not None:
            return NgramEvaluation(model, ngram, dev)

        def evaluate() -> Evaluation:
            return Evaluation.by(CROSS_ENTROPY, model.evaluate(dev).metrics())

        return evaluate

    def load(self, run: Run) -> LmPredictor:
        text_field = run.field("text", Text)
        settings = from_dict(LmConfig, run.config)
        if unknown := auto_settings(settings):
            raise WeftError(
                f"{run.path}: {unknown[0]} is auto", expected="the value that was chosen", hint="copy the run anew"
            )
        config = settings.model
        networks = [
            load_model(lambda: make_language_model(len(text_field.vocabulary), config), member)
            for member in trained_members(run)
        ]
        if run.has(NGRAM):
            return LmPredictor(run, NgramMixture(networks, load_ngrams(run), fitted_weight(run)), text_field)
        return LmPredictor(run, networks[0] if len(networks) == 1 else join_networks(networks), text_field)

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        return inspect_lm(predictor, text)


TASK = LmTask()
start_lm, train_lm, resume_lm = TASK.start, TASK.train, TASK.resume
