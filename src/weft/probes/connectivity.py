"""Connectivity: the influence of each input position on each prediction.

Two measures of how the log-probability of a prediction depends on the embedding of each token:

    gradient norm            ||d log P / d x_s||                                  (Madsen 2019, Distill)
    integrated gradients     x_s . mean over a of d log P / d x_s at a x          (Sundararajan et al. 2017)

Integrated gradients are signed, start from embeddings of zero, and sum to log P(x) - log P(0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.pictures.figures import DIVERGING, SEQUENTIAL, Array, ColouredText, Figure, HeatMap, visible
from weft.probes.gradient_flow import choose_predictions, losses_of, sweep, token_rows
from weft.probes.parts import get_network
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, rows_by_step, to_array
from weft.tasks.inspection import Network
from weft.tasks.operation import Option

GRADIENT, INTEGRATED = "gradient", "integrated"
METHODS = (GRADIENT, INTEGRATED)
POINTS = 32  # of the integral, fewer for long texts
LEAST_POINTS, POINT_TOKENS = 8, 10_000
BATCH_TOKENS = 1 << 14  # rows x tokens in one backward pass: bounds the memory
MOST_TOKENS = 1 << 14  # rows x tokens by default; longer texts show their last predictions


@dataclass(frozen=True, eq=False)
class Connectivity(ProbeResult):
    """The influence (P, T) of T steps on P predictions.

    Attributes:
        steps: What each of the T steps is, such as the token that is read.
        predictions: The numbers of the predictions.
        names: What each of them predicts.
        log_probs: (P,), the log-probability of each prediction's target.
        influence: (P, T).
        method: "gradient" or "integrated".
    """

    probe = "connectivity"

    steps: tuple[str, ...]
    predictions: tuple[int, ...]
    names: tuple[str, ...]
    log_probs: Array
    influence: Array
    method: str

    def records(self) -> Iterator[dict[str, Any]]:
        for prediction, name, values in zip(self.predictions, self.names, self.influence, strict=True):
            for row in rows_by_step(self.steps, influence=values):
                yield {"prediction": prediction, "predicted": name, **row, "method": self.method}

    def figures(self) -> list[Figure]:
        """The influence on the last prediction as coloured text (on others where one points), and the whole matrix."""
        scale = DIVERGING if self.method == INTEGRATED else SEQUENTIAL
        label = "integrated gradients" if self.method == INTEGRATED else "gradient norm"
        title = f"Influence on the prediction of {visible(self.names[-1])!r}"
        rows = token_rows(self.steps, self.predictions, self.names)
        text = ColouredText(title, self.steps, self.influence[-1], label, scale, (), self.influence, self.names, rows)
        if len(self.predictions) == 1:
            return [text]
        title = "Influence of each token on each prediction"
        return [text, HeatMap(title, self.influence, self.names, self.steps, label, "predicted", "read", scale)]


def connectivity(
    model: Any,
    text: str = "",
    *,
    method: Annotated[Literal["gradient", "integrated"], Option("gradient or integrated.")] = "gradient",
    predictions: Sequence[int] | None = None,
    points: int | None = None,
) -> Connectivity:
    """The influence of each token on each prediction.

    Args:
        model: A loaded run with recurrent layers, or a `weft.tasks.inspection.Network`, which has read its text.
        text: The text that the model reads.
        method: "gradient" for gradient norms, "integrated" for integrated gradients.
        predictions: The numbers of the predictions, negative ones counted from the end. Without it all of them, or the
            last ones where all would take more than a few seconds.
        points: Points of the integral; without it 32, and fewer for texts of more than 300 tokens.

    Raises:
        WeftError: The method is unknown, the model has no recurrent layers, or there is no such prediction.
    """
    if method not in METHODS or (points is not None and points < 1):
        raise WeftError(
            f"the method is {method!r} with {points} points", expected=f"one of {METHODS}, 1 or more points"
        )
    network = get_network(model, text)
    numbers = choose_predictions(network, predictions)
    points = points or default_points(network)
    rows = points if method == INTEGRATED else 1
    if predictions is None:
        numbers = numbers[-max(1, MOST_TOKENS // (rows * len(network.steps))) :]
    with torch.no_grad():
        log_probs = -losses_of(network, network.logits(network.embeddings))[0, numbers]
    if method == INTEGRATED:
        influence = np.stack([to_array(integrated_gradients(network, one, points=points)) for one in numbers])
    elif network.readout is not None and len(numbers) > 1:
        influence = sweep(network, numbers)[1]
    else:
        influence = np.concatenate(
            [to_array(part.norm(dim=-1)) for part in _gradients(network, [(one, 1.0) for one in numbers])]
        )
    names = tuple(network.predictions[one] for one in numbers)
    return Connectivity(network.steps, tuple(numbers), names, to_array(log_probs), influence, method)


def default_points(network: Network) -> int:
    """The points of the integral where none are given: 32, and down to 8 for long texts."""
    return min(POINTS, max(LEAST_POINTS, POINT_TOKENS // max(1, len(network.steps))))


def integrated_gradients(
    network: Network, prediction: int, *, points: int | None = None, against: int | None = None
) -> Tensor:
    """The contribution (T,) of each token to the log-probability of a prediction, by the midpoint rule.

    Args:
        network: The network.
        prediction: The number of the prediction.
        points: Points of the integral; without it 32, and fewer for long texts.
        against: Another class: the contributions are to the log-odds of the prediction's target against it.
    """
    points = points or default_points(network)
    scales = [(number + 0.5) / points for number in range(points)]
    total = sum(part.sum(0) for part in _gradients(network, [(prediction, scale) for scale in scales], against))
    assert isinstance(total, Tensor)
    return (total / points * network.embeddings[0]).sum(-1)


def _gradients(network: Network, asked: Sequence[tuple[int, float]], against: int | None = None) -> Iterator[Tensor]:
    """d log P / dx of predictions, each at the embeddings times a scale: (rows, T, E) in batches of bounded size."""
    T = len(network.steps)
    size = max(1, BATCH_TOKENS // T)
    for begin in range(0, len(asked), size):
        part = asked[begin : begin + size]
        scales = torch.tensor([scale for _, scale in part], dtype=network.embeddings.dtype)
        x = (network.embeddings * scales[:, None, None].to(network.embeddings)).detach().requires_grad_()
        with torch.enable_grad():
            logits, rows, numbers = network.logits(x), torch.arange(len(part)), [number for number, _ in part]
            total = -losses_of(network, logits)[rows, numbers].sum()
            if against is not None:
                total = total - logits.log_softmax(-1)[rows, numbers, against].sum()
        (gradient,) = torch.autograd.grad(total, x)
        yield gradient


PROBE = Probe("connectivity", "the influence of each token on each prediction", "network", connectivity)
