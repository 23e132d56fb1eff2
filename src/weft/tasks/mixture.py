"""Several models of one field as one: a rule joins their predictions, and fits its weights to held-out data.

    EQUAL        the mean of their probabilities: the members of a run
    MEAN         the mean of their scores: the CRFs of taggers
    LINEAR       P = sum of weight_k P_k, fitted by EM: language models, n-grams, caches
    LogLinear    log P = sum of weight_k log P_k + c, fitted by Newton's method: linear models beside a network

A mixture stands in the place of a single model in a predictor. Probes look at its first member.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from weft.errors import WeftError

Array = np.ndarray[Any, np.dtype[np.float64]]
Joinable = TypeVar("Joinable")

MOST_ITERATIONS, LEAST_GAIN = 1000, 1e-9  # of EM; nats per token


class Rule(Protocol):
    """How predictions are joined. Rules with weights fit them, each to what it needs of the models."""

    def join(self, predictions: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        """The predictions of K models as one."""
        ...


class Equal:
    """The log of the mean of probabilities whose logs are given.

    >>> EQUAL.join([torch.tensor([0.5]).log(), torch.tensor([0.1]).log()]).exp()
    tensor([0.3000])
    """

    def join(self, predictions: Sequence[Tensor], weights: Sequence[float] = ()) -> Tensor:
        return torch.stack(list(predictions)).logsumexp(0) - math.log(len(predictions))


class MeanScores(Equal):
    """The mean."""

    def join(self, predictions: Sequence[Tensor], weights: Sequence[float] = ()) -> Tensor:
        return torch.stack(list(predictions)).mean(0)


class Linear:
    """Weighted sums of probabilities whose logs are given.

    The log-likelihood is concave in the weights, so EM finds the best ones.
    """

    def join(self, predictions: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        joint = torch.stack([log_probs.cpu().double() for log_probs in predictions], -1)  # (..., K)
        return torch.logsumexp(joint + torch.tensor(weights, dtype=torch.float64).log(), -1)

    def join_targets(self, log_probs: Array, weights: Sequence[float] | Array) -> Array:
        """The log-probabilities (N,) of targets, from those that each of K models gives to them, (N, K)."""
        with np.errstate(divide="ignore"):
            joint = log_probs + np.log(np.asarray(weights))
        top = joint.max(1)
        safe = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            found: Array = np.log(np.exp(joint - safe[:, None]).sum(1)) + safe
        return found

    def fit_to(self, log_probs: Array) -> Array:
        """The weights (K,), which sum to 1, from the log-probabilities (N, K) of N targets by each of K models.

        >>> LINEAR.fit_to(np.log([[0.5, 0.1], [0.5, 0.1]])).round(3).tolist()
        [1.0, 0.0]
        """
        count, models = log_probs.shape
        top = log_probs.max(1, keepdims=True)
        if not np.isfinite(top).all():
            raise WeftError("a token of the held-out text has probability 0 in every model", expected="a smoothed one")
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


@dataclass(frozen=True)
class LogLinear:
    """Weighted sums of log-probabilities, with a Gaussian prior of the weights.

    Args:
        centre: (K,) the weights where there are no targets.
        strength: how strongly the weights stay near them: about as many targets.
        class_weights: (labels,) weights of the labels in the cross-entropy; None means 1.
    """

    centre: Sequence[float] = ()
    strength: float = 1.0
    class_weights: Tensor | None = None

    def join(self, predictions: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        parts = torch.stack(list(predictions), -1)  # (N, labels, K)
        return (parts @ torch.tensor(weights, dtype=parts.dtype)).log_softmax(-1)

    def fit(self, predictions: Sequence[Tensor], targets: Tensor) -> Sequence[float]:
        weights: list[float] = self.fit_with_value(predictions, targets)[0].clamp(min=0).tolist()
        return weights

    def fit_with_value(self, predictions: Sequence[Tensor], targets: Tensor) -> tuple[Tensor, float]:
        """Newton's method: the weights (K,) before negative ones become 0, and the objective there."""
        parts = torch.stack(list(predictions), -1)
        texts = torch.ones(len(targets)) if self.class_weights is None else self.class_weights[targets]
        texts, middle = texts.to(parts), torch.tensor(self.centre, dtype=parts.dtype)
        chosen = parts[torch.arange(len(targets)), targets]  # (N, K)
        ridge = self.strength * torch.eye(len(self.centre), dtype=parts.dtype)

        def objective(weights: Tensor) -> Tensor:
            losses = torch.logsumexp(parts @ weights, -1) - chosen @ weights
            return texts @ losses + self.strength / 2 * (weights - middle).square().sum()

        weights = middle
        value = objective(weights)
        for _ in range(50):
            probs = (parts @ weights).softmax(-1)  # (N, labels)
            means = (probs[..., None] * parts).sum(1)  # (N, K)
            slope = texts @ (means - chosen) + self.strength * (weights - middle)
            centred = parts - means[:, None]
            curvature = torch.einsum("n,nk,nki,nkj->ij", texts, probs, centred, centred) + ridge
            direction, size = torch.linalg.solve(curvature, slope), 1.0
            while (lower := objective(weights - size * direction)) > value and size > 1e-4:
                size /= 2
            if value - lower < 1e-9:
                break
            weights, value = weights - size * direction, lower
        return weights, float(value)


EQUAL, MEAN, LINEAR = Equal(), MeanScores(), Linear()


class Mixture(nn.Module, Generic[Joinable]):
    """Several models in the place of one. If they are steppers, it is a `Stepper`, with the states of all of them.

    Args:
        models: the models.
        rule: joins what they predict.
        weights: of the models, where the rule has some.
        members: those that are members of one run, of which probes take the first; None: all.
    """

    def __init__(
        self,
        models: Sequence[Joinable],
        rule: Rule = EQUAL,
        weights: Sequence[float] = (),
        members: Sequence[Any] | None = None,
    ) -> None:
        super().__init__()
        self.models, self.rule, self.weights = tuple(models), rule, tuple(weights)
        self.members = self.models if members is None else tuple(members)
        # So that `to`, `eval` and `parameters` reach the networks among the models.
        self.networks = nn.ModuleList(model for model in models if isinstance(model, nn.Module))

    def joined(self, predict: Callable[[Joinable], Tensor]) -> Tensor:
        return self.rule.join([predict(model) for model in self.models], self.weights)

    def initial_state(self, rows: int) -> tuple[Any, ...]:
        steppers: Sequence[Any] = self.models
        return tuple(stepper.initial_state(rows) for stepper in steppers)

    @torch.no_grad()
    def step(self, ids: Tensor, state: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        steppers: Sequence[Any] = self.models
        found = [stepper.step(ids, one) for stepper, one in zip(steppers, state, strict=True)]
        return self.rule.join([log_probs for log_probs, _ in found], self.weights), tuple(after for _, after in found)

    def select(self, state: tuple[Any, ...], rows: Tensor) -> tuple[Any, ...]:
        steppers: Sequence[Any] = self.models
        return tuple(stepper.select(one, rows) for stepper, one in zip(steppers, state, strict=True))


def first_member(predictor: Any) -> Any:
    """The predictor with the first member of its mixture, or the predictor itself: what probes of a network look at."""
    members = getattr(predictor.model, "members", ())
    return replace(predictor, model=members[0]) if members else predictor
