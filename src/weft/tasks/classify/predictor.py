"""A trained classifier in use: it predicts the labels of texts, or of series, and is evaluated."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from weft import html
from weft.config import from_dict
from weft.data.buckets import in_batches, take
from weft.data.column import Column, IntArray
from weft.errors import WeftError
from weft.metrics import Confusion
from weft.metrics.paired import ExampleStatistics, paired_bootstrap, ratio
from weft.tasks import load
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.data import check_labels, cut_middle, load_examples
from weft.tasks.classify.inputs import ClassifierInput, SeriesInput, TextInput, input_of
from weft.tasks.classify.mixing import DEFAULT_MIXTURE, MixtureWeights
from weft.tasks.classify.model import Classifier, ClassifierMixture, ClassifierOutput
from weft.tasks.classify.readers import Example, ExampleLayout, Examples, ExampleSource, Texts, read_texts
from weft.tasks.classify.wide import WideModels, held_out_scores, read_features
from weft.tasks.operation import (
    EvaluationData,
    EvaluationReport,
    Operation,
    OperationInputs,
    Option,
    ReadInputs,
    Strict,
    operation,
)
from weft.tasks.predictor import NO_OPTIONS, ResultList, TaskPredictor, example_of
from weft.tasks.stored_data import DEV_PART, is_stored
from weft.text.fields import Label
from weft.text.text_field import Text
from weft.training.run import Run


@dataclass(frozen=True)
class ClassifiedText:
    """A predicted label, the probability of every label, and the weight of every token that was read.

    Of a text that is empty or missing, the label is "" and there are no probabilities. A series has steps for tokens,
    and its name or number for a text.
    """

    label: str
    probabilities: dict[str, float]
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    left_out: int = 0  # tokens in the middle of a long text that were not read
    text: str = ""
    labels: tuple[str, ...] = ()  # all that there are
    input: str = "text"  # what was classified: "text" or "series"

    @property
    def probability(self) -> float:
        """That of the label; NaN if there is none."""
        return self.probabilities.get(self.label, math.nan)

    def to_text(
        self,
        number: int,
        *,
        probabilities: Annotated[
            bool, Option("Show every label with its probability, as label=0.1234, each in a column.")
        ] = False,
        weights: Annotated[bool, Option("Show the weight of each token, as token=0.123, all in one column.")] = False,
    ) -> str:
        """A line of cells; those of a prediction are empty where there is no text."""
        cells = [self.label, f"{self.probability:.4f}" if self.label else ""]
        if probabilities:
            cells += (f"{label}={self.probabilities[label]:.4f}" if self.label else "" for label in self.labels)
        if weights:
            pairs = zip(self.tokens, self.weights, strict=True)
            cells.append(" ".join(f"{_escape_space(token)}={weight:.3f}" for token, weight in pairs))
        cells.append(" ".join(self.text.split()))  # tabs and line breaks of the text would look like columns and rows
        return "\t".join(cells) + "\n"

    def to_json(
        self, *, weights: Annotated[bool, Option("Also return the weight of each token.")] = False
    ) -> dict[str, Any]:
        record: dict[str, Any] = {
            self.input: self.text, "label": self.label or None, "probabilities": self.probabilities,
        }  # fmt: skip
        if weights:
            pairs = zip(self.tokens, self.weights, strict=True)
            record["weights"] = [[token, round(weight, 6)] for token, weight in pairs]
        return record

    def record(self) -> dict[str, Any]:
        """The label, its probability and that of every label, for a DataFrame; None where there is no text."""
        shares = {f"P({label})": share for label, share in self.probabilities.items()}
        return {"label": self.label or None, "probability": self.probability, **shares}

    def _repr_html_(self) -> str:
        """The probabilities, and the tokens shaded by their weights, for notebooks."""
        left_out = {"left out": f"{self.left_out:,} tokens"} if self.left_out else {}
        title = html.heading(self.label, {"probability": f"{self.probability:.3f}", **left_out})
        even = 1 / max(1, len(self.tokens))  # twice the mean weight is strong
        tokens = html.shaded_tokens(self.tokens, self.weights, largest=max(2 * even, *self.weights, even))
        return html.box(title + html.bars(self.probabilities) + tokens)


@dataclass(frozen=True, repr=False)
class ClassifyPredictor(TaskPredictor):
    """A trained classifier, ready for use."""

    run: Run
    model: Classifier | ClassifierMixture
    input: ClassifierInput
    labels: tuple[str, ...]
    wide: WideModels | None = None
    mixture: MixtureWeights = DEFAULT_MIXTURE

    @cached_property
    def config(self) -> ClassifyConfig:
        return from_dict(ClassifyConfig, self.run.config)

    @cached_property
    def prior(self) -> dict[str, float]:
        """The relative frequency of each label in the training data: the prediction for a text without tokens."""
        counts = self.run.field("label", Label).counts
        return {label: counts[label] / sum(counts.values()) for label in self.labels}

    @property
    def text_field(self) -> Text | None:
        """The tokens of texts; None of a classifier of series."""
        return self.input.field if isinstance(self.input, TextInput) else None

    @property
    def example(self) -> str:
        if isinstance(self.input, TextInput):
            return example_of(self.input.field)
        assert isinstance(self.input, SeriesInput)
        return json.dumps(self.input.example)

    @property
    def operations(self) -> Mapping[str, Operation]:
        """What it can do; a classifier of series takes lists of numbers."""
        known = super().operations
        if isinstance(self.input, TextInput):
            return known
        inputs = OperationInputs(
            "Series, each a JSON list of numbers, or of steps of several channels.",
            "A file of series: .ts, a long table, or a row for each series.",
            missing="there is no series to classify",
            example="weft classify RUN '[[1, 2], [3, 4]]', or weft classify RUN --file series.csv",
            schema=self.input.schema,
        )
        return {**known, "classify": replace(known["classify"], inputs=inputs)}

    @property
    def layout(self) -> ExampleLayout:
        """The columns of the training data, and its labels."""
        text, label = self.run.column_names("text", "label")
        return ExampleLayout(text, label, self.labels)

    @operation(
        "classify",
        OperationInputs(
            "Texts; - reads one text per line.",
            "A file with one text per line, or a table with the text column of the training data.",
            missing="there is no text to classify",
            example='weft classify RUN "some text", or weft classify RUN --file texts.txt',
        ),
    )
    def classify(self, texts: Iterable[Any]) -> ResultList[ClassifiedText]:
        """Predict the label of each text or series: a line each with label, probability and text, separated by tabs.

        Columns of probabilities and weights come before the text. White space is written as one space in the text,
        and as \\u0020 in a token.

        An empty line, or a row without a text, has an empty label. A text without any token, after normalization, gets
        the label frequencies of the training data. Of a text longer than `data.max_tokens` the middle is left out.

        Args:
            texts: A list, Series, array or generator, or a table such as a DataFrame, of which the columns of the
                training data are read, or one with a usual name. Of a classifier of series: arrays (T,) or (T, C),
                (N, T) or (N, C, T), a long table, or a file.
        """
        limit, prior, reads = self.config.data.max_tokens, self.prior, self.input
        given = reads.given(texts, self.layout)
        parts = [reads.parts(value) for value in given.values]
        log_probs, pooling = self.predict(parts)
        results: ResultList[ClassifiedText] = ResultList(index=given.index)
        for value, name, whole, values, weights in zip(
            given.values, given.names, parts, log_probs.exp().tolist(), pooling, strict=True
        ):
            if not name.strip():
                results.append(ClassifiedText("", {}, (), (), text=name, labels=self.labels, input=reads.name))
                continue
            steps = cut_middle(reads.step_names(value, whole), limit)
            known = dict(zip(self.labels, values, strict=True)) if steps else prior
            label = max(known, key=known.__getitem__)
            shown = (steps, tuple(weights), len(whole) - len(steps), name, self.labels, reads.name)
            results.append(ClassifiedText(label, dict(known), *shown))
        return results

    def predict(self, parts: Sequence[Any]) -> tuple[Tensor, list[list[float]]]:
        """The log-probabilities of the labels of tokenized texts, or of scaled series (T, C), and the step weights.

        Returns:
            (N, labels), and for each example the weight of each token or step that was read.
        """
        read = [self.input.encode(cut_middle(row, self.config.data.max_tokens)) for row in parts]
        found = _predict(self.model, Column.from_rows(read, self.input.stored_type))
        log_probs = _stacked(found, len(self.labels))
        if self.wide is not None and len(parts):
            log_probs = self.mixture.log_probs(join_scores(log_probs, self.wide.scores(parts)))
        return self.check_finite(log_probs), [weights for _, weights in found]

    def notes(self, texts: Iterable[Any], options: Mapping[str, Any] = NO_OPTIONS) -> list[str]:
        """What a user should know about these texts: which are cut, which have no tokens or no known ones."""
        limit, reads = self.config.data.max_tokens, self.input
        given = reads.given(texts, self.layout).values
        if isinstance(reads, SeriesInput):
            long = [number for number, one in enumerate(given, start=1) if len(one) > limit]
            ends = f"the network read the first and last {limit // 2:,}"
            return [f"{len(long):,} series had more than {limit:,} steps: {ends}"] if long else []
        assert isinstance(reads, TextInput)
        tokens = [reads.encode(reads.parts(text)) for text in given]
        lengths = list(map(len, tokens))
        unknown = [number for number, ids in enumerate(tokens, 1) if set(ids) == {reads.field.vocabulary.unk_id}]
        long = [number for number, length in enumerate(lengths, start=1) if length > limit]
        blank = [number for number, text in enumerate(given, start=1) if not text.strip()]
        empty = [number for number, length in enumerate(lengths, start=1) if not length and number not in blank]
        notes = [f"{_listed(blank)} had no text: there is no prediction"] if blank else []
        if long:
            notes.append(
                f"{_listed(long)} had more than {limit:,} tokens: only the first and last {limit // 2:,} were read"
            )
        if empty:
            notes.append(f"{_listed(empty)} had nothing to read: the label frequencies of the training data are given")
        if unknown:
            notes.append(f"{_listed(unknown)} had no token that the model knows: each is read as <unk>")
        return notes

    def read_inputs(
        self,
        operation: Operation,
        texts: Sequence[str],
        file: str | None,
        *,
        column: Annotated[
            str | None,
            Option("--file is TSV, CSV or JSON lines: the column of the texts, by name or number from 1."),
        ] = None,
    ) -> ReadInputs:
        if isinstance(self.input, SeriesInput):
            if column is not None:
                raise WeftError("there is a `column`, and the model reads series", expected="no `column`")
            if file is None:
                return super().read_inputs(self.operations[operation.name], texts, None)
            given = self.input.given(file, self.layout)
            return ReadInputs(given.values)
        if file is None:
            if column is not None:
                raise WeftError("there is a `column` without a `file`", expected="the file that has it")
            return super().read_inputs(operation, texts, file)
        read = self.read_texts(file, column)
        return ReadInputs(read.rows, read.notes)

    def read_texts(self, source: str, column: int | str | None = None) -> Texts:
        """Texts without labels: the lines of a file, or a column of a table.

        Args:
            source: A file (TSV, CSV, JSON lines, or plain lines), or `-` for standard input.
            column: The column of the texts, by name or number from 1. Without it, a table that has the text column of
                the training data is read by that column, any other file by lines.

        Returns:
            The texts, and notes on how they were read where that was not given.
        """
        return read_texts(source, column, self.config.data, self.layout)

    def read(self, source: ExampleSource, *, strict: bool = False) -> Examples:
        """Labelled examples, read in the same way as the training data; see `evaluate`."""
        config = self.config.data
        examples = self.input.read(source, replace(config, strict=strict or config.strict), self.layout)
        check_labels(examples.rows, self.labels)
        return examples

    def score(self, rows: Sequence[Example]) -> Confusion:
        """Compares predicted labels with those of the examples."""
        found = self.classify([row.value for row in rows])
        pairs = [(row.label, one.label) for row, one in zip(rows, found, strict=True)]
        probabilities = [one.probabilities[row.label] for row, one in zip(rows, found, strict=True)]
        return Confusion.of(self.labels, pairs, -float(np.log(np.maximum(probabilities, 1e-300)).sum()))

    def evaluate(self, source: ExampleSource, *, strict: bool = False) -> Confusion:
        """Evaluates on labelled examples.

        Args:
            source: A file, a folder, "grammar", a list of (text, label), or a table: a DataFrame, a data set, a dict of
                columns, a list of dicts.
            strict: Refuse rows without a text or a label, which are left out and reported otherwise.
        """
        return self.score(self.read(source, strict=strict).rows)

    @operation("evaluate", command="eval")
    def evaluation(
        self,
        data: EvaluationData = None,
        *,
        against: Annotated[
            tuple[str, ...],
            Option("A run of the same labels to compare with, or nbsvm: the run's own baseline."),
        ] = (),
        strict: Strict = False,
    ) -> EvaluationReport:
        """Accuracy, F1 and the confusion matrix; with `against`, accuracy beside other classifiers."""
        examples = None if data is None else self.read(data, strict=strict)
        left_out = {} if examples is None else {"left_out": examples.left_out}
        of_text = isinstance(self.input, TextInput)
        notes = [] if examples is None else [f"{data}: {examples.description}" if of_text else examples.description]
        if against:
            compared = compare_classifiers(self, against, None if examples is None else examples.rows)
            return self.report({**compared.record, **left_out}, compared.lines, notes)
        found = self.evaluate_held_out() if examples is None else self.score(examples.rows)
        plural = self.input.plural
        record = {
            plural: found.count,
            **left_out,
            "accuracy": found.accuracy,
            "macro_f1": found.macro_f1,
            "cross_entropy": found.cross_entropy,
            "labels": [score._asdict() for score in found.scores],
            "confusion": found.counts,
            "signature": found.signature(),
        }
        wide = max(5, *(len(label) for label in found.labels))
        lines = [
            f"accuracy       {found.accuracy:.4f}",
            f"macro F1       {found.macro_f1:.4f}",
            f"cross-entropy  {found.cross_entropy:.4f} nats per {self.input.name}",
            f"{plural:6}         {found.count:,}",
            "",
            f"{'label':{wide}}  precision  recall      F1  {plural:>6}",
        ]
        for score in found.scores:
            numbers = f"{score.precision:9.4f}  {score.recall:6.4f}  {score.f1:6.4f}  {score.support:6,}"
            lines.append(f"{score.label:{wide}}  {numbers}")
        return self.report(record, [*lines, "", *_confusion_table(found)], notes)

    def evaluate_held_out(self) -> Confusion:
        """Evaluates on the run's own held-out examples."""
        columns = load_examples(self.run, DEV_PART)
        return confusion_of(self.labels, self.held_out_log_probs(columns), columns["label"].values)

    def held_out_log_probs(self, columns: Mapping[str, Column]) -> Tensor:
        """The log-probabilities of the labels of the run's own held-out examples, (N, labels)."""
        rows = columns[self.input.name]
        network = network_log_probs(self.model, rows, len(self.labels))
        wide = held_out_scores(self.run, len(rows))
        return network if wide is None else self.mixture.log_probs(join_scores(network, wide.scores))

    def held_out_metrics(self) -> dict[str, float]:
        return label_metrics(self.evaluate_held_out()) if is_stored(self.run, DEV_PART) else {}

    def held_out_texts(self) -> Iterator[str]:
        if is_stored(self.run, DEV_PART):
            rows = load_examples(self.run, DEV_PART)[self.input.name]
            for row in range(len(rows)):
                yield self.input.shown(rows[row])

    def confusion(self, source: ExampleSource | None = None) -> Confusion:
        """How often each label was predicted for each true label, on examples or on the run's own held-out ones."""
        return self.evaluate_held_out() if source is None else self.evaluate(source)

    def held_out_statistics(self) -> tuple[ExampleStatistics, ...]:
        columns = load_examples(self.run, DEV_PART)
        log_probs, truth = self.held_out_log_probs(columns).numpy(), columns["label"].values
        losses = -log_probs[np.arange(len(truth)), truth]
        hits = (log_probs.argmax(1) == truth).astype(np.float64)
        labels = f"labels:{','.join(self.labels)}"
        one = np.ones(len(losses))
        return (
            ExampleStatistics("accuracy", self.input.name, f"accuracy|{labels}", np.stack([hits, one], 1), ratio),
            ExampleStatistics(
                "cross_entropy",
                self.input.name,
                f"cross_entropy|{labels}",
                np.stack([losses, one], 1),
                ratio,
                higher_is_better=False,
            ),
        )


NBSVM_NAME = "nbsvm"


def compare_classifiers(
    model: ClassifyPredictor, against: Sequence[str], rows: Sequence[Example] | None
) -> EvaluationReport:
    """Accuracy of a classifier and of others, with paired bootstrap intervals of the differences.

    Args:
        model: the classifier.
        against: run directories, or "nbsvm": the NB-SVM that was fitted to the same training texts.
        rows: labelled texts; None: the run's own held-out texts, for which only "nbsvm" can be compared.
    """
    own = _correct(model, rows)
    compared, wide = [], max(len(str(model.run.path)), 8, *map(len, against))
    lines = [f"{'':{wide}}  accuracy  this run is better by (95% interval)"]
    for name in against:
        correct = _other(model, name, rows)
        accuracy, found = sum(correct) / len(own), paired_bootstrap(_statistics(correct), _statistics(own))
        compared.append({"name": name, "accuracy": accuracy, **found._asdict()})
        lines.append(f"{name:{wide}}  {accuracy:8.4f}  {found.difference:+.4f} ({found.low:+.4f} to {found.high:+.4f})")
    accuracy = sum(own) / len(own)
    lines += [f"{model.run.path!s:{wide}}  {accuracy:8.4f}", f"({len(own):,} texts)"]
    return EvaluationReport({"texts": len(own), "accuracy": accuracy, "compared": compared}, lines)


def _correct(model: ClassifyPredictor, rows: Sequence[Example] | None) -> list[bool]:
    if rows is not None:
        found = model.classify([row.value for row in rows])
        return [one.label == row.label for one, row in zip(found, rows, strict=True)]
    columns = load_examples(model.run, DEV_PART)
    return _equal(model.held_out_log_probs(columns), columns["label"].values.tolist())


def _other(model: ClassifyPredictor, name: str, rows: Sequence[Example] | None) -> list[bool]:
    if name == NBSVM_NAME:
        return _nbsvm(model, rows)
    if rows is None:
        raise WeftError(
            f"the held-out texts of {model.run.path} are stored in its own encoding",
            expected="texts that both runs can read",
            hint="`source=FILE`",
        )
    other = load(name, ClassifyPredictor)
    if set(other.labels) != set(model.labels):
        raise WeftError(f"{name} has the labels {', '.join(other.labels[:5])}", expected=f"those of {model.run.path}")
    return _correct(other, rows)


def _nbsvm(model: ClassifyPredictor, rows: Sequence[Example] | None) -> list[bool]:
    if model.wide is None:
        raise WeftError(f"{model.run.path} was trained without linear models", expected="a run with `model.wide=true`")
    if rows is not None:
        features = read_features([model.input.parts(row.value) for row in rows], model.wide.kernels)
        return _equal(model.wide.nbsvm.logits_of(features), [model.labels.index(row.label) for row in rows])
    truth = load_examples(model.run, DEV_PART)["label"].values.tolist()
    wide = held_out_scores(model.run, len(truth))
    assert wide is not None
    return _equal(wide.scores[..., 1], truth)


def _statistics(correct: Sequence[bool]) -> ExampleStatistics:
    hits = np.array(correct, dtype=np.float64)
    return ExampleStatistics("accuracy", "text", "accuracy", np.stack([hits, np.ones_like(hits)], 1), ratio)


def _equal(scores: Tensor, truth: Sequence[int]) -> list[bool]:
    return (scores.argmax(1) == torch.tensor(truth)).tolist()


def _escape_space(token: str) -> str:
    return re.sub(r"\s", lambda space: f"\\u{ord(space[0]):04x}", token)


def _confusion_table(found: Confusion) -> list[str]:
    """True labels down the side, predicted ones across the top."""
    corner = "true \\ predicted"
    wide = max(len(corner), *(len(label) for label in found.labels))
    table = [list(found.labels), *([f"{number:,}" for number in row] for row in found.counts)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for name, row in zip([corner, *found.labels], table, strict=True):
        cells = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([f"{name:{wide}}", *cells]))
    return lines


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return f"text {shown}" if len(numbers) == 1 else f"texts {shown}{', ...' if len(numbers) > 5 else ''}"


def label_metrics(found: Confusion) -> dict[str, float]:
    """The metrics of predicted labels."""
    return {"cross_entropy": found.cross_entropy, "accuracy": found.accuracy, "macro_f1": found.macro_f1}


def make_classifier(run: Run, config: ClassifyConfig) -> Classifier:
    """The untrained model of a run."""
    embedding = input_of(run).layer(config.model)
    return Classifier(embedding, len(run.field("label", Label).counts), config.model)


def confusion_of(labels: tuple[str, ...], log_probs: Tensor, truth: IntArray) -> Confusion:
    """The confusion matrix of predictions (N, labels) and the true labels (N,)."""
    predicted = log_probs.argmax(1).tolist()
    pairs = [(labels[one], labels[other]) for one, other in zip(truth.tolist(), predicted, strict=True)]
    return Confusion.of(labels, pairs, -float(log_probs[torch.arange(len(truth)), torch.tensor(truth)].sum()))


def network_log_probs(model: Classifier | ClassifierMixture, texts: Column, labels: int) -> Tensor:
    """The network's log-probabilities of the labels of encoded texts, (N, labels)."""
    return _stacked(_predict(model, texts), labels)


def join_scores(network: Tensor, wide: Tensor) -> Tensor:
    """The scores of all models, (N, labels, 3)."""
    return torch.cat([network[..., None], wide], -1)


def _stacked(found: Sequence[tuple[list[float], list[float]]], labels: int) -> Tensor:
    return torch.tensor([log_probs for log_probs, _ in found], dtype=torch.float64).reshape(-1, labels)


def _predict(model: Classifier | ClassifierMixture, texts: Column) -> list[tuple[list[float], list[float]]]:
    """The log-probabilities of the labels and the weights of the tokens of each text, in batches of similar length."""

    @torch.no_grad()
    def read(rows: IntArray) -> list[tuple[list[float], list[float]]]:
        batch = take(texts, rows)
        found: ClassifierOutput = model.eval()(*batch)
        log_probs = found.logits.double().log_softmax(-1).tolist()
        weights = found.weights.tolist()
        return [
            (one, row[:length]) for one, row, length in zip(log_probs, weights, batch.lengths.tolist(), strict=True)
        ]

    return in_batches(texts.lengths, read)
