"""Linear interpolation of language models: P(w | h) = sum over k of weight_k P_k(w | h)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from weft.data.windows import Tokens
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.tasks.lm.predictor import TokenModel
from weft.tasks.mixture import LINEAR, Array, Mixture


class Interpolation(Mixture[TokenModel]):
    """Several language models with fixed weights, as one.

    Args:
        models: the language models, of the same vocabulary.
        weights: as many weights, which sum to 1; None: equal ones.
        members: those that are members of one run.
    """

    def __init__(
        self, models: Sequence[TokenModel], weights: Sequence[float] | None = None, members: Sequence[TokenModel] = ()
    ) -> None:
        if weights is None:
            weights = [1 / len(models)] * len(models)
        if len(models) != len(weights) or not models or min(weights) < 0 or not abs(sum(weights) - 1) <= 1e-6:
            raise WeftError(
                f"{len(models)} models with the weights {list(weights)}",
                expected="a weight for each, not negative, with the sum 1",
            )
        super().__init__(models, LINEAR, weights, members)

    context = "left"  # tokens are predicted from those before them

    def token_log_probs(self, tokens: Tokens) -> Array:
        """Computes log P of each token but the first of (N,), given those before it: (N - 1,)."""
        return LINEAR.join_targets(all_log_probs(self.models, tokens), self.weights)

    def evaluate(self, tokens: Tokens) -> Likelihood:
        """Computes the likelihood of the tokens (N,), each given all tokens before it."""
        return likelihood(self.token_log_probs(tokens))

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """As `evaluate`, and counts how often the most probable token is the true one."""
        return predict_stepwise(self, tokens)


def join_networks(members: Sequence[TokenModel]) -> Interpolation:
    """The members of a run, with equal weights."""
    return Interpolation(members, members=members)


def all_log_probs(models: Sequence[TokenModel], tokens: Tokens) -> Array:
    """The log-probability of each token but the first by each model, (N - 1, K)."""
    return np.stack([model.token_log_probs(tokens) for model in models], 1)


def likelihood(log_probs: Array) -> Likelihood:
    """The likelihood of tokens of these log-probabilities."""
    if not len(log_probs):
        raise WeftError("there are less than 2 tokens to evaluate on", expected="at least 2")
    return Likelihood(-float(log_probs.sum()), len(log_probs))


def predict_stepwise(model: TokenModel, tokens: Tokens) -> TokenPredictions:
    """Predicts each token but the first from those before it, step by step: for any model of the next token."""
    state, nats, correct = model.initial_state(1), 0.0, 0
    ids = torch.from_numpy(np.asarray(tokens).astype(np.int64))
    for now, following in pairwise(ids):
        log_probs, state = model.step(now[None], state)
        nats -= float(log_probs[0, following])
        correct += int(log_probs[0].argmax() == following)
    return TokenPredictions(Likelihood(nats, len(ids) - 1), correct)
