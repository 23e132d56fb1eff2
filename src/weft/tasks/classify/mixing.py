"""The log-linear mixture of the network and the n-gram models: their log-probabilities, weighted and added.

The weights are fitted on the held-out texts. Where these are few, the weights stay near those of `CENTRES`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.errors import WeftError

PRIOR_TEXTS = 30.0  # how strongly the weights are held near a centre; about as many texts


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


DEFAULT_MIXTURE = Mixture()
# What the weights stay near where held-out texts are few: the first, unless the texts clearly prefer the network alone.
CENTRES = (DEFAULT_MIXTURE, Mixture(1.0, 0.0, 0.0))
CENTRE_MARGIN = 3.0  # nats in favour of the first centre: a handful of texts cannot drop the n-gram models


def fit_mixture(parts: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> Mixture:
    """Fits the weights to the cross-entropy of held-out texts, with a Gaussian prior around one of the centres.

    Args:
        parts: (N, labels, 3) the scores of the models, in double precision.
        labels: (N,) the true labels.
        class_weights: (labels,) weights of the labels in the cross-entropy; None means 1.
    """
    texts = torch.ones(len(labels)) if class_weights is None else class_weights[labels]
    found = [_fit_around(torch.tensor(centre, dtype=parts.dtype), parts, labels, texts.to(parts)) for centre in CENTRES]
    best = min(range(len(found)), key=lambda number: found[number][1] + (CENTRE_MARGIN if number else 0.0))
    return Mixture(*found[best][0].clamp(min=0).tolist())


def _fit_around(centre: Tensor, parts: Tensor, labels: Tensor, texts: Tensor) -> tuple[Tensor, float]:
    """Newton's method: the weights (3,), and the objective there."""
    chosen = parts[torch.arange(len(labels)), labels]  # (N, 3)
    ridge = PRIOR_TEXTS * torch.eye(len(centre), dtype=parts.dtype)

    def objective(weights: Tensor) -> Tensor:
        losses = torch.logsumexp(parts @ weights, -1) - chosen @ weights
        return texts @ losses + PRIOR_TEXTS / 2 * (weights - centre).square().sum()

    weights = centre
    value = objective(weights)
    for _ in range(50):
        probs = (parts @ weights).softmax(-1)  # (N, labels)
        means = (probs[..., None] * parts).sum(1)  # (N, 3)
        slope = texts @ (means - chosen) + PRIOR_TEXTS * (weights - centre)
        centred = parts - means[:, None]
        curvature = torch.einsum("n,nk,nki,nkj->ij", texts, probs, centred, centred) + ridge
        direction, size = torch.linalg.solve(curvature, slope), 1.0
        while (lower := objective(weights - size * direction)) > value and size > 1e-4:
            size /= 2
        if value - lower < 1e-9:
            break
        weights, value = weights - size * direction, lower
    return weights, float(value)
