"""Classification: train a model that tells the label of a text, load it, let it label, measure it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from weft.config import from_dict
from weft.data.buckets import Buckets, IntArray, Ragged, hold_out, in_batches, load_columns, pad, save_columns, take
from weft.errors import WeftError, unknown_name
from weft.metrics import Confusion
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.data import Example, Examples, Layout, Source, ordered_labels, read_labelled
from weft.tasks.classify.model import Classifier, Labelled, Read
from weft.tasks.task import DATA, Prepared, Store, Task, Training, device, resume_training, start_training
from weft.text.arguments import check_texts
from weft.text.codec import Codec, build_codec
from weft.text.vocabulary import RESERVED
from weft.text.word_vectors import WordVectors, read_word_vectors
from weft.training.run import Run
from weft.training.trainer import Evaluation, Trainer

TRAIN, DEV, VECTORS = f"{DATA}/train.npz", f"{DATA}/dev.npz", f"{DATA}/vectors.npz"

Tokens = TypeVar("Tokens", list[int], list[str])


def start_classify(source: Source, out: str | Path, config: ClassifyConfig, *, dev: Source | None = None) -> Training:
    """Prepare the examples, make the run directory with all that resuming needs, and stand before the first step."""
    return start_training(CLASSIFY, source, out, config, dev=dev)


def train_classify(
    source: Source, out: str | Path, config: ClassifyConfig | None = None, *, dev: Source | None = None
) -> Classifying:
    """Train a classifier to the end, in silence, and load it. `start_classify` lets you watch.

    The source is a file, a folder with a folder for each label, "grammar", or a list of (text, label).
    """
    training = start_classify(source, out, config or ClassifyConfig(), dev=dev)
    for _ in training.trainer.run():
        pass
    return load_classify(training.run)


def resume_classify(run: Run, config: ClassifyConfig | None = None, *, source: str | None = None) -> Training:
    """Stand where the run's last save stood; see `resume_training`."""
    return resume_training(CLASSIFY, run, config, source=source)


def _open(source: Source, dev: Source | None, config: ClassifyConfig) -> Store:
    examples = read_labelled(source, config.data)
    rows = examples.rows
    if config.text.limit and config.text.limit < len(rows):
        rows = random.Random(config.train.seed).sample(rows, config.text.limit)
    labels = ordered_labels(row.label for row in rows)
    if len(labels) < 2:
        raise WeftError(f"all {len(rows):,} examples have the label {labels[0]!r}", expected="two labels or more")
    layout = examples.layout._replace(labels=labels)
    about = examples.about
    if dev is None:
        train, held = _split(rows, config)
    else:
        given = read_labelled(dev, config.data, layout)
        train, held = rows, given.rows
        _check_labels(held, labels)
        about += f"; held out: {given.about}" if given.about != about else ""
    codec = build_codec(config.text, [row.text for row in train])
    columns = {TRAIN: _encode(train, codec, labels), DEV: _encode(held, codec, labels)}
    long = sum(len(ids) > config.data.max_tokens for part in columns.values() for ids in part["text"])
    about += f"; {long:,} texts cut to {config.data.max_tokens:,} tokens" if long else ""
    vectors = _vectors(codec, config)

    def store(data: Path) -> Mapping[str, Any]:
        for name, part in columns.items():
            if part["text"]:
                texts = [cut(ids, config.data.max_tokens) for ids in part["text"]]
                save_columns(
                    data.parent / name, {"text": Ragged.from_rows(texts), "label": Ragged.from_rows(part["label"])}
                )
        if vectors is not None:
            with (data.parent / VECTORS).open("wb") as file:
                np.savez(file, **vectors._asdict())
        counts = Counter(row.label for row in train)
        return {
            **codec.to_json(),
            "labels": {label: counts[label] for label in labels},
            "columns": {"text": layout.text, "label": layout.label},
            "about": about,
        }

    return store


def _split(rows: list[Example], config: ClassifyConfig) -> tuple[list[Example], list[Example]]:
    """Examples to train on and to hold out. A label that would only be held out stays with those to train on."""
    train, held = hold_out([row.text for row in rows], config.text.holdout, config.train.seed)
    known = {rows[number].label for number in train}
    back = {rows[number].text for number in held if rows[number].label not in known}
    train += [number for number in held if rows[number].text in back]
    return [rows[number] for number in train], [rows[number] for number in held if rows[number].text not in back]


def _check_labels(rows: Sequence[Example], labels: Sequence[str]) -> None:
    for row in rows:
        if row.label not in labels:
            known = ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
            raise WeftError(
                f"{row.place} has the label {row.label!r}, which the data trained on has not",
                expected=f"one of: {known}",
            )


def _encode(rows: Sequence[Example], codec: Codec, labels: Sequence[str]) -> dict[str, list[list[int]]]:
    places = {label: place for place, label in enumerate(labels)}
    texts = [codec.encode(row.text) for row in rows]
    for row, ids in zip(rows, texts, strict=True):
        if not ids:
            what = f"nothing is left of the text {row.text!r} as it is to be read" if row.text else "the text is empty"
            raise WeftError(f"{row.place}: {what}", expected="a text for every label", hint="take the example out")
    return {"text": texts, "label": [[places[row.label]] for row in rows]}


def cut(tokens: Tokens, most: int) -> Tokens:
    """At most so many tokens: of more, as many from the beginning as from the end, where a text says what it is."""
    return tokens if len(tokens) <= most else tokens[: (most + 1) // 2] + tokens[len(tokens) - most // 2 :]


def _vectors(codec: Codec, config: ClassifyConfig) -> WordVectors | None:
    if not config.model.word_vectors:
        return None
    found = read_word_vectors(config.model.word_vectors, codec.vocabulary)
    if found.values.shape[1] != config.model.embedding_dim:
        raise WeftError(
            f"model.embedding_dim is {config.model.embedding_dim}, and the vectors of {config.model.word_vectors} have "
            f"{found.values.shape[1]} dimensions",
            expected="the two to be equal",
            hint=f"--set model.embedding_dim={found.values.shape[1]}",
        )
    return found


def _prepare(run: Run, config: ClassifyConfig) -> Prepared:
    codec, counts = Codec.from_json(run.vocabulary), run.vocabulary["labels"]
    labels = tuple(counts)
    train = load_columns(run.path / TRAIN)
    dev = load_columns(run.path / DEV) if run.has(DEV) else None
    model = _model(run, config)
    about = (
        f"{len(train['text']):,} texts to train on, {len(dev['text']) if dev else 0:,} held out, {len(labels)} labels"
    )
    about += f", vocabulary of {len(codec.vocabulary):,} ({run.vocabulary['about']})"
    if run.has(VECTORS):
        found = _begin_with(model, run)
        about += f", vectors for {found:,} of {len(codec.vocabulary) - len(RESERVED):,} tokens, the others at random"
    model.to(device(config.train.device))
    weights = class_weights(config.train.class_weights, counts)

    def batch(rows: IntArray) -> Labelled:
        return Labelled(*take(train["text"], rows), torch.tensor(train["label"].values[rows]).long())

    def evaluate() -> Evaluation:
        assert dev is not None
        found = _measure(model, labels, dev)
        facts = {"nats": found.cross_entropy, "accuracy": found.accuracy, "macro_f1": found.macro_f1}
        # Chosen by accuracy, since nats begin to rise while accuracy still grows; between equals, by nats.
        return Evaluation(1 - found.accuracy + 1e-6 * min(found.cross_entropy, 100.0), facts)

    trainer = Trainer(
        model,
        Buckets(train["text"].lengths, config.batch.max_tokens, config.batch.size, config.train.seed, batch),
        lambda labelled, carried: model.loss(labelled, weights),
        config.train,
        evaluate=None if dev is None else evaluate,
        run=run,
    )
    return Prepared(trainer, None, about)


def class_weights(setting: str, counts: Mapping[str, int]) -> Tensor | None:
    """How much an example of each label counts, as train.class_weights says, where they do not all count the same.

    >>> class_weights("balanced", {"ham": 30, "spam": 10}), class_weights("spam=3", {"ham": 30, "spam": 10})
    (tensor([0.6667, 2.0000]), tensor([1., 3.]))
    """
    if setting == "none":
        return None
    if setting == "balanced":
        return torch.tensor([sum(counts.values()) / (len(counts) * count) for count in counts.values()])
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
            raise WeftError(f"train.class_weights: {label!r} counts {number!r}", expected="a number above 0")
    return torch.tensor(list(weights.values()))


def _model(run: Run, config: ClassifyConfig) -> Classifier:
    vocabulary = Codec.from_json(run.vocabulary).vocabulary
    return Classifier(len(vocabulary), len(run.vocabulary["labels"]), config.model, unknown=vocabulary.unk_id)


def _begin_with(model: Classifier, run: Run) -> int:
    """Give the embedding the vectors of a file; tokens without one start at random, as strong as the others."""
    assert model.embedding is not None
    with np.load(run.path / VECTORS, allow_pickle=False) as arrays, torch.no_grad():
        values = torch.from_numpy(arrays["values"])
        model.embedding.weight.normal_(std=float(values.std()))
        model.embedding.weight[torch.from_numpy(arrays["ids"])] = values
    return len(values)


CLASSIFY = Task("classify", ClassifyConfig, _open, _prepare, "accuracy", "texts")


def _measure(model: Classifier, labels: tuple[str, ...], columns: Mapping[str, Ragged]) -> Confusion:
    """How well the model tells the labels of encoded examples."""
    truth = columns["label"].values
    log_probs = np.array([logits for logits, _ in _read(model, columns["text"])]).reshape(-1, len(labels))
    told = log_probs.argmax(1)
    pairs = [(labels[one], labels[other]) for one, other in zip(truth.tolist(), told.tolist(), strict=True)]
    return Confusion.of(labels, pairs, -float(log_probs[np.arange(len(truth)), truth].sum()))


def _read(model: Classifier, texts: Ragged) -> list[tuple[list[float], list[float]]]:
    """The log-probabilities of the labels and the weights of the tokens of each text, in batches of similar length."""

    @torch.no_grad()
    def read(rows: IntArray) -> list[tuple[list[float], list[float]]]:
        batch = pad([texts[row] for row in rows])
        found: Read = model.eval()(*batch)
        log_probs = found.logits.double().log_softmax(-1).tolist()
        weights = found.weights.tolist()
        return [
            (one, row[:length]) for one, row, length in zip(log_probs, weights, batch.lengths.tolist(), strict=True)
        ]

    return in_batches(texts.lengths, read)


@dataclass(frozen=True)
class Classified:
    """The label of a text, the probability of every label, and how much each token that was read counted."""

    label: str
    probabilities: dict[str, float]
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    left_out: int = 0  # tokens in the middle of a long text that were not read

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]


@dataclass(frozen=True)
class Classifying:
    """A trained classifier, ready for use."""

    run: Run
    model: Classifier
    codec: Codec
    labels: tuple[str, ...]

    @cached_property
    def config(self) -> ClassifyConfig:
        return from_dict(ClassifyConfig, self.run.config)

    @cached_property
    def prior(self) -> dict[str, float]:
        """The share of each label in what the model was trained on: all that is known of a text without tokens."""
        counts = self.run.vocabulary["labels"]
        return {label: counts[label] / sum(counts.values()) for label in self.labels}

    @property
    def layout(self) -> Layout:
        """How the examples that the model was trained on were laid out."""
        columns = self.run.vocabulary["columns"]
        return Layout(columns["text"], columns["label"], self.labels)

    def classify(self, texts: Iterable[str]) -> list[Classified]:
        """The label of every text, in the order of the texts. A text without tokens gets the prior."""
        most, prior = self.config.data.max_tokens, self.prior
        tokens = [self.codec.tokenizer.split(self.codec.normalizer(text)) for text in check_texts(texts)]
        read = [cut(row, most) for row in tokens]
        found = _read(self.model, Ragged.from_rows([self.codec.vocabulary.encode(row) for row in read]))
        results = []
        for whole, row, (log_probs, weights) in zip(tokens, read, found, strict=True):
            known = dict(zip(self.labels, np.exp(log_probs).tolist(), strict=True)) if row else prior
            label = max(known, key=known.__getitem__)
            results.append(Classified(label, dict(known), tuple(row), tuple(weights), len(whole) - len(row)))
        return results

    def read(self, source: Source) -> Examples:
        """The examples of a source, found as those were that the model was trained on."""
        examples = read_labelled(source, self.config.data, self.layout)
        _check_labels(examples.rows, self.labels)
        return examples

    def score(self, rows: Sequence[Example]) -> Confusion:
        """How well the model tells the labels of examples."""
        found = self.classify([row.text for row in rows])
        pairs = [(row.label, one.label) for row, one in zip(rows, found, strict=True)]
        chances = [one.probabilities[row.label] for row, one in zip(rows, found, strict=True)]
        return Confusion.of(self.labels, pairs, -float(np.log(np.maximum(chances, 1e-300)).sum()))

    def measure(self, source: Source) -> Confusion:
        """How well the model tells the labels of a source: a file, a folder, "grammar", or a list of (text, label)."""
        return self.score(self.read(source).rows)

    def measure_held_out(self) -> Confusion:
        """The same for the part of its own examples that the model was not trained on."""
        if not self.run.has(DEV):
            raise WeftError(f"{self.run.path} holds out no text", expected="text to measure on", hint="--data PATH")
        return _measure(self.model, self.labels, load_columns(self.run.path / DEV))


def load_classify(run: Run) -> Classifying:
    """The model of a run, with its best weights (or its newest, while there are no best ones)."""
    model = _model(run, from_dict(ClassifyConfig, run.config))
    model.load_state_dict(run.weights())
    return Classifying(run, model.eval(), Codec.from_json(run.vocabulary), tuple(run.vocabulary["labels"]))
