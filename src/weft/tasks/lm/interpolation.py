"""Linear interpolation of language models: P(w | h) = sum over k of weight_k P_k(w | h).

The weights are fitted by EM to the probabilities that the models give to the tokens of held-out text. The
log-likelihood is concave in the weights, so EM finds the best ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.data.windows import Tokens
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.tasks.lm.predictor import TokenModel

Array = np.ndarray[Any, np.dtype[np.float64]]

MOST_ITERATIONS, LEAST_GAIN = 1000, 1e-9  # of EM; nats per token


def fit_weights(log_probs: Array) -> Array:
    """Fits interpolation weights by EM.

    Args:
        log_probs: (N, K) the log-probability of each of N tokens by each of K models.

    Returns:
        The weights (K,), which sum to 1.

    Raises:
        WeftError: a token has probability 0 in all models.

    Example:
        >>> fit_weights(np.log([[0.5, 0.1], [0.5, 0.1]])).round(3).tolist()
        [1.0, 0.0]
    """
    count, models = log_probs.shape
    top = log_probs.max(1, keepdims=True)
    if not np.isfinite(top).all():
        raise WeftError("a token of the held-out text has probability 0 in every model", expected="a smoothed model")
    probs = np.exp(log_probs - top)
    weights, before = np.full(models, 1 / models), -np.inf
    for _ in range(MOST_ITERATIONS):
        joint = probs * weights
        total = joint.sum(1, keepdims=True)
        value = float(np.log(total).sum()) / max(1, count)
        if value - before < LEAST_GAIN:
            break
        before, weights = value, (joint / total).mean(0)
    # EM approaches a weight of 0 slowly: the best single model may still be better by a rounding error.
    single = np.log(np.maximum(probs, 1e-300)).mean(0)
    if single.max() >= before:
        weights = np.eye(models)[int(single.argmax())]
    found: Array = weights / weights.sum()
    return found


def interpolate(log_probs: Array, weights: Sequence[float] | Array) -> Array:
    """The log-probabilities (N,) of the interpolation, from those of its models, (N, K)."""
    with np.errstate(divide="ignore"):
        joint = log_probs + np.log(np.asarray(weights))
    top = joint.max(1)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        found: Array = np.log(np.exp(joint - safe[:, None]).sum(1)) + safe
    return found


class Interpolation(nn.Module):
    """Several language models with fixed weights, as one. It is a `Stepper`; its state has the states of all of them.

    Args:
        models: the language models, of the same vocabulary.
        weights: as many weights, which sum to 1.
    """

    def __init__(self, models: Sequence[TokenModel], weights: Sequence[float]) -> None:
        super().__init__()
        if len(models) != len(weights) or not models or min(weights) < 0 or not abs(sum(weights) - 1) <= 1e-6:
            raise WeftError(
                f"{len(models)} models with the weights {list(weights)}",
                expected="a weight for each, not negative, with the sum 1",
            )
        self.models, self.weights = tuple(models), tuple(weights)
        # So that `to`, `eval` and `parameters` reach the networks among the models.
        self.networks = nn.ModuleList(model for model in models if isinstance(model, nn.Module))

    context = "left"  # tokens are predicted from those before them

    def initial_state(self, rows: int) -> tuple[Any, ...]:
        """Returns the states of all models before any token."""
        return tuple(model.initial_state(rows) for model in self.models)

    @torch.no_grad()
    def step(self, ids: Tensor, state: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """Reads ids (R,). Returns log-probabilities (R, V) of the next token, and the new states."""
        found = [model.step(ids, one) for model, one in zip(self.models, state, strict=True)]
        joint = torch.stack([log_probs.cpu().double() for log_probs, _ in found], -1)  # (R, V, K)
        weights = torch.tensor(self.weights, dtype=torch.float64).log()
        return torch.logsumexp(joint + weights, -1), tuple(after for _, after in found)

    def select(self, state: tuple[Any, ...], rows: Tensor) -> tuple[Any, ...]:
        """Returns the states of the given rows, which may repeat."""
        return tuple(model.select(one, rows) for model, one in zip(self.models, state, strict=True))

    def token_log_probs(self, tokens: Tokens) -> Array:
        """Computes log P of each token but the first of (N,), given those before it: (N - 1,)."""
        return interpolate(all_log_probs(self.models, tokens), self.weights)

    def evaluate(self, tokens: Tokens) -> Likelihood:
        """Computes the likelihood of the tokens (N,), each given all tokens before it."""
        return likelihood(self.token_log_probs(tokens))

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """As `evaluate`, and counts how often the most probable token is the true one."""
        return predict_stepwise(self, tokens)


class LmEnsemble(Interpolation):
    """The members of an ensemble with equal weights.

    Args:
        members: the language models.
    """

    def __init__(self, members: Sequence[TokenModel]) -> None:
        super().__init__(members, [1 / len(members)] * len(members))
        self.members = self.models


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
