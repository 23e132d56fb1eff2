"""The fill-in-the-blank task: how a model is trained to predict hidden tokens from both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.cells import State
from weft.config import from_dict
from weft.data.windows import Passage, RandomWindows, Window
from weft.metrics import CROSS_ENTROPY
from weft.tasks.fill.config import FillConfig
from weft.tasks.fill.model import Filler, FillerMixture
from weft.tasks.fill.predictor import FillPredictor
from weft.tasks.inspection import Inspection, Network, StackUse, TokenScores
from weft.tasks.lm.inspection import read_tokens
from weft.tasks.lm.model import is_adaptive
from weft.tasks.members import load_members
from weft.tasks.mixture import first_member
from weft.tasks.pretraining import (
    SHARED_LAYERS,
    SHARED_TEXT,
    PretrainedLayers,
    layer_groups,
    shared_settings,
    take_over_stack,
)
from weft.tasks.text_task import CorpusSource, TextTask
from weft.text.text_field import Text
from weft.training.build import build_model
from weft.training.devices import find_device
from weft.training.gradient_descent import GradientDescent
from weft.training.loss import Loss
from weft.training.run import Run
from weft.training.step import Evaluation


class FillTask(TextTask[FillConfig, FillPredictor]):
    name = "fill"
    summary = "Train a fill-in-the-blank model: it predicts a token from the text on both sides of it."
    predictors = (FillPredictor,)
    config_class = FillConfig
    encoder_defaults: ClassVar[Mapping[str, Any]] = {}

    def build(self, run: Run, config: FillConfig) -> GradientDescent:
        data = self.text_data(run)
        windows = RandomWindows(data.train, config.batch.size, config.batch.seq_length, config.train.seed)
        size = len(data.text_field.vocabulary)
        model = build_model(lambda: Filler(size, config.model)).to(find_device(config.train.device))
        dev = data.dev

        def objective(window: Window, carried: State) -> Loss:
            """Every token of every row at once; some of the tokens that it is predicted from are masked."""
            return model.loss(Passage(model.mask_tokens(window.inputs, config.batch.mask_rate), window.inputs))

        def evaluate() -> Evaluation:
            assert dev is not None
            return Evaluation.by(CROSS_ENTROPY, model.eval().predict_tokens(dev).metrics())

        held_out = None if dev is None else evaluate
        stacks = [stack for stack in (model.forward_stack, model.backward_stack) if stack is not None]
        groups = layer_groups(model, stacks, model.embedding, config.train)
        return GradientDescent(
            model, windows, objective, config.train, evaluate=held_out, groups=groups, description=data.description
        )

    def encoder_settings(self, encoder: Run) -> dict[str, Any]:
        layers = encoder.config["model"]
        # The tables of an adaptive softmax are tied; with a full one the embedding is only as small as an output layer
        # needs it if it is tied.
        size = len(encoder.field("text", Text).vocabulary)
        tied = layers["tied"] or is_adaptive(size, layers["softmax"])
        shared = shared_settings(encoder, {"text": SHARED_TEXT, "model": SHARED_LAYERS})
        return {**shared, "model.tied": tied and layers["embedding_dim"] == layers["hidden_size"]}

    def pretraining_text(self, config: FillConfig) -> dict[str, Any]:
        text = {
            f"text.{name}": getattr(config.text, name)
            for name in (*SHARED_TEXT, "min_count", "max_vocab_size", "column")
        }
        return {**text, "model.tied": config.model.tied}

    def pretraining_corpus(self, raw: CorpusSource, source: CorpusSource, config: FillConfig) -> CorpusSource:
        return raw

    def take_over(self, model: Filler, encoder: PretrainedLayers) -> None:
        assert model.embedding is not None
        model.embedding.weight.data[: model.blank].copy_(encoder.embedding)
        for stack in (model.forward_stack, model.backward_stack):
            if stack is not None:
                take_over_stack(stack, encoder)

    def load(self, run: Run) -> FillPredictor:
        text_field = run.field("text", Text)
        config = from_dict(FillConfig, run.config).model
        model = load_members(run, lambda: Filler(len(text_field.vocabulary), config), FillerMixture)
        return FillPredictor(run, model, text_field)

    def inspect(self, predictor: FillPredictor, text: str) -> Inspection:
        """Every token of the text is predicted from all others."""
        predictor = first_member(predictor)
        model = predictor.model
        assert isinstance(model, Filler)
        model.eval()
        tokens, ids = read_tokens(predictor.text_field, text, least=2)
        names = predictor.text_field.vocabulary.tokens
        row = torch.tensor([ids], device=model.bias.device)

        def embeddings() -> Tensor:
            if model.embedding is None:
                return F.one_hot(row, model.vocabulary_size + 1).to(model.bias.dtype)
            return model.embedding(row).detach()  # type: ignore[no-any-return]

        def logits(x: Tensor) -> Tensor:
            return model.readout(model.sides(x))

        @torch.no_grad()
        def scores() -> TokenScores:
            log_probs = logits(embeddings())[0].log_softmax(-1)
            return TokenScores(tokens, tuple(range(len(ids))), log_probs, row[0].cpu(), names, model.context)

        def network() -> Network:
            stacks = {"left": StackUse(model.forward_stack, tokens)}
            if model.backward_stack is not None:
                stacks["right"] = StackUse(model.backward_stack, tokens)
            return Network(tokens, embeddings(), logits, tokens, tuple(ids), names, stacks)

        return Inspection(scores=scores, network=network)


TASK = FillTask()
start_fill, train_fill, resume_fill = TASK.start, TASK.train, TASK.resume
