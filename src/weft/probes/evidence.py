"""Evidence: which tokens speak for and against a prediction.

It is measured in log-odds: log P of the prediction minus log P of the most probable other class. Unlike log P, they do
not saturate where a model is certain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.pictures.figures import DIVERGING, Array, ColouredText, Figure, visible
from weft.probes.connectivity import BATCH_TOKENS, integrated_gradients
from weft.probes.gradient_flow import choose_predictions, losses_of
from weft.probes.parts import find_part, inspect
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, to_array
from weft.tasks.inspection import Network
from weft.tasks.operation import Option

MOST_OCCLUDED = 40_000  # windows x tokens of an occlusion; a long text is occluded several tokens at a time


@dataclass(frozen=True, eq=False)
class Evidence(ProbeResult):
    """Measures of how much each token counts for a prediction, (T,) each.

    Attributes:
        tokens: The T tokens.
        prediction: What is predicted: the label of a text, the tag of a word, the next token.
        against: The most probable other class, against which the log-odds are; "" if no other is possible.
        probability: The probability of the prediction.
        occlusion: How much the log-odds fall when the embedding of the token is set to zero; positive: evidence for the
            prediction.
        window: How many tokens are occluded together; 1 but for long texts.
        integrated: The integrated gradients of the log-odds; positive: evidence for the prediction.
        pooling: The weights of the pooling, where the model has one; otherwise None.
        ngrams: What the n-grams of the token add to the log-odds in the linear models, where there are such models;
            otherwise None. Occlusion and gradients are those of the network.
    """

    probe = "evidence"

    tokens: tuple[str, ...]
    prediction: str
    against: str
    probability: float
    occlusion: Array
    window: int
    integrated: Array
    pooling: Array | None
    ngrams: Array | None = None

    def records(self) -> Iterator[dict[str, Any]]:
        for position, token in enumerate(self.tokens):
            record = {"position": position, "token": token, "occlusion": float(self.occlusion[position])}
            record |= {"integrated": float(self.integrated[position])}
            record |= {"prediction": self.prediction, "against": self.against}
            if self.pooling is not None:
                record["pooling"] = float(self.pooling[position])
            if self.ngrams is not None:
                record["ngrams"] = float(self.ngrams[position])
            yield record

    def figures(self) -> list[Figure]:
        against = f" against {visible(self.against)}" if self.against else ""
        title = f"{visible(self.prediction)} ({self.probability:.1%}){against}"
        window = f", {self.window} tokens at a time" if self.window > 1 else ""
        network = " through the network" if self.ngrams is not None else ""
        figures: list[Figure] = [
            ColouredText(
                f"Occlusion{window}: evidence{network} for {title}",
                self.tokens,
                self.occlusion,
                "fall of the log-odds",
                DIVERGING,
            ),
            ColouredText(
                f"Integrated gradients: evidence{network} for {title}",
                self.tokens,
                self.integrated,
                "share of the log-odds",
                DIVERGING,
            ),
        ]
        if self.pooling is not None:
            figures.append(ColouredText("Pooling weights", self.tokens, self.pooling, "weight"))
        if self.ngrams is not None:
            figures.append(
                ColouredText(
                    f"N-grams: evidence for {title}",
                    self.tokens,
                    self.ngrams,
                    "share of the log-odds",
                    DIVERGING,
                )
            )
        return figures


def evidence(
    model: Any, text: str, *, position: Annotated[int, Option("The number of the prediction; -1 is the last.")] = -1
) -> Evidence:
    """Which tokens speak for a prediction: by occlusion, integrated gradients, n-grams and pooling weights.

    Args:
        model: A loaded run with recurrent layers; a classifier predicts one label for the text.
        text: The text that the model reads.
        position: The number of the prediction, negative ones counted from the end.
    """
    inspection = inspect(model, text)
    network: Network = find_part(model, inspection, "network")()
    if network.losses is not None:
        raise WeftError("the model predicts values", expected="one that predicts classes", hint="connectivity")
    (number,) = choose_predictions(network, [position])
    target = network.targets[number]
    with torch.no_grad():
        logits = network.logits(network.embeddings)
    others = logits[0, number].index_fill(0, torch.tensor([target], device=logits.device), -math.inf)
    other = int(others.argmax()) if others.isfinite().any() else target
    pooling = None
    if len(network.predictions) == 1 and inspection.attention is not None:
        pooling = to_array(inspection.attention().weights[0])
    occluded, window = occlude(network, number, other)
    scores = None if inspection.ngrams is None else inspection.ngrams()
    return Evidence(
        tokens=network.tokens,
        prediction=network.predictions[number],
        against="" if other == target else network.classes[other],
        probability=math.exp(-float(losses_of(network, logits)[0, number])),
        occlusion=float(log_odds(network, logits, number, other)[0]) - occluded,
        window=window,
        integrated=to_array(integrated_gradients(network, number, against=other)),
        pooling=pooling,
        ngrams=None if scores is None else to_array(scores[:, target] - scores[:, other]),
    )


def log_odds(network: Network, logits: Tensor, prediction: int, against: int) -> Tensor:
    """log P of the target of a prediction minus log P of another class: logits (B, P, C) to (B,)."""
    return logits[:, prediction, network.targets[prediction]] - logits[:, prediction, against]


@torch.no_grad()
def occlude(network: Network, prediction: int, against: int) -> tuple[Array, int]:
    """The log-odds of a prediction without each token, (T,), and how many tokens are left out together."""
    T = len(network.tokens)
    window = math.ceil(T * T / MOST_OCCLUDED)
    begins = list(range(0, T, window))
    found = []
    size = max(1, BATCH_TOKENS // T)
    for first in range(0, len(begins), size):
        part = begins[first : first + size]
        x = network.embeddings.repeat(len(part), 1, 1)
        for row, begin in enumerate(part):
            x[row, begin : begin + window] = 0
        found.append(log_odds(network, network.logits(x), prediction, against))
    return np.repeat(to_array(torch.cat(found)), window)[:T], window


PROBE = Probe(
    "evidence",
    "which tokens speak for a prediction: occlusion, integrated gradients, pooling weights, n-grams",
    "network",
    evidence,
)
