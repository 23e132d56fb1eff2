"""The linear models of classifiers beside scikit-learn's, which solve the same problems on the same features.

    python -m benchmarks.quality.linear_models [SET ...]

For each set and solver: CPU seconds of the fits, and on the test texts the accuracy and cross-entropy of the mixture
of the models, whose weights are fitted to the development texts. scikit-learn has no features that are scaled by label,
so its logistic regressions of more than two labels are one for each label.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from torch import Tensor

from benchmarks.quality.rows import data
from benchmarks.quality.rows_classify import SPLITS, Split, split_files
from weft.config import load_config
from weft.tasks.classify import linear
from weft.tasks.classify.config import ClassifyConfig, ClassifyDataConfig
from weft.tasks.classify.linear import FITS, IDF, LOGISTIC, NBSVM
from weft.tasks.classify.mixing import DEFAULT_PRIOR, NGRAM_CENTRE, fit_blend
from weft.tasks.classify.ngram_features import NgramKeys, SparseFeatures, mostly_long
from weft.tasks.classify.readers import read_labelled
from weft.tasks.classify.wide import blended, fitted_scores
from weft.tasks.mixture import LogLinear
from weft.text.text_field import Text


def trec() -> Split:
    config = ClassifyDataConfig(encoding="latin-1", label_separator=":")
    train, test = (read_labelled(str(data("cls", "trec", f"TREC.{part}")), config).rows for part in ("train", "test"))
    return train, None, test


SETS: dict[str, Callable[[], Split]] = {
    **SPLITS,
    "cls/trec": trec,
    "cls/clinc150": lambda: split_files("clinc150", "train.tsv.gz", "dev.tsv.gz", "test.tsv.gz"),
}


def as_matrix(features: SparseFeatures, size: int) -> Any:
    ends = np.append(features.offsets.numpy(), len(features.ids))
    shape = (len(features.offsets), size)
    return sparse.csr_matrix((features.values.numpy(), features.ids.numpy(), ends), shape=shape)


def solve(problem: Any) -> tuple[Tensor, Tensor]:
    """What `LinearProblem.solve` of weft returns, by scikit-learn: weights (F, labels) and the bias (labels,)."""
    x, truth = as_matrix(problem.features, len(problem.ratios)), problem.truth.argmax(1).numpy()
    count, c = problem.truth.shape[1], 1 / (problem.decay * len(truth))
    weights, bias = torch.zeros(len(problem.ratios), count), torch.zeros(count)
    hinge = problem.loss is linear.squared_hinge
    for label in range(count) if hinge or count > 2 else [1]:
        # Of two labels with opposite ratios, both weights are half of those of their difference.
        model = LinearSVC(C=c) if hinge else LogisticRegression(C=2 * c if count == 2 else c, max_iter=1000)
        model.fit(x @ sparse.diags(problem.ratios[:, label].numpy()), truth == label)
        weights[:, label], bias[label] = torch.tensor(model.coef_[0]), float(model.intercept_[0])
    if not hinge and count == 2:
        weights[:, 1] /= 2
        bias[1] /= 2
        weights[:, 0], bias[0] = weights[:, 1], -bias[1]
    return weights, bias


def measure(split: Split) -> str:
    """CPU seconds, accuracy and cross-entropy."""
    train, dev, test = split
    if dev is None:
        random.Random(1).shuffle(train)
        dev, train = train[: len(train) // 10], train[len(train) // 10 :]
    field, reader = Text.fit([row.value for row in train], load_config(ClassifyConfig).text), NgramKeys(characters=True)
    labels = {label: number for number, label in enumerate(sorted({row.label for row in train}))}
    keys = [[reader.of(field.names(row.value)) for row in part] for part in (train, dev, test)]
    truth = [torch.tensor([labels[row.label] for row in part]) for part in (train, dev, test)]
    began, kinds = time.process_time(), (*((IDF,) if mostly_long(keys[0]) else ()), LOGISTIC, NBSVM)
    models = {kind: FITS[kind](keys[0], truth[0], len(labels)) for kind in kinds}
    seconds = time.process_time() - began
    held_out, scores = (fitted_scores(models, part) for part in keys[1:])
    share = fit_blend(held_out, truth[1]) if IDF in models else 0.0
    rule = LogLinear(NGRAM_CENTRE, DEFAULT_PRIOR.texts)
    weights = rule.fit(blended(held_out, share).unbind(-1), truth[1])
    found = rule.join(blended(scores, share).unbind(-1), weights)
    accuracy = float((found.argmax(1) == truth[2]).double().mean())
    return f"{seconds:6.1f} s  {accuracy:.4f}  {-float(found[torch.arange(len(found)), truth[2]].mean()):.4f}"


def main() -> None:
    torch.set_num_threads(1)
    own: Any = linear.LinearProblem.solve
    for name in sys.argv[1:] or SETS:
        for solver, method in (("weft", own), ("scikit-learn", solve)):
            linear.LinearProblem.solve = method  # type: ignore[method-assign]
            print(f"{name:22}{solver:14}{measure(SETS[name]())}", flush=True)


if __name__ == "__main__":
    main()
