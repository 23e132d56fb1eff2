"""The log-linear mixture of the network and the linear models: their log-probabilities, weighted and added.

The weights are fitted on the held-out texts. Where these are few, the weights stay near those of a prior: typical ones,
or, for the n-gram models, those that were fitted to all training texts by cross-fitting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from weft.errors import WeftError
from weft.tasks.mixture import LogLinear


class MixtureWeights(NamedTuple):
    """The weights of the three models. The defaults are typical of the development sets."""

    network: float = 0.2
    logistic: float = 0.6
    nbsvm: float = 0.1

    def log_probs(self, parts: Tensor) -> Tensor:
        """The log-probabilities of the labels, (N, labels), from the scores of the models, (N, labels, 3)."""
        return LogLinear().join(parts.unbind(-1), self)

    def to_metrics(self) -> dict[str, float]:
        """The weights as metrics of an evaluation, which are stored beside the network's weights."""
        return {f"{name}_weight": value for name, value in self._asdict().items()}

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, Any], default: MixtureWeights | None = None) -> MixtureWeights:
        """The weights that an evaluation has stored; the defaults if there are none.

        Raises:
            WeftError: the values are no weights.
        """
        found = cls(*(metrics.get(f"{name}_weight", value) for name, value in (default or cls())._asdict().items()))
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in found):
            raise WeftError(f"the weights of the mixture are {tuple(found)}", expected="finite numbers")
        return found


class MixturePrior(NamedTuple):
    """What the weights stay near, and how strongly: about as many texts."""

    centre: MixtureWeights
    texts: float

    @property
    def is_cross_fitted(self) -> bool:
        """Whether training texts have shown what the n-gram models are worth."""
        return self.texts == CROSS_FITTED_TEXTS


DEFAULT_MIXTURE = MixtureWeights()
DEFAULT_PRIOR = MixturePrior(DEFAULT_MIXTURE, 30.0)
# Chosen by cross-validation on the training parts of JapaneseVowels and BasicMotions.
SERIES_PRIOR = MixturePrior(MixtureWeights(0.5, 0.4, 0.2), 30.0)
NGRAM_CENTRE = (0.7, 0.15)  # of the n-gram models without a network
CROSS_FITTED_TEXTS = 100.0
BLEND_CENTRE = (0.6, 0.1, 0.15)  # of the n-gram models without a network, with the logistic regression in two parts
NETWORK_ALONE = MixtureWeights(1.0, 0.0, 0.0)
# Nats against the network alone: a handful of texts cannot drop the n-gram models.
CENTRE_MARGIN, CROSS_FITTED_MARGIN = 3.0, 6.0


def fit_mixture(
    parts: Tensor, labels: Tensor, class_weights: Tensor | None = None, prior: MixturePrior = DEFAULT_PRIOR
) -> MixtureWeights:
    """Fits the weights to the cross-entropy of held-out texts, with a Gaussian prior; scores are (N, labels, 3).

    The prior's centre is replaced by the network alone if the texts clearly prefer that; more clearly if it was
    cross-fitted, since it rests on more texts than these then.
    """
    (weights, objective), (alone, other) = (
        LogLinear(centre, prior.texts, class_weights).fit_with_value(parts.unbind(-1), labels)
        for centre in (prior.centre, NETWORK_ALONE)
    )
    margin = CROSS_FITTED_MARGIN if prior.is_cross_fitted else CENTRE_MARGIN
    chosen = alone if other + margin < objective else weights
    return MixtureWeights(*chosen.clamp(min=0).tolist())


def fit_prior(scores: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> MixturePrior:
    """The prior from scores (N, labels, 2) of the n-gram models for texts that they were not fitted to.

    Its weight of the network is 0: few held-out texts have to show that the network adds something.
    """
    weights = LogLinear(NGRAM_CENTRE, DEFAULT_PRIOR.texts, class_weights).fit(scores.unbind(-1), labels)
    return MixturePrior(MixtureWeights(0.0, *weights), CROSS_FITTED_TEXTS)


def fit_blend(scores: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> float:
    """The share of the second of two logistic regressions, from scores of texts that they were not fitted to.

    The scores (N, labels, 3) are those of both regressions and of the SVM, in double precision.
    """
    first, second, _ = LogLinear(BLEND_CENTRE, DEFAULT_PRIOR.texts, class_weights).fit(scores.unbind(-1), labels)
    return second / (first + second) if first + second else 0.0
