"""Cross-entropy, perplexity and accuracy of predicted tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.metrics.metric import Additive, Metric


def _perplexity(cross_entropy: float) -> float:
    try:
        return math.exp(cross_entropy)
    except OverflowError:
        return math.inf


CROSS_ENTROPY = Metric("cross_entropy", "nats", "token")
PERPLEXITY = Metric("perplexity", per="token", of_loss=_perplexity)


@dataclass(frozen=True)
class Likelihood(Additive):
    """The negative log-likelihood of a sequence of tokens, in nats, and the number of tokens.

    Perplexity is exp(cross-entropy): 1 for a perfect prediction, the vocabulary size for a uniform one, infinite
    where a true token has probability 0.

    >>> likelihood = Likelihood(nats=2 * math.log(8), count=2)
    >>> round(likelihood.perplexity, 6), round(likelihood.bits_per_token, 6)
    (8.0, 3.0)
    """

    nats: float
    count: int

    @property
    def cross_entropy(self) -> float:
        """In nats per token; NaN if there are no tokens."""
        return self.nats / self.count if self.count else math.nan

    @property
    def bits_per_token(self) -> float:
        return self.cross_entropy / math.log(2)

    @property
    def perplexity(self) -> float:
        return _perplexity(self.cross_entropy)

    def metrics(self) -> dict[str, float]:
        """What an evaluation reports."""
        return {CROSS_ENTROPY.name: self.cross_entropy, PERPLEXITY.name: self.perplexity}

    def score(self) -> float:
        return self.perplexity

    def signature(self, unit: str) -> str:
        """What exactly was measured; `unit` is the name of the tokenizer, such as "char"."""
        return f"perplexity|per:{unit}|tokens:{self.count}"


@dataclass(frozen=True)
class TokenPredictions(Additive):
    """Predictions of masked tokens: their likelihood, and how often the most probable token was correct."""

    likelihood: Likelihood
    correct: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.likelihood.count if self.likelihood.count else math.nan

    def metrics(self) -> dict[str, float]:
        """What an evaluation reports."""
        return {**self.likelihood.metrics(), "accuracy": self.accuracy}

    def score(self) -> float:
        return self.likelihood.score()

    def signature(self, unit: str) -> str:
        """What exactly was measured; `unit` is the name of the tokenizer, such as "word"."""
        return f"masked token|per:{unit}|tokens:{self.likelihood.count}"
