"""Evidence: which tokens speak for and against a prediction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft.probes.connectivity import BATCH_TOKENS, integrated_gradients
from weft.probes.gradient_flow import choose_predictions, losses_of
from weft.probes.parts import find_part, inspect
from weft.probes.result import Array, ProbeResult, to_array
from weft.tasks.inspection import Network

MOST_OCCLUDED = 40_000  # windows x tokens of an occlusion; a long text is occluded several tokens at a time


@dataclass(frozen=True, eq=False)
class Evidence(ProbeResult):
    """Measures of how much each token counts for a prediction, (T,) each.

    Attributes:
        tokens: The T tokens.
        prediction: What is predicted: the label of a text, the tag of a word, the next token.
        probability: Its probability.
        occlusion: How much log P falls when the embedding of the token is set to zero; positive: evidence for it.
        window: How many tokens are occluded together; 1 but for long texts.
        integrated: The integrated gradients of log P; positive: evidence for it.
        pooling: The weights of the pooling, where the model has one; otherwise None.
        ngrams: What the n-grams of the token add to the log-odds of the prediction in the linear models, where there
            are such models; otherwise None. Occlusion and gradients are those of the network.
    """

    probe = "evidence"

    tokens: tuple[str, ...]
    prediction: str
    probability: float
    occlusion: Array
    window: int
    integrated: Array
    pooling: Array | None
    ngrams: Array | None = None

    def records(self) -> Iterator[dict[str, Any]]:
        for position, token in enumerate(self.tokens):
            record = {"position": position, "token": token, "occlusion": float(self.occlusion[position])}
            record |= {"integrated": float(self.integrated[position]), "prediction": self.prediction}
            if self.pooling is not None:
                record["pooling"] = float(self.pooling[position])
            if self.ngrams is not None:
                record["ngrams"] = float(self.ngrams[position])
            yield record


def evidence(model: Any, text: str, *, prediction: int = -1) -> Evidence:
    """Which tokens speak for a prediction: by occlusion, integrated gradients, pooling weights and n-grams.

    Args:
        model: A loaded run with recurrent layers; a classifier predicts one label for the text.
        text: The text that the model reads.
        prediction: The number of the prediction, negative ones counted from the end.
    """
    inspection = inspect(model, text)
    network: Network = find_part(model, inspection, "network")
    (number,) = choose_predictions(network, [prediction])
    with torch.no_grad():
        log_prob = float(-losses_of(network, network.logits(network.embeddings))[0, number])
    pooling = None
    if len(network.predictions) == 1 and inspection.attention is not None:
        pooling = to_array(inspection.attention().weights[0])
    occluded, window = occlude(network, number)
    integrated = to_array(integrated_gradients(network, number))
    name = network.predictions[number]
    ngrams = None if inspection.ngrams is None else to_array(inspection.ngrams)
    return Evidence(network.tokens, name, math.exp(log_prob), log_prob - occluded, window, integrated, pooling, ngrams)


@torch.no_grad()
def occlude(network: Network, prediction: int) -> tuple[Array, int]:
    """log P of a prediction without each token, (T,), and how many tokens are left out together."""
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
        found.append(-losses_of(network, network.logits(x))[:, prediction])
    return np.repeat(to_array(torch.cat(found)), window)[:T], window
