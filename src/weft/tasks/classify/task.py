"""The text classification task: how a classifier is trained and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.config import from_dict
from weft.data.buckets import Buckets, IntArray, load_columns, take
from weft.errors import WeftError, unknown_name
from weft.tasks.classify.command import COMMANDS
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.data import DEV_EXAMPLES, TRAIN_EXAMPLES, WORD_VECTORS, ExampleSource, open_examples
from weft.tasks.classify.inspection import inspect_classify
from weft.tasks.classify.model import Classifier, LabelledBatch
from weft.tasks.classify.predictor import ClassifyPredictor, classifier_losses, evaluate_classifier, make_classifier
from weft.tasks.inspection import Inspection
from weft.tasks.task import ExampleLosses, Prepared, StoreData, Task, find_device
from weft.text.codec import Codec
from weft.text.vocabulary import RESERVED
from weft.training.build import build_model, load_model
from weft.training.run import Run
from weft.training.trainer import Evaluation, Trainer


class ClassifyTask(Task[ExampleSource, ClassifyConfig, ClassifyPredictor]):
    """Trains a recurrent model to predict the label of a text."""

    name = "classify"
    commands = COMMANDS
    config_class = ClassifyConfig
    metric = "accuracy"
    unit = "texts"

    def open(self, source: ExampleSource, dev: ExampleSource | None, config: ClassifyConfig) -> StoreData:
        return open_examples(source, dev, config)

    def open_like(
        self, source: ExampleSource, dev: ExampleSource | None, config: ClassifyConfig, vocabulary: Mapping[str, Any]
    ) -> StoreData:
        return open_examples(source, dev, config, vocabulary)

    def prepare(self, run: Run, config: ClassifyConfig) -> Prepared:
        codec, counts = Codec.from_json(run.vocabulary), run.vocabulary["labels"]
        labels = tuple(counts)
        train = load_columns(run.data_file(TRAIN_EXAMPLES))
        dev = load_columns(run.data_file(DEV_EXAMPLES)) if run.has(DEV_EXAMPLES) else None
        model = build_model(lambda: make_classifier(run, config))
        held_out = len(dev["text"]) if dev else 0
        description = f"{len(train['text']):,} texts to train on, {held_out:,} held out, {len(labels)} labels"
        description += f", vocabulary of {len(codec.vocabulary):,} ({run.vocabulary['description']})"
        if run.has(WORD_VECTORS):
            found = load_word_vectors(model, run)
            description += (
                f", vectors for {found:,} of {len(codec.vocabulary) - len(RESERVED):,} tokens, the others at random"
            )
        model.to(find_device(config.train.device))
        weights = class_weights(config.train.class_weights, counts)

        def batch(rows: IntArray) -> LabelledBatch:
            return LabelledBatch(*take(train["text"], rows), torch.tensor(train["label"].values[rows]).long())

        def evaluate() -> Evaluation:
            assert dev is not None
            found = evaluate_classifier(model, labels, dev)
            metrics = {"cross_entropy": found.cross_entropy, "accuracy": found.accuracy, "macro_f1": found.macro_f1}
            # The best model is that of the highest accuracy, because cross-entropy rises while accuracy still
            # improves; ties are broken by cross-entropy.
            return Evaluation(1 - found.accuracy + 1e-6 * min(found.cross_entropy, 100.0), metrics)

        trainer = Trainer(
            model,
            Buckets(train["text"].lengths, config.batch.max_tokens, config.batch.size, config.train.seed, batch),
            lambda labelled, carried: model.loss(labelled, weights),
            config.train,
            evaluate=None if dev is None else evaluate,
            run=run,
        )
        return Prepared(trainer, description)

    def load(self, run: Run) -> ClassifyPredictor:
        config = from_dict(ClassifyConfig, run.config)
        model = load_model(lambda: make_classifier(run, config), run)
        return ClassifyPredictor(run, model, Codec.from_json(run.vocabulary), tuple(run.vocabulary["labels"]))

    def held_out_losses(self, predictor: ClassifyPredictor) -> ExampleLosses | None:
        columns = load_columns(predictor.run.data_file(DEV_EXAMPLES))
        return ExampleLosses(tuple(classifier_losses(predictor.model, columns)), "text")

    def inspect(self, predictor: ClassifyPredictor, text: str) -> Inspection:
        return inspect_classify(predictor, text)


def class_weights(setting: str, counts: Mapping[str, int]) -> Tensor | None:
    """The class weights of the setting train.class_weights; None if all are equal.

    >>> class_weights("balanced", {"ham": 30, "spam": 10}), class_weights("spam=3", {"ham": 30, "spam": 10})
    (tensor([0.6667, 2.0000]), tensor([1., 3.]))
    """
    if setting == "none":
        return None
    if setting == "balanced":
        return torch.tensor([sum(counts.values()) / (len(counts) * max(1, count)) for count in counts.values()])
    weights = dict.fromkeys(counts, 1.0)
    for part in setting.split(","):
        label, equals, number = (piece.strip() for piece in part.rpartition("="))
        if not equals:
            raise WeftError(
                f"train.class_weights is {setting!r}",
                expected="none, balanced, or numbers by label, as spam=3, ham=0.5",
            )
        if label not in weights:
            raise unknown_name("train.class_weights: label", label, weights)
        try:
            weights[label] = float(number)
        except ValueError:
            weights[label] = math.nan
        if not 0 < weights[label] < math.inf:
            raise WeftError(f"train.class_weights: {label!r} has the weight {number!r}", expected="a number above 0")
    return torch.tensor(list(weights.values()))


def load_word_vectors(model: Classifier, run: Run) -> int:
    """Initialises the embedding with word vectors, other tokens at random with the same standard deviation."""
    assert model.embedding is not None
    with np.load(run.data_file(WORD_VECTORS), allow_pickle=False) as arrays, torch.no_grad():
        values = torch.from_numpy(arrays["values"])
        model.embedding.weight.normal_(std=float(values.std()))
        model.embedding.weight[torch.from_numpy(arrays["ids"])] = values
    return len(values)


TASK = ClassifyTask()
start_classify, train_classify, resume_classify = TASK.start, TASK.train, TASK.resume
