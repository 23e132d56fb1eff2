"""Classifiers on the same texts: what `weft eval --against` reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.metrics.paired import ExampleStatistics, paired_bootstrap, ratio
from weft.tasks import load
from weft.tasks.classify.data import load_examples
from weft.tasks.classify.predictor import ClassifyPredictor
from weft.tasks.classify.readers import Example
from weft.tasks.classify.wide import held_out_scores, read_features
from weft.tasks.operation import EvaluationReport
from weft.tasks.stored_data import DEV_PART

NBSVM_NAME = "nbsvm"


class ComparedClassifier(NamedTuple):
    """Which of N texts a classifier labels correctly."""

    name: str
    correct: list[bool]


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
    others = [ComparedClassifier(name, _other(model, name, rows)) for name in against]
    compared, wide = [], max(len(str(model.run.path)), 8, *(len(one.name) for one in others))
    lines = [f"{'':{wide}}  accuracy  this run is better by (95% interval)"]
    for one in others:
        accuracy = sum(one.correct) / len(own)
        found = paired_bootstrap(_statistics(one.correct), _statistics(own))
        compared.append({"name": one.name, "accuracy": accuracy, **found._asdict()})
        lines.append(
            f"{one.name:{wide}}  {accuracy:8.4f}  {found.difference:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
        )
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
