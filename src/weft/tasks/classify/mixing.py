"""The log-linear mixture of the network and the n-gram models: their log-probabilities, weighted and added.

The weights are fitted on the held-out texts. Where these are few, the weights stay near those of a prior: typical ones,
or, for the n-gram models, those that were fitted to all training texts by cross-fitting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.errors import WeftError


class Mixture(NamedTuple):
    """The weights of the three models. The defaults are typical of the development sets."""

    network: float = 0.2
    logistic: float = 0.6
    nbsvm: float = 0.1

    def log_probs(self, parts: Tensor) -> Tensor:
        """The log-probabilities of the labels, (N, labels), from the scores of the models, (N, labels, 3)."""
        return (parts @ torch.tensor(self, dtype=parts.dtype)).log_softmax(-1)

    def to_metrics(self) -> dict[str, float]:
        """The weights as metrics of an evaluation, which are stored beside the network's weights."""
        return {f"{name}_weight": value for name, value in self._asdict().items()}

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, Any]) -> Mixture:
        """The weights that an evaluation has stored; the defaults if there are none.

        Raises:
            WeftError: the values are no weights.
        """
        found = cls(*(metrics.get(f"{name}_weight", value) for name, value in cls()._asdict().items()))
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in found):
            raise WeftError(f"the weights of the mixture are {tuple(found)}", expected="finite numbers")
        return found


class MixturePrior(NamedTuple):
    """What the weights stay near, and how strongly: about as many texts."""

    centre: Mixture
    texts: float

    @property
    def is_cross_fitted(self) -> bool:
        """Whether training texts have shown what the n-gram models are worth."""
        return self.texts == CROSS_FITTED_TEXTS


DEFAULT_MIXTURE = Mixture()
DEFAULT_PRIOR = MixturePrior(DEFAULT_MIXTURE, 30.0)
NGRAM_CENTRE = (0.7, 0.15)  # of the n-gram models without a network
CROSS_FITTED_TEXTS = 100.0
BLEND_CENTRE = (0.6, 0.1, 0.15)  # of the n-gram models without a network, with the logistic regression in two parts
NETWORK_ALONE = Mixture(1.0, 0.0, 0.0)
# Nats against the network alone: a handful of texts cannot drop the n-gram models.
CENTRE_MARGIN, CROSS_FITTED_MARGIN = 3.0, 6.0


def fit_mixture(
    parts: Tensor, labels: Tensor, class_weights: Tensor | None = None, prior: MixturePrior = DEFAULT_PRIOR
) -> Mixture:
    """Fits the weights to the cross-entropy of held-out texts, with a Gaussian prior.

    The prior's centre is replaced by the network alone if the texts clearly prefer that; more clearly if it was
    cross-fitted, since it rests on more texts than these then.

    Args:
        parts: (N, labels, 3) the scores of the models, in double precision.
        labels: (N,) the true labels.
        class_weights: (labels,) weights of the labels in the cross-entropy; None means 1.
        prior: the weights where there are no texts.
    """
    weights, objective = _fit_around(prior.centre, prior.texts, parts, labels, class_weights)
    alone, other = _fit_around(NETWORK_ALONE, prior.texts, parts, labels, class_weights)
    margin = CROSS_FITTED_MARGIN if prior.is_cross_fitted else CENTRE_MARGIN
    chosen = alone if other + margin < objective else weights
    return Mixture(*chosen.clamp(min=0).tolist())


def fit_prior(scores: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> MixturePrior:
    """The prior from scores of the n-gram models for texts that they were not fitted to.

    Its weight of the network is 0: few held-out texts have to show that the network adds something.

    Args:
        scores: (N, labels, 2) in double precision.
        labels: (N,) the true labels.
        class_weights: (labels,) weights of the labels; None means 1.
    """
    weights, _ = _fit_around(NGRAM_CENTRE, DEFAULT_PRIOR.texts, scores, labels, class_weights)
    return MixturePrior(Mixture(0.0, *weights.clamp(min=0).tolist()), CROSS_FITTED_TEXTS)


def fit_blend(scores: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> float:
    """The share of the second of two logistic regressions, from scores of texts that they were not fitted to.

    Args:
        scores: (N, labels, 3) of both regressions and of the SVM, in double precision.
        labels: (N,) the true labels.
        class_weights: (labels,) weights of the labels; None means 1.
    """
    weights, _ = _fit_around(BLEND_CENTRE, DEFAULT_PRIOR.texts, scores, labels, class_weights)
    first, second, _ = weights.clamp(min=0).tolist()
    return second / (first + second) if first + second else 0.0


def _fit_around(
    centre: Sequence[float], prior_texts: float, parts: Tensor, labels: Tensor, class_weights: Tensor | None
) -> tuple[Tensor, float]:
    """Newton's method: the weights of the K models, (K,), and the objective there."""
    texts = torch.ones(len(labels)) if class_weights is None else class_weights[labels]
    texts, middle = texts.to(parts), torch.tensor(centre, dtype=parts.dtype)
    chosen = parts[torch.arange(len(labels)), labels]  # (N, K)
    ridge = prior_texts * torch.eye(len(centre), dtype=parts.dtype)

    def objective(weights: Tensor) -> Tensor:
        losses = torch.logsumexp(parts @ weights, -1) - chosen @ weights
        return texts @ losses + prior_texts / 2 * (weights - middle).square().sum()

    weights = middle
    value = objective(weights)
    for _ in range(50):
        probs = (parts @ weights).softmax(-1)  # (N, labels)
        means = (probs[..., None] * parts).sum(1)  # (N, K)
        slope = texts @ (means - chosen) + prior_texts * (weights - middle)
        centred = parts - means[:, None]
        curvature = torch.einsum("n,nk,nki,nkj->ij", texts, probs, centred, centred) + ridge
        direction, size = torch.linalg.solve(curvature, slope), 1.0
        while (lower := objective(weights - size * direction)) > value and size > 1e-4:
            size /= 2
        if value - lower < 1e-9:
            break
        weights, value = weights - size * direction, lower
    return weights, float(value)
