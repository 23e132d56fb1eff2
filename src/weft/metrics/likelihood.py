"""How well a model foretells tokens: perplexity, and guesses at hidden ones."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Likelihood:
    """How well a model foretold some tokens: the sum of -log P in nats, and how many tokens there were.

    Perplexity is exp(nats / count): 1 for a model that is sure and right, infinite for one that held a true
    token for impossible, the size of the vocabulary for one that finds every token equally likely.
    """

    nats: float
    count: int

    def __add__(self, other: Likelihood) -> Likelihood:
        return Likelihood(self.nats + other.nats, self.count + other.count)

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.count if self.count else math.nan

    @property
    def bits_per_token(self) -> float:
        return self.nats_per_token / math.log(2)

    @property
    def perplexity(self) -> float:
        try:
            return math.exp(self.nats_per_token)
        except OverflowError:
            return math.inf

    def score(self) -> float:
        return self.perplexity

    def signature(self, level: str) -> str:
        """What exactly was measured, to stand beside the number."""
        return f"perplexity|per:{level}|tokens:{self.count}"


@dataclass(frozen=True)
class Guesses:
    """How well a model guessed tokens that were hidden from it: their likelihood, and how often its first guess hit."""

    likelihood: Likelihood
    right: int

    def __add__(self, other: Guesses) -> Guesses:
        return Guesses(self.likelihood + other.likelihood, self.right + other.right)

    @property
    def accuracy(self) -> float:
        return self.right / self.likelihood.count if self.likelihood.count else math.nan

    def score(self) -> float:
        return self.likelihood.score()

    def signature(self, level: str) -> str:
        """What exactly was measured, to stand beside the numbers."""
        return f"hidden token|per:{level}|tokens:{self.likelihood.count}"
