"""Evidence: which tokens speak for and against a prediction.

It is measured in log-odds: log P of the prediction minus log P of the most probable other class. Unlike log P, they do
not saturate where a model is certain.

Occlusion is of the prediction as it is made: a classifier predicts anew without the token, with all that it is made
of. Integrated gradients are those of the network alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.pictures.figures import DIVERGING, Array, ColouredText, Figure, visible
from weft.probes.connectivity import BATCH_TOKENS, integrated_gradients
from weft.probes.gradient_flow import choose_predictions
from weft.probes.parts import find_part, inspect
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, rows_by_step, to_array
from weft.tasks.inspection import Network
from weft.tasks.operation import Option

LEAST_COLOURED = 1.0  # the log-odds at the ends of a colour scale at least: evidence of much less is nearly uncoloured
MOST_OCCLUDED = 40_000  # windows x tokens of an occlusion; a long text is occluded several tokens at a time


@dataclass(frozen=True, eq=False)
class Evidence(ProbeResult):
    """Measures of how much each token counts for a prediction, (T,) each.

    Attributes:
        steps: The T tokens.
        prediction: What is predicted: the label of a text, the tag of a word, the next token.
        against: The most probable other class, against which the log-odds are; "" if no other is possible.
        probability: The probability of the prediction.
        occlusion: How much the log-odds fall without the token: a classifier reads the text without it, other models
            have zeros in the place of its embedding; positive: evidence for the prediction.
        window: How many tokens are occluded together; 1 but for long texts.
        integrated: The integrated gradients of the log-odds through the network, that of the first member; positive:
            evidence for the prediction.
        pooling: The weights of the pooling, where the model has one; otherwise None.
        ngrams: What the n-grams of the token add to the log-odds in the linear models, where there are such models;
            otherwise None.
    """

    probe = "evidence"

    steps: tuple[str, ...]
    prediction: str
    against: str
    probability: float
    occlusion: Array
    window: int
    integrated: Array
    pooling: Array | None
    ngrams: Array | None = None

    def records(self) -> Iterator[dict[str, Any]]:
        measures = {name: getattr(self, name) for name in ("occlusion", "integrated", "pooling", "ngrams")}
        found = {name: values for name, values in measures.items() if values is not None}
        for row in rows_by_step(self.steps, **found):
            yield {**row, "prediction": self.prediction, "against": self.against}

    def figures(self) -> list[Figure]:
        against = f" against {visible(self.against)}" if self.against else ""
        title = f"{visible(self.prediction)} ({self.probability:.1%}){against}"
        window = f", {self.window} tokens at a time" if self.window > 1 else ""
        network = " through the network alone" if self.ngrams is not None else ""

        def coloured(name: str, values: Array, label: str) -> ColouredText:
            end = max(LEAST_COLOURED, float(np.abs(values).max(initial=0.0)))
            return ColouredText(f"{name} for {title}", self.steps, values, label, DIVERGING, limits=(-end, end))

        figures: list[Figure] = [
            coloured(f"Occlusion{window}: evidence", self.occlusion, "fall of the log-odds"),
            coloured(f"Integrated gradients: evidence{network}", self.integrated, "share of the log-odds"),
        ]
        if self.ngrams is not None:
            carries_more = np.abs(self.ngrams).sum() > np.abs(self.integrated).sum()
            figures.insert(
                0 if carries_more else 2, coloured("N-grams: evidence", self.ngrams, "share of the log-odds")
            )
        if self.pooling is not None:
            figures.append(ColouredText("Pooling weights", self.steps, self.pooling, "weight"))
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
    target, T = network.targets[number], len(network.steps)
    window = math.ceil(T * T / MOST_OCCLUDED)
    removed = [range(0), *(range(begin, min(begin + window, T)) for begin in range(0, T, window))]
    log_probs = occlude(network, number, removed) if inspection.without is None else inspection.without(removed)
    others = log_probs[0].index_fill(0, torch.tensor([target], device=log_probs.device), -math.inf)
    other = int(others.argmax()) if others.isfinite().any() else target
    pooling = None
    if len(network.predictions) == 1 and inspection.attention is not None:
        pooling = to_array(inspection.attention().weights[0])
    odds = to_array(log_probs[:, target] - log_probs[:, other])  # of the whole text, and without each window
    scores = None if inspection.ngrams is None else inspection.ngrams()
    return Evidence(
        steps=network.steps,
        prediction=network.predictions[number],
        against="" if other == target else network.classes[other],
        probability=math.exp(float(log_probs[0, target])),
        occlusion=np.repeat(odds[0] - odds[1:], window)[:T],
        window=window,
        integrated=to_array(integrated_gradients(network, number, against=other)),
        pooling=pooling,
        ngrams=None if scores is None else to_array(scores[:, target] - scores[:, other]),
    )


@torch.no_grad()
def occlude(network: Network, prediction: int, removed: Sequence[range]) -> Tensor:
    """The log-probabilities (N, C) of a prediction where the embeddings of each of N ranges of tokens are zero."""
    found, size = [], max(1, BATCH_TOKENS // len(network.steps))
    for first in range(0, len(removed), size):
        part = removed[first : first + size]
        x = network.embeddings.repeat(len(part), 1, 1)
        for row, tokens in enumerate(part):
            x[row, tokens.start : tokens.stop] = 0
        found.append(network.logits(x)[:, prediction].log_softmax(-1))
    return torch.cat(found)


PROBE = Probe(
    "evidence",
    "which tokens speak for a prediction: occlusion, integrated gradients, pooling weights, n-grams",
    "network",
    evidence,
)
