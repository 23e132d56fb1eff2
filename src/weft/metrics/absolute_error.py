"""The absolute error of predicted values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.metrics.metric import Metric

MEAN_ABSOLUTE_ERROR = Metric("mean_absolute_error", per="value")


@dataclass(frozen=True)
class AbsoluteError:
    """The summed absolute error of predicted values, and their number."""

    total: float
    count: int

    def __add__(self, other: AbsoluteError) -> AbsoluteError:
        return AbsoluteError(self.total + other.total, self.count + other.count)

    def score(self) -> float:
        return self.total / self.count if self.count else math.nan

    def signature(self, unit: str) -> str:
        """What exactly was measured; `unit` is what a value is of, such as "day"."""
        return f"mean_absolute_error|per:{unit}|values:{self.count}"
