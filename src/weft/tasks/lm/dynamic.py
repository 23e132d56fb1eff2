"""Dynamic evaluation: the weights follow the text that has just been read.

The text is read in segments. Each segment is predicted with the present weights w; then these take one step down the
gradient g of its cross-entropy, and are drawn back to the trained weights w_0:

    w <- w - learning_rate g / (r + eps)
    w <- w + decay r / mean(r) (w_0 - w)        (the factor of w_0 - w is at most 1)

r is the root mean square of each weight's gradient over segments of the training text ("rms"). With r = 1 and eps = 0
these are plain gradient steps ("sgd"). No token is predicted by weights that have seen it.

Krause, Kahembwe, Murray and Renals 2018, "Dynamic evaluation of neural sequence models".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.errors import WeftError


@dataclass(frozen=True)
class DynamicConfig:
    """The parameters of dynamic evaluation.

    Attributes:
        learning_rate: The size of a step. With `rms` a typical change of a weight.
        decay: How strongly the weights are drawn back to the trained ones after each segment.
        segment: Tokens between two updates.
        rule: `rms` or `sgd`.
    """

    learning_rate: float = 0.001
    decay: float = 0.002
    segment: int = 20
    rule: str = "rms"

    def __post_init__(self) -> None:
        if not self.learning_rate >= 0 or not 0 <= self.decay <= 1 or self.segment < 1:
            raise WeftError(
                f"learning_rate={self.learning_rate}, decay={self.decay}, segment={self.segment}",
                expected="a learning rate from 0 on, a decay of 0 to 1, segments of 1 token or more",
            )
        if self.rule not in ("rms", "sgd"):
            raise WeftError(f"the rule is {self.rule!r}", expected="rms or sgd")


RATES = (0.3, 1.0, 3.0)  # times the given learning rate: the candidates of a fit
RATE_TOKENS = 4000  # of the held-out text, to which the learning rate is fitted
RELATIVE_EPS = 2.0  # eps, as a share of mean(r): weights with small gradients, such as rare words, move slowly


class DynamicModel:
    """A copy of a trained model whose weights follow the text; `rms` is what `gradient_rms` returned."""

    def __init__(self, model: nn.Module, config: DynamicConfig, rms: Sequence[Tensor] | None = None) -> None:
        if (rms is None) != (config.rule == "sgd"):
            raise WeftError(f"rule={config.rule} and {'no ' * (rms is None)}statistics", expected="rms with statistics")
        self.model: Any = copy.deepcopy(model).eval()
        self.weights = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.trained = [weight.detach().clone() for weight in self.weights]
        if rms is None:
            self.scales = [torch.tensor(config.learning_rate) for _ in self.weights]
            self.pulls = [torch.full_like(weight, config.decay) for weight in self.trained]
            return
        mean = sum(float(one.sum()) for one in rms) / max(1, sum(one.numel() for one in rms))
        mean = max(mean, 1e-30)
        self.scales = [config.learning_rate / (one + RELATIVE_EPS * mean) for one in rms]
        self.pulls = [(config.decay * one / mean).clamp(max=1) for one in rms]

    @torch.no_grad()
    def update(self, loss: Tensor) -> None:
        """Takes one step down the gradient of a loss that the model has computed, a mean over tokens."""
        self.model.zero_grad()
        with torch.enable_grad():
            loss.backward()  # type: ignore[no-untyped-call]
        for weight, trained, scale, pull in zip(self.weights, self.trained, self.scales, self.pulls, strict=True):
            if weight.grad is not None:
                weight.addcmul_(weight.grad, scale, value=-1)
            weight.lerp_(trained, pull)


def gradient_rms(
    model: nn.Module, config: DynamicConfig, losses: Callable[[Any], Iterable[Tensor]]
) -> list[Tensor] | None:
    """The root mean square of the gradient of each weight, for the rule `rms`.

    `losses` maps a copy of the model to losses of segments, each a mean over tokens, computed one by one.
    """
    if config.rule != "rms":
        return None
    reader = copy.deepcopy(model).eval()
    weights = [parameter for parameter in reader.parameters() if parameter.requires_grad]
    totals, count = [torch.zeros_like(weight) for weight in weights], 0
    with torch.enable_grad():
        for loss in losses(reader):
            reader.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for total, weight in zip(totals, weights, strict=True):
                if weight.grad is not None:
                    total += weight.grad.square()
            count += 1
    if not count:
        raise WeftError("there is no text to compute the gradients of", expected="at least 2 tokens")
    return [(total / count).sqrt() for total in totals]


def best_rate(config: DynamicConfig, nats: Callable[[DynamicConfig], float]) -> DynamicConfig:
    """Selects a learning rate near that of `config` by the negative log-likelihood of RATE_TOKENS of held-out text."""
    candidates = [replace(config, learning_rate=config.learning_rate * rate) for rate in RATES]
    found = [nats(one) for one in candidates]
    return candidates[int(np.argmin(np.where(np.isfinite(found), found, np.inf)))]
