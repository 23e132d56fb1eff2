"""A trained classifier in use: it predicts the labels of texts and is evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from weft.config import from_dict
from weft.data.buckets import IntArray, Ragged, in_batches, load_columns, pad
from weft.errors import WeftError
from weft.metrics import Confusion
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.data import (
    DEV_EXAMPLES,
    ExampleLayout,
    Examples,
    ExampleSource,
    Texts,
    check_labels,
    cut_middle,
    read_labelled,
    read_texts,
)
from weft.tasks.classify.example import Example
from weft.tasks.classify.model import Classifier, ClassifierOutput
from weft.tasks.predictor import TaskPredictor
from weft.text.arguments import check_texts
from weft.text.codec import Codec
from weft.training.run import Run


@dataclass(frozen=True)
class ClassifiedText:
    """A predicted label, the probability of every label, and the weight of every token that was read."""

    label: str
    probabilities: dict[str, float]
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    left_out: int = 0  # tokens in the middle of a long text that were not read

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]


@dataclass(frozen=True, repr=False)
class ClassifyPredictor(TaskPredictor):
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
        """The relative frequency of each label in the training data: the prediction for a text without tokens."""
        counts = self.run.vocabulary["labels"]
        return {label: counts[label] / sum(counts.values()) for label in self.labels}

    @property
    def layout(self) -> ExampleLayout:
        """The columns of the training data, and its labels."""
        columns = self.run.vocabulary["columns"]
        return ExampleLayout(columns["text"], columns["label"], self.labels)

    def classify(self, texts: Iterable[str]) -> list[ClassifiedText]:
        """Predicts the label of every text, in the order of the texts.

        A text without tokens gets the prior. Of a text longer than `data.max_tokens` the middle is left out.
        """
        limit, prior = self.config.data.max_tokens, self.prior
        tokens = [self.codec.tokenizer.split(self.codec.normalizer(text)) for text in check_texts(texts)]
        read = [cut_middle(row, limit) for row in tokens]
        found = _predict(self.model, Ragged.from_rows([self.codec.vocabulary.encode(row) for row in read]))
        results = []
        for whole, row, (log_probs, weights) in zip(tokens, read, found, strict=True):
            known = dict(zip(self.labels, np.exp(log_probs).tolist(), strict=True)) if row else prior
            label = max(known, key=known.__getitem__)
            results.append(ClassifiedText(label, dict(known), tuple(row), tuple(weights), len(whole) - len(row)))
        return results

    def notes(self, texts: Iterable[str]) -> list[str]:
        """What a user should know about these texts: which are cut because they are long, which have no tokens."""
        limit = self.config.data.max_tokens
        lengths = [len(self.codec.tokenizer.split(self.codec.normalizer(text))) for text in check_texts(texts)]
        long = [number for number, length in enumerate(lengths, start=1) if length > limit]
        empty = [number for number, length in enumerate(lengths, start=1) if not length]
        notes = []
        if long:
            notes.append(
                f"{_listed(long)} had more than {limit:,} tokens: only the first and last {limit // 2:,} were read"
            )
        if empty:
            notes.append(f"{_listed(empty)} had nothing to read: the label frequencies of the training data are given")
        return notes

    def read_texts(self, source: str, column: int | str | None = None) -> Texts:
        """Texts without labels: the lines of a file, or a column of a table.

        Args:
            source: A file (TSV, CSV, JSON lines, or plain lines), or `-` for standard input.
            column: The column of the texts, by name or number from 1. Without it, a table that has the text column of
                the training data is read by that column, any other file by lines.

        Returns:
            The texts, and notes on how they were read where that was not given.
        """
        return read_texts(source, column, self.layout)

    def read(self, source: ExampleSource) -> Examples:
        """Labelled examples, read in the same way as the training data."""
        examples = read_labelled(source, self.config.data, self.layout)
        check_labels(examples.rows, self.labels)
        return examples

    def score(self, rows: Sequence[Example]) -> Confusion:
        """Compares predicted labels with those of the examples."""
        found = self.classify([row.text for row in rows])
        pairs = [(row.label, one.label) for row, one in zip(rows, found, strict=True)]
        probabilities = [one.probabilities[row.label] for row, one in zip(rows, found, strict=True)]
        return Confusion.of(self.labels, pairs, -float(np.log(np.maximum(probabilities, 1e-300)).sum()))

    def evaluate(self, source: ExampleSource) -> Confusion:
        """Evaluates on labelled examples: a file, a folder, "grammar", or a list of (text, label)."""
        return self.score(self.read(source).rows)

    def evaluate_held_out(self) -> Confusion:
        """Evaluates on the run's own held-out examples."""
        if not self.run.has(DEV_EXAMPLES):
            raise WeftError(
                f"{self.run.path} has no held-out texts", expected="text to evaluate on", hint="`source=PATH`"
            )
        return evaluate_classifier(self.model, self.labels, load_columns(self.run.data_file(DEV_EXAMPLES)))


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return f"text {shown}" if len(numbers) == 1 else f"texts {shown}{', ...' if len(numbers) > 5 else ''}"


def make_classifier(run: Run, config: ClassifyConfig) -> Classifier:
    """The untrained model of a run."""
    vocabulary = Codec.from_json(run.vocabulary).vocabulary
    return Classifier(len(vocabulary), len(run.vocabulary["labels"]), config.model, unknown=vocabulary.unk_id)


def evaluate_classifier(model: Classifier, labels: tuple[str, ...], columns: Mapping[str, Ragged]) -> Confusion:
    """Evaluates a classifier on encoded examples."""
    truth = columns["label"].values
    log_probs = np.array([logits for logits, _ in _predict(model, columns["text"])]).reshape(-1, len(labels))
    predicted = log_probs.argmax(1)
    pairs = [(labels[one], labels[other]) for one, other in zip(truth.tolist(), predicted.tolist(), strict=True)]
    return Confusion.of(labels, pairs, -float(log_probs[np.arange(len(truth)), truth].sum()))


def classifier_losses(model: Classifier, columns: Mapping[str, Ragged]) -> list[float]:
    """The cross-entropy of the true label of each encoded example."""
    found = _predict(model, columns["text"])
    return [-log_probs[label] for (log_probs, _), label in zip(found, columns["label"].values.tolist(), strict=True)]


def _predict(model: Classifier, texts: Ragged) -> list[tuple[list[float], list[float]]]:
    """The log-probabilities of the labels and the weights of the tokens of each text, in batches of similar length."""

    @torch.no_grad()
    def read(rows: IntArray) -> list[tuple[list[float], list[float]]]:
        batch = pad([texts[row] for row in rows])
        found: ClassifierOutput = model.eval()(*batch)
        log_probs = found.logits.double().log_softmax(-1).tolist()
        weights = found.weights.tolist()
        return [
            (one, row[:length]) for one, row, length in zip(log_probs, weights, batch.lengths.tolist(), strict=True)
        ]

    return in_batches(texts.lengths, read)
