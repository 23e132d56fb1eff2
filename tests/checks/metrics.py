"""The battery of metrics."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from tests.checks.comparisons import close


def check_metric(whole: Any, parts: Sequence[Any], *, atol: float = 1e-9, rtol: float = 1e-9) -> None:
    """Checks a metric: the score of the sum of the parts is that of the whole, in any order; adding modifies nothing.

    `whole` has the statistics of all data, `parts` those of its pieces; each has `+` and `score()`.
    """
    before = [part.score() for part in parts]
    for order in (list(parts), list(reversed(parts))):
        merged = functools.reduce(operator.add, order)
        actual, expected = (torch.as_tensor(m.score(), dtype=torch.float64) for m in (merged, whole))
        close("metric: the score of the sum is not that of the whole", actual, expected, atol=atol, rtol=rtol)
    assert [part.score() for part in parts] == before, "metric: adding changed a part"
