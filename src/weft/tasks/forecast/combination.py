"""The combination of forecasters, a rule of `Mixture`: quantiles are averaged.

The weights minimize the mean scaled pinball loss on held-out windows over the simplex, with a penalty on their distance
from weights that follow from the error of each forecaster alone. The penalty is the larger the fewer windows there are,
and the more they disagree: series of the same time share what happens to them, so that a thousand of them may say as
little as a few. Each iteration replaces the absolute errors by quadratic bounds that touch them (Hunter and Lange,
2000), so it solves a small quadratic problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.data.column import IntArray
from weft.metrics.forecast import QUANTILE_LEVELS
from weft.tasks.forecast.calibration import MEDIAN

Array = np.ndarray[Any, np.dtype[np.float64]]

MOST_BOUNDS = 50
MOST_TARGETS = 6_000  # targets that the weights are fitted to; of more every second, third, ... is taken
PRIOR_WINDOWS = 50.0  # independent windows of a series, that the prior weights are worth
PRIOR_POWER = 6  # of the inverse mean absolute errors of the forecasters, which the prior weights are proportional to
FITTED = [QUANTILE_LEVELS.index(level) for level in (0.1, 0.3, 0.5, 0.7, 0.9)]  # what the weights are fitted to
LEAST_SHARE = 0.01  # a smaller one becomes 0: the forecaster is not run


class QuantileAverage:
    """Weighted means of quantiles (N, H, Q).

    >>> AVERAGE.join([torch.zeros(1, 1, 3), torch.ones(1, 1, 3)], [0.25, 0.75])
    tensor([[[0.7500, 0.7500, 0.7500]]])
    """

    def join(self, predictions: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        stacked = torch.stack(list(predictions), -1)
        return stacked @ torch.tensor(list(weights), dtype=stacked.dtype)

    def fit(self, predictions: Sequence[Tensor], targets: Tensor, times: IntArray | None = None) -> Sequence[float]:
        """The weights (K,), which are not negative and sum to 1.

        Args:
            predictions: K times (N, H, Q), in units of the scale of each series.
            targets: (N, H) in the same units; NaN where missing.
            times: (N,) equal numbers for windows of the same time; by default all are independent.
        """
        found = np.stack([one.numpy().astype(np.float64) for one in predictions], -1)  # (N, H, Q, K)
        count = found.shape[-1]
        # Without a season some forecasters are the same one, which counts once.
        alike = [any(np.array_equal(found[..., one], found[..., other], equal_nan=True) for other in range(one))
                 for one in range(count)]  # fmt: skip
        distinct = ~np.array(alike)
        wanted = targets.numpy().astype(np.float64)
        known = np.isfinite(wanted) & np.isfinite(found).all((2, 3))
        parts, values = found[known][:, FITTED][..., distinct], wanted[known]
        stride = max(1, -(-len(values) // MOST_TARGETS))
        windows = independent_windows(found[..., MEDIAN, distinct], np.where(known, wanted, np.nan), times)
        weights = np.zeros(count)
        weights[distinct] = _fit(parts[::stride], values[::stride], PRIOR_WINDOWS / max(windows, 1.0))
        shares: list[float] = weights.tolist()
        return shares


AVERAGE = QuantileAverage()


def pinball(quantiles: Array, targets: Array) -> Array:
    """The pinball loss (..., Q) of quantiles (..., Q) of targets (...); its mean over levels is half a CRPS."""
    errors = targets[..., None] - quantiles
    levels = np.array(QUANTILE_LEVELS)
    found: Array = np.maximum(levels * errors, (levels - 1) * errors)
    return found


def independent_windows(medians: Array, targets: Array, times: IntArray | None = None) -> float:
    """The number of independent windows that say as much about which forecaster is better as these do.

    Where the differences between forecasters vary more from time to time than series by series would explain, it is
    their number divided by that ratio.

    Args:
        medians: (N, H, K)
        targets: (N, H), NaN where missing.
        times: (N,)
    """
    observed = ~np.isnan(targets)
    counted = observed.any(1)
    errors = np.where(observed[..., None], np.abs(medians - targets[..., None]), 0.0)[counted].sum(1)
    errors /= observed[counted].sum(1)[:, None]  # (N, K)
    differences = errors - errors.mean(1, keepdims=True)
    groups = [] if times is None else [differences[times[counted] == time] for time in np.unique(times[counted])]
    groups = [group for group in groups if len(group) > 1]
    if len(groups) < 2 or differences.shape[1] < 2:
        return float(counted.sum())
    between = np.var([group.mean(0) for group in groups], axis=0, ddof=1)
    within = np.mean([group.var(0, ddof=1) / len(group) for group in groups], 0)
    ratio = np.median(between / np.maximum(within, np.maximum(between * 1e-12, 1e-300)))  # exact forecasts differ by 0
    return float(counted.sum() / max(ratio, 1.0))


def _fit(parts: Array, targets: Array, prior_share: float) -> Array:
    """The weights (K,) for parts (R, Q, K) and targets (R,); the prior weights are worth a share of the targets."""
    count = parts.shape[-1]
    weights = np.full(count, 1 / count)
    if count == 1 or not len(targets):
        return weights
    # The weights sum to 1, so what all parts share changes nothing. The median is near the good ones.
    middle = np.median(parts.mean(1, keepdims=True), 2, keepdims=True)
    parts, targets = parts - middle, targets - middle[:, 0, 0]
    tilt = np.einsum("rqk,q->k", parts, np.array(QUANTILE_LEVELS)[FITTED] - 0.5)
    flat, wanted = parts.reshape(-1, count), np.repeat(targets, len(FITTED))
    errors = np.abs(wanted[:, None] - flat).mean(0)
    errors += 1e-9 * errors.max() + 1e-300
    likely = (errors.min() / errors) ** PRIOR_POWER
    likely /= likely.sum()
    least = 1e-3 * max(float(np.abs(wanted - flat.mean(1)).mean()), 1e-12)
    for _ in range(MOST_BOUNDS):
        touching = 0.5 / (np.abs(wanted - flat @ weights) + least)
        weighted = flat * touching[:, None]
        curvature, slope = weighted.T @ flat, weighted.T @ wanted + tilt
        sizes = np.diag(curvature)  # a bad forecaster has a large one
        prior = prior_share * sizes.min() + 1e-9 * sizes.max() + 1e-300
        curvature[np.diag_indices(count)] += prior
        before, weights = weights, _on_simplex(curvature, slope + prior * likely)
        if np.abs(weights - before).max() < 1e-4:
            break
    weights = np.where(weights < LEAST_SHARE, 0.0, weights)
    weights /= weights.sum()
    return weights


def _on_simplex(curvature: Array, slope: Array) -> Array:
    """The minimum of w'Aw / 2 - b'w over weights that are not negative and sum to 1, by an active set."""
    count = len(slope)
    free = np.ones(count, bool)
    weights = np.full(count, 1 / count)
    for _ in range(4 * count):
        size = int(free.sum())
        system = np.ones((size + 1, size + 1))
        system[:size, :size], system[size, size] = curvature[np.ix_(free, free)], 0.0
        solved = np.linalg.solve(system, np.append(slope[free], 1.0))
        weights = np.zeros(count)
        weights[free] = solved[:size]
        if weights.min() < -1e-12:
            free[weights.argmin()] = False
            continue
        pressures = curvature @ weights - slope + solved[size]  # of the bound at 0
        pressures[free] = 0.0
        if pressures.min() >= -1e-9 * np.abs(slope).max():
            break
        free[pressures.argmin()] = True
    found: Array = np.maximum(weights, 0.0) / np.maximum(weights, 0.0).sum()
    return found
