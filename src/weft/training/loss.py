"""The loss of a batch as a sum and a count."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from weft.cells import State
from weft.metrics import Likelihood, TokenPredictions


class MeanLoss(NamedTuple):
    """A summed loss and the number of predictions in it, as plain numbers."""

    total: float
    count: int  # type: ignore[assignment]  # shadows tuple.count, which a loss does not need

    @property
    def value(self) -> float:
        """The loss per prediction; NaN if there are none."""
        return self.total / self.count if self.count else math.nan


class Loss(NamedTuple):
    """A summed loss and the number of predictions in it, so that losses of parts of a batch add up exactly.

    `state` is the recurrent state that a model carries to the next batch of the same stream, if it carries any.
    """

    total: Tensor  # ()
    count: int  # type: ignore[assignment]  # shadows tuple.count, which a loss does not need
    state: State = None


def count_predictions(logits: Tensor, targets: Tensor) -> TokenPredictions:
    """Compares logits (N, V) with the true ids (N,)."""
    nats = F.cross_entropy(logits, targets, reduction="sum")
    return TokenPredictions(Likelihood(float(nats), len(targets)), int((logits.argmax(-1) == targets).sum()))
