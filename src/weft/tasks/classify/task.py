"""The classification task: how a classifier of texts or series is trained and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from weft.config import auto_settings, from_dict, resolve_auto
from weft.data.buckets import Buckets, take
from weft.data.column import IntArray
from weft.data.inputs import InputKind
from weft.errors import WeftError, unknown_name, warn
from weft.metrics import ACCURACY, CROSS_ENTROPY
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.data import WORD_VECTORS, load_examples, store_examples
from weft.tasks.classify.inputs import TextInput, input_of
from weft.tasks.classify.inspection import inspect_classify
from weft.tasks.classify.mixing import (
    DEFAULT_MIXTURE,
    NGRAM_CENTRE,
    SERIES_PRIOR,
    MixtureWeights,
    fit_mixture,
    fit_prior,
)
from weft.tasks.classify.model import Classifier, ClassifierMixture, LabelledBatch, TokenLayer
from weft.tasks.classify.predictor import (
    ClassifyPredictor,
    confusion_of,
    join_scores,
    label_metrics,
    make_classifier,
    network_log_probs,
)
from weft.tasks.classify.readers import ExampleSource, read_labelled
from weft.tasks.classify.wide import LinearFitting, held_out_scores, load_wide
from weft.tasks.config import EPOCHS_SETTING
from weft.tasks.example_kind import kind_of_examples
from weft.tasks.inspection import Inspection
from weft.tasks.members import load_members, trained_members
from weft.tasks.pretraining import (
    SHARED_LAYERS,
    SHARED_TEXT,
    PretrainedLayers,
    layer_groups,
    shared_settings,
    take_over_stack,
)
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, is_stored, stored
from weft.tasks.task import Task
from weft.tasks.text_task import CorpusSource, open_corpus
from weft.text.corpus import Corpus
from weft.text.fields import Label
from weft.text.text_field import Text
from weft.text.vocabulary import RESERVED
from weft.training.build import build_model
from weft.training.devices import choose_precision, find_device
from weft.training.gradient_descent import GradientDescent
from weft.training.run import CHECKPOINT, WEIGHTS, Run, decoding, read_metadata
from weft.training.step import Evaluation

FEW = 30  # held-out texts below which their score says little
# A training has as many steps and epochs at least, but not more epochs than that for the sake of the steps.
LEAST_STEPS, LEAST_EPOCHS, EPOCH_LIMIT = 300, 6, 20
COSTLY_LABELS = 1000
SERIES_TRAINING_STEPS, LEAST_SERIES_EPOCHS, MOST_SERIES_EPOCHS = 500, 12, 100  # the same of series


class ClassifyTask(Task[ExampleSource, ClassifyConfig, ClassifyPredictor]):
    """Trains a recurrent model to predict the label of a text or of a series."""

    name = "classify"
    summary = "Train a classifier: it predicts the label of a text, or of a series of numbers."
    details = (
        "The columns of text and label are detected, or set by --set data.text_column=NAME and "
        "data.label_column=NAME (or numbers, from 1). Several text columns, as title,body, are joined. "
        "A table of numbers has series: a row for each step, with columns of id, time, values and label, or a row for "
        "each series."
    )
    data_help = (
        "Texts with labels: TSV, CSV, JSON lines, 'label text' lines, also as .gz, a folder for each label, - for "
        "standard input, or grammar. Series with labels: .ts, CSV, TSV, JSON lines, Parquet, also as .gz."
    )
    dev_help = "Held-out examples with labels; without it a random part of --data is held out."
    predictors = (ClassifyPredictor,)
    config_class = ClassifyConfig
    inputs = ("text", "series")
    metric = ACCURACY
    # Chosen on the development set of imdb, with 500 labels and with all of them.
    encoder_defaults: ClassVar[Mapping[str, Any]] = {
        "model.pooling": "mean",
        "model.embedding_dropout": 0.4,
        "train.learning_rate": 0.012,
    }

    def read(
        self,
        source: ExampleSource,
        dev: ExampleSource | None,
        config: ClassifyConfig,
        folder: Path,
        origin: Run | None = None,
    ) -> Mapping[str, Any]:
        if origin is None or origin.task == self.name:
            return store_examples(source, dev, config, folder, origin)
        return store_examples(source, dev, config, folder, text_field=origin.field("text", Text))

    def encoder_settings(self, encoder: Run) -> dict[str, Any]:
        return shared_settings(encoder, {"text": SHARED_TEXT, "model": SHARED_LAYERS})

    def pretraining_text(self, config: ClassifyConfig) -> dict[str, Any]:
        return {f"text.{name}": getattr(config.text, name) for name in (*SHARED_TEXT, "min_count", "max_vocab_size")}

    def pretraining_corpus(self, raw: CorpusSource, source: ExampleSource, config: ClassifyConfig) -> Corpus:
        texts = [row.value for row in read_labelled(source, config.data).rows]
        return Corpus.from_texts("the training texts", ["\n".join(texts)]) + open_corpus(raw)

    def take_over(self, model: Classifier, encoder: PretrainedLayers) -> None:
        assert isinstance(model.embedding, TokenLayer)
        assert model.embedding.weight is not None
        model.embedding.weight.data.copy_(encoder.embedding)
        take_over_stack(model.stack, encoder)

    def kind_of(self, source: Any, config: ClassifyConfig) -> InputKind | None:
        return kind_of_examples(source, config.data)

    def choose(self, run: Run, config: ClassifyConfig) -> tuple[ClassifyConfig, str]:
        config, reads = choose_precision(config), input_of(run)
        count = len(load_examples(run, TRAIN_PART)[reads.name])
        if EPOCHS_SETTING not in auto_settings(config):
            return config, ""
        rule = epochs_for_texts if isinstance(reads, TextInput) else epochs_for_series
        epochs = rule(count, config.batch.size)
        return resolve_auto(config, {EPOCHS_SETTING: epochs}), f"{epochs} epochs: chosen for {count:,} {reads.plural}"

    def build(self, run: Run, config: ClassifyConfig) -> GradientDescent:
        reads, counts = input_of(run), run.field("label", Label).counts
        labels = tuple(counts)
        train = load_examples(run, TRAIN_PART)
        dev = load_examples(run, DEV_PART) if is_stored(run, DEV_PART) else None
        model = build_model(lambda: make_classifier(run, config))
        name, plural = reads.name, reads.plural
        held_out = len(dev[name]) if dev else 0
        few = " (few: their score is rough)" if 0 < held_out < FEW else ""
        description = f"{len(train[name]):,} {plural} to train on, {held_out:,} held out{few}, {len(labels)} labels"
        if isinstance(reads, TextInput):
            description += f", vocabulary of {len(reads.field.vocabulary):,}"
        description += f" ({run.reading.get('description', '')})"
        if isinstance(reads, TextInput) and is_stored(run, WORD_VECTORS):
            found = load_word_vectors(model, run)
            size = len(reads.field.vocabulary) - len(RESERVED)
            description += f", vectors for {found:,} of {size:,} tokens, the others at random"
        model.to(find_device(config.train.device))
        weights = class_weights(config.train.class_weights, counts)

        def batch(rows: IntArray) -> LabelledBatch:
            return LabelledBatch(*take(train[name], rows), torch.tensor(train["label"].values[rows]).long())

        scores = cache(lambda: held_out_scores(run, held_out))  # once the linear models are fitted

        def evaluate() -> Evaluation:
            assert dev is not None
            log_probs, truth = network_log_probs(model, dev[name], len(labels)), dev["label"].values
            network = confusion_of(labels, log_probs, truth)
            wide = scores()
            if wide is None:
                # The best network is that of the highest accuracy, because cross-entropy rises while accuracy still
                # improves. A fitted mixture is calibrated.
                return Evaluation.by(ACCURACY, label_metrics(network), network.cross_entropy)
            parts = join_scores(log_probs, wide.scores)
            mixture = fit_mixture(parts, torch.tensor(truth).long(), weights, wide.prior)
            found = confusion_of(labels, mixture.log_probs(parts), truth)
            more = {"network_accuracy": network.accuracy, **mixture.to_metrics()}
            return Evaluation.by(CROSS_ENTROPY, {**label_metrics(found), **more}, network.cross_entropy)

        phase = GradientDescent(
            model,
            Buckets(train[name].lengths, config.batch.max_tokens, config.batch.size, config.train.seed, batch),
            lambda labelled, carried: model.loss(labelled, weights),
            config.train,
            evaluate=None if dev is None else evaluate,
            groups=layer_groups(model, [model.stack], model.embedding, config.train),
            description=description,
            loss=CROSS_ENTROPY.of(name),
        )

        def baselines() -> dict[str, float]:
            wide = None if dev is None else scores()
            if dev is None or wide is None:
                return {}
            hits = wide.scores[..., 1].argmax(1) == torch.tensor(dev["label"].values)
            return {reads.svm: float(hits.double().mean())}

        phase.baselines = baselines
        if config.model.wide:
            if len(labels) > COSTLY_LABELS:
                warn(
                    f"{len(labels):,} labels: the linear models of n-grams take time and memory for each; "
                    "`model.wide=false` leaves them out"
                )
            phase.preparations = [lambda: LinearFitting(run, len(labels), weights)]
        return phase

    def load(self, run: Run) -> ClassifyPredictor:
        config = from_dict(ClassifyConfig, run.config)
        model = load_members(run, lambda: make_classifier(run, config), ClassifierMixture)
        reads, labels, wide = input_of(run), run.field("label", Label).labels, load_wide(run)
        default = DEFAULT_MIXTURE if isinstance(reads, TextInput) else SERIES_PRIOR.centre
        if is_untrained(run):
            alone = "" if wide is None else f": its linear models of {reads.linear} predict alone"
            warn(f"the network of {run.path} is not trained{alone}")
            weights = DEFAULT_MIXTURE if wide is None else weights_without_network(run)
        else:
            metrics = [read_metadata(one.file(WEIGHTS)) if one.has(WEIGHTS) else {} for one in trained_members(run)]
            weights = MixtureWeights(
                *np.mean([MixtureWeights.from_metrics(one, default) for one in metrics], 0).tolist()
            )
        return ClassifyPredictor(run, model, reads, labels, wide, weights)

    def inspect(self, predictor: ClassifyPredictor, text: str) -> Inspection:
        return inspect_classify(predictor, text)


def epochs_for_texts(texts: int, batch_size: int) -> int:
    """The number of epochs: few texts are read more often, because a network needs some hundred steps.

    >>> epochs_for_texts(100, 32), epochs_for_texts(700, 32), epochs_for_texts(7000, 32)
    (20, 14, 6)
    """
    wanted = math.ceil(LEAST_STEPS / math.ceil(texts / batch_size))
    return min(max(wanted, LEAST_EPOCHS), EPOCH_LIMIT)


def epochs_for_series(series: int, batch_size: int) -> int:
    """The number of epochs for so many series.

    >>> epochs_for_series(40, 32), epochs_for_series(270, 32), epochs_for_series(9000, 32)
    (100, 56, 12)
    """
    wanted = math.ceil(SERIES_TRAINING_STEPS / math.ceil(series / batch_size))
    return min(max(wanted, LEAST_SERIES_EPOCHS), MOST_SERIES_EPOCHS)


def is_untrained(run: Run) -> bool:
    """Whether no network of a run has taken a step: the time was over before, or the training was interrupted."""
    if any(member.has(WEIGHTS) for member in trained_members(run)):
        return False
    saved = read_metadata(run.path / CHECKPOINT)
    with decoding(run.path / CHECKPOINT):
        return not saved["progress"]["step"]


def weights_without_network(run: Run) -> MixtureWeights:
    """The weights of the linear models where the network has none: those that suit the held-out texts."""
    if not is_stored(run, DEV_PART):
        return MixtureWeights(0.0, *NGRAM_CENTRE)
    labels = load_examples(run, DEV_PART)["label"].values
    wide = held_out_scores(run, len(labels))
    assert wide is not None
    if wide.prior.is_cross_fitted:
        return wide.prior.centre
    weights = class_weights(from_dict(ClassifyConfig, run.config).train.class_weights, run.field("label", Label).counts)
    return fit_prior(wide.scores, torch.tensor(labels).long(), weights).centre


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
    assert isinstance(model.embedding, TokenLayer)
    assert model.embedding.weight is not None
    columns = stored(run, WORD_VECTORS, {"ids": len(model.embedding.weight)})
    values, ids = (torch.tensor(columns[name].values) for name in ("values", "ids"))
    with torch.no_grad():
        model.embedding.weight.normal_(std=float(values.std()))
        model.embedding.weight[ids] = values
    return len(values)


TASK = ClassifyTask()
start_classify, train_classify, resume_classify = TASK.start, TASK.train, TASK.resume
