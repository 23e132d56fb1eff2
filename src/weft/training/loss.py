"""What every model gives the trainer."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from weft.cells import State
from weft.metrics import Likelihood, TokenPredictions


class Loss(NamedTuple):
    """A sum of nats and the number of predictions in it, so that sums of losses stay exact.

    `state` is what a model hands on to the next batch of the same stream, where it hands on anything.
    """

    total: Tensor
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody wants of a loss
    state: State = None


def count_guesses(logits: Tensor, targets: Tensor) -> TokenPredictions:
    """Logits (N, V) held against the true ids (N,)."""
    nats = F.cross_entropy(logits, targets, reduction="sum")
    return TokenPredictions(Likelihood(float(nats), len(targets)), int((logits.argmax(-1) == targets).sum()))
