"""Linear classifiers of n-grams, weighted by naive Bayes log-count ratios or by inverse document frequency.

A feature f has, for each label, the ratio r = log(P(f | label) / P(f | other labels)). A linear model is trained on the
features multiplied by r, so a rare feature starts from what naive Bayes knows of it. Long texts have many rare features
that say nothing of the label; a second logistic regression multiplies by the inverse document frequency instead, which
knows no labels.

Paper: Wang and Manning 2012, "Baselines and bigrams: simple, good sentiment and topic classification".

Series have features of convolutions, which every series has: their linear models are solved in the same way, with
features as a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.data.column import Array
from weft.tasks.classify.ngram_features import (
    Keys,
    NgramKeys,
    SparseFeatures,
    TextKeys,
    binary_features,
    most_frequent,
    scaled_features,
)

MOST_FEATURES, MOST_PARAMETERS = 1 << 20, 1 << 23
MOST_OCCURRENCES = 1 << 25  # of features in the texts that a model is fitted to: about 1 GB of memory
ITERATIONS = 100
LOGISTIC_C, IDF_C = 10.0, 30.0  # inverse weight decay of the summed loss, for features of mean squared length 1
NBSVM_C, NBSVM_INTERPOLATION = 1.0, 0.25
CONVOLUTION_C, CONVOLUTION_SVM_C = 100.0, 10.0

Features: TypeAlias = SparseFeatures | Tensor  # of N texts, or (N, F) of N series

# (logits (N, labels), one-hot labels (N, labels)) -> the losses and their gradient, (N, labels) each
LinearLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear classifier of n-grams, or of convolutions, whose features have the numbers from 0 as keys.

    Attributes:
        keys: (F,) the features, sorted.
        weights: (F, labels).
        bias: (labels,).
        kind: A name in `FEATURES`: which features it reads, and how they are scaled.
    """

    keys: Keys
    weights: Tensor
    bias: Tensor
    kind: str

    def logits(self, texts: Sequence[Sequence[str]]) -> Tensor:
        """The logits of the labels of tokenized texts, (N, labels)."""
        reader = self.reader()
        return self.logits_of([reader.of(text) for text in texts])

    def logits_of(self, texts: Sequence[TextKeys] | Sequence[Array]) -> Tensor:
        """The same of texts, or series, whose features are known."""
        if not texts:
            return self.bias.new_zeros(0, len(self.bias))
        features = FEATURES[self.kind](texts, self.keys)
        if isinstance(features, Tensor):  # row by row: the bits of a series do not depend on the others
            return torch.stack([row @ self.weights for row in features]) + self.bias
        return _sums(self.weights, features) + self.bias

    def reader(self) -> NgramKeys:
        return NgramKeys(characters=self.kind == LOGISTIC)

    def contributions(self, tokens: Sequence[str]) -> Tensor:
        """What each token adds to the logits, (T, labels): the sum over its n-grams, each shared by its tokens.

        The rows and the bias add up to the logits.
        """
        reader = self.reader()
        features = FEATURES[self.kind]([reader.of(tokens)], self.keys)
        assert not isinstance(features, Tensor), "series have no n-grams"
        value = dict(zip(self.keys[features.ids.numpy()].tolist(), features.values.tolist(), strict=True))
        places = dict(zip(self.keys[features.ids.numpy()].tolist(), features.ids.tolist(), strict=True))
        found = [one for one in reader.occurrences(tokens) if one.key in value]
        times: dict[int, int] = {}
        for one in found:
            times[one.key] = times.get(one.key, 0) + 1
        shares = self.bias.new_zeros(len(tokens), len(self.bias))
        for one in found:
            part = value[one.key] / times[one.key] / (one.end - one.begin)
            shares[one.begin : one.end] += part * self.weights[places[one.key]]
        return shares

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        keys = torch.from_numpy(self.keys.view(np.int64))
        return {f"{prefix}keys": keys, f"{prefix}weights": self.weights, f"{prefix}bias": self.bias}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], labels: int, kind: str) -> LinearModel:
        """The model of that many labels from what `tensors` returned, without the prefix.

        Raises:
            LookupError, ValueError: they are not of such a model.
        """
        keys, weights, bias = (tensors[name] for name in ("keys", "weights", "bias"))
        if (
            keys.dtype != torch.int64 or weights.dtype != torch.float32 or bias.dtype != torch.float32
            or keys.dim() != 1 or not len(keys) or weights.shape != (len(keys), labels) or bias.shape != (labels,)
        ):  # fmt: skip
            raise ValueError(f"no linear model of {labels} labels")
        sorted_keys = keys.numpy().view(np.uint64)
        if (sorted_keys[1:] <= sorted_keys[:-1]).any():
            raise ValueError("features that are not in order")
        return cls(sorted_keys, weights, bias, kind)


def as_matrix(series: Sequence[Array], keys: Keys) -> Tensor:
    """The features of N series as a matrix (N, F)."""
    return torch.from_numpy(np.stack(series))


LOGISTIC, IDF, NBSVM = "logistic", "idf", "nbsvm"
CONVOLUTION, CONVOLUTION_SVM = "convolution", "convolution_svm"
FEATURES: dict[str, Callable[[Any, Keys], Features]] = {
    LOGISTIC: scaled_features,
    NBSVM: binary_features,
    CONVOLUTION: as_matrix,
    CONVOLUTION_SVM: as_matrix,
}


def fit_logistic(
    texts: Sequence[TextKeys],
    labels: Tensor,
    count: int,
    *,
    class_weights: Tensor | None = None,
    start: LinearModel | None = None,
) -> LinearModel:
    """Logistic regression on token and character n-grams.

    Args:
        texts: the features of N texts.
        labels: (N,).
        count: the number of labels.
        class_weights: (labels,) weights of the labels in the loss; None means 1.
        start: a model to start from: what is fitted is added to it, and its weights are not decayed.
    """
    keys = _chosen_keys(texts, count)
    features = scaled_features(texts, keys)
    ratios = log_count_ratios(features, labels, count, len(keys))
    offset = torch.zeros(len(texts), count) if start is None else start.logits_of(texts)
    found = _solve_logistic(keys, features, ratios, labels, LOGISTIC_C, offset, class_weights)
    return found if start is None else weighted_sum((start, 1.0), (found, 1.0))


def fit_idf_logistic(
    texts: Sequence[TextKeys], labels: Tensor, count: int, *, class_weights: Tensor | None = None
) -> LinearModel:
    """Logistic regression on the token n-grams that two texts or more have, weighted by inverse document frequency.

    The arguments are those of `fit_logistic`.
    """
    keys = _chosen_keys(texts, count)
    features = scaled_features([text.only_tokens() for text in texts], keys)
    frequency = torch.bincount(features.ids, minlength=len(keys))
    factors = (((1 + len(texts)) / (1 + frequency)).log() + 1) * (frequency > 1)
    offset = torch.zeros(len(texts), count)
    return _solve_logistic(keys, features, factors[:, None].expand(-1, count), labels, IDF_C, offset, class_weights)


def _chosen_keys(texts: Sequence[TextKeys], count: int) -> Keys:
    """The features of a logistic regression. Both have the same, so that their sum scales them as each of them does."""
    return most_frequent(texts, min(MOST_FEATURES, MOST_PARAMETERS // count))


def _solve_logistic(
    keys: Keys,
    features: SparseFeatures,
    factors: Tensor,
    labels: Tensor,
    c: float,
    offset: Tensor,
    class_weights: Tensor | None,
) -> LinearModel:
    """Logistic regression on features multiplied by factors (F, labels)."""
    scale = _unit_scale(features, factors)
    features = features._replace(values=features.values * scale)
    decay = 1 / (c * len(labels))
    weights, bias = LinearProblem(features, factors, labels, decay, softmax_loss, offset, class_weights).solve()
    return LinearModel(keys, weights * factors * scale, bias, LOGISTIC)


def fit_nbsvm(
    texts: Sequence[TextKeys], labels: Tensor, count: int, *, class_weights: Tensor | None = None
) -> LinearModel:
    """NB-SVM: a linear SVM with squared hinge loss on token n-grams, one label against the others.

    Its weights are interpolated with their mean magnitude, as in the paper.
    """
    texts = [text.only_tokens() for text in texts]
    keys = most_frequent(texts, min(MOST_FEATURES, MOST_PARAMETERS // count))
    features = binary_features(texts, keys)
    ratios = log_count_ratios(features, labels, count, len(keys))
    decay = 1 / (NBSVM_C * len(texts))
    offset = torch.zeros(len(texts), count)
    problem = LinearProblem(features, ratios, labels, decay, squared_hinge, offset, class_weights)
    weights, bias = problem.solve()
    mean = weights.abs().mean(0)
    weights = (1 - NBSVM_INTERPOLATION) * mean + NBSVM_INTERPOLATION * weights
    return LinearModel(keys, weights * ratios, NBSVM_INTERPOLATION * bias, NBSVM)


def fit_convolution(
    series: Sequence[Array], labels: Tensor, count: int, *, class_weights: Tensor | None = None
) -> LinearModel:
    """Logistic regression on the convolution features of series. The arguments are those of `fit_logistic`."""
    return _solve_matrix(series, labels, count, CONVOLUTION, CONVOLUTION_C, softmax_loss, class_weights)


def fit_convolution_svm(
    series: Sequence[Array], labels: Tensor, count: int, *, class_weights: Tensor | None = None
) -> LinearModel:
    """A linear SVM with squared hinge loss on the convolution features of series."""
    return _solve_matrix(series, labels, count, CONVOLUTION_SVM, CONVOLUTION_SVM_C, squared_hinge, class_weights)


def _solve_matrix(
    series: Sequence[Array], labels: Tensor, count: int, kind: str, c: float, loss: LinearLoss,
    class_weights: Tensor | None,
) -> LinearModel:  # fmt: skip
    """A linear model of centred features, scaled to a mean squared length of 1."""
    keys = np.arange(len(series[0]), dtype=np.uint64)
    features = as_matrix(series, keys)
    mean = features.mean(0)
    centred = features - mean
    scale = 1 / math.sqrt(max(float(centred.square().sum(1).mean()), 1e-12))
    ones = torch.ones(1, 1).expand(len(keys), count)
    offset = torch.zeros(len(labels), count)
    problem = LinearProblem(centred * scale, ones, labels, 1 / (c * len(labels)), loss, offset, class_weights)
    weights, bias = problem.solve()
    weights = (weights * scale).contiguous()
    return LinearModel(keys, weights, bias - mean @ weights, kind)


FITS: dict[str, Callable[..., LinearModel]] = {
    LOGISTIC: fit_logistic,
    IDF: fit_idf_logistic,
    NBSVM: fit_nbsvm,
    CONVOLUTION: fit_convolution,
    CONVOLUTION_SVM: fit_convolution_svm,
}


def log_count_ratios(features: SparseFeatures, labels: Tensor, count: int, size: int) -> Tensor:
    """(F, labels) log P(f | label) - log P(f | other labels), from the numbers of texts, with add-one smoothing."""
    by_feature = _transposed(features, size)
    counts = _sums(F.one_hot(labels, count).float(), by_feature._replace(values=torch.ones_like(by_feature.values)))
    inside = counts + 1
    outside = counts.sum(1, keepdim=True) - counts + 1
    return (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()


class LinearProblem:
    """A regularized linear model over features multiplied by ratios, solved by L-BFGS."""

    def __init__(
        self,
        features: Features,
        ratios: Tensor,
        labels: Tensor,
        decay: float,
        loss: LinearLoss,
        offset: Tensor,
        class_weights: Tensor | None = None,
    ) -> None:
        self.features, self.ratios, self.decay, self.loss, self.offset = features, ratios, decay, loss, offset
        self.by_feature: Features = (
            features.T.contiguous() if isinstance(features, Tensor) else _transposed(features, len(ratios))
        )
        self.truth = F.one_hot(labels, ratios.shape[1]).float()  # (N, labels)
        weights = torch.ones(len(labels)) if class_weights is None else class_weights[labels]
        self.weights = (weights / weights.sum())[:, None]  # (N, 1) of the texts

    def solve(self) -> tuple[Tensor, Tensor]:
        """The weights (F, labels) and the bias (labels,)."""
        size, count = self.ratios.shape
        solution = torch.zeros(size * count + count, requires_grad=True)

        def step() -> Tensor:
            weights, bias = solution.detach()[:-count].view(size, count), solution.detach()[-count:]
            logits = _sums(weights * self.ratios, self.features) + bias + self.offset
            losses, gradient = self.loss(logits, self.truth)
            gradient = self.weights * gradient
            slope = _sums(gradient, self.by_feature) * self.ratios + self.decay * weights
            solution.grad = torch.cat([slope.reshape(-1), gradient.sum(0)])
            return (self.weights * losses).sum() + self.decay / 2 * (weights * weights).sum()

        # Without momentum or randomness: the same data gives the same weights.
        optimizer = torch.optim.LBFGS(
            [solution], max_iter=ITERATIONS, history_size=8, line_search_fn="strong_wolfe",
            tolerance_grad=1e-5, tolerance_change=1e-7,
        )  # fmt: skip
        optimizer.step(step)  # type: ignore[no-untyped-call]
        found = solution.detach()
        return found[:-count].view(size, count), found[-count:]


def softmax_loss(logits: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    log_probs = logits.log_softmax(1)
    return -log_probs * truth, log_probs.exp() - truth


def squared_hinge(logits: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    signs = 2 * truth - 1
    margins = (1 - signs * logits).clamp(min=0)
    return margins.square(), -2 * signs * margins


def _sums(rows: Tensor, features: Features) -> Tensor:
    """For each text, the sum of rows (F, K) over its features, times their values: (N, K). Deterministic."""
    if isinstance(features, Tensor):
        return features @ rows
    return F.embedding_bag(
        features.ids, rows, features.offsets, mode="sum", per_sample_weights=features.values.to(rows.dtype)
    )


def _transposed(features: SparseFeatures, size: int) -> SparseFeatures:
    """For each feature the texts that have it."""
    texts = len(features.offsets)
    ends = torch.cat([features.offsets[1:], torch.tensor([len(features.ids)], dtype=features.offsets.dtype)])
    rows = torch.repeat_interleave(torch.arange(texts, dtype=torch.int32), (ends - features.offsets).long())
    order = torch.argsort(features.ids, stable=True)
    offsets = torch.from_numpy(np.searchsorted(features.ids[order].numpy(), np.arange(size)).astype(np.int32))
    return SparseFeatures(rows[order], offsets, features.values[order])


def _unit_scale(features: SparseFeatures, ratios: Tensor) -> float:
    """The factor that makes the mean squared length of the features 1 after multiplication by the ratios."""
    squares = features._replace(values=features.values.square())
    mean = float(_sums(ratios.square().mean(1, keepdim=True), squares).mean())
    return 1 / math.sqrt(max(mean, 1e-12))


def weighted_sum(*parts: tuple[LinearModel, float]) -> LinearModel:
    """The model of the first one's kind whose logits are the weighted sums of the models' logits."""
    keys = parts[0][0].keys
    for model, _ in parts[1:]:
        keys = np.union1d(keys, model.keys)
    weights = torch.zeros(len(keys), len(parts[0][0].bias))
    for model, factor in parts:
        weights[torch.from_numpy(np.searchsorted(keys, model.keys))] += factor * model.weights
    bias = torch.stack([factor * model.bias for model, factor in parts]).sum(0)
    return LinearModel(keys, weights, bias, parts[0][0].kind)
