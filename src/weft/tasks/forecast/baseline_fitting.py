"""Least squares for many small problems at once, by Levenberg-Marquardt with finite differences.

A recursion over time costs as much in NumPy for one series as for a thousand, so all series, all models and all
perturbed parameters of a step of the optimizer run as the columns of one recursion.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

PROBLEMS_AT_ONCE = 1500  # of one recursion: their states fit into the cache
DIFFERENCE = 1e-4  # of a finite difference
DAMPING_FACTORS = (0.1, 10.0, 1000.0)  # factors of the damping that are tried in each iteration
CONVERGED = 1e-3  # a problem has converged when the relative decrease of its sum of squares is smaller


class LeastSquares(Protocol):
    """R problems."""

    def subset(self, rows: np.ndarray[Any, np.dtype[np.int64]], /) -> LeastSquares:
        """Some of them."""

    def residuals(self, points: Array, /) -> Array:
        """Parameters (R, C, P) to residuals (R, C, T)."""


def least_squares(problems: LeastSquares, starts: Array, free: np.ndarray[Any, Any], iterations: int = 12) -> Array:
    """Minimizes the sum of squares of each of R problems.

    Args:
        problems: What is minimized.
        starts: (R, C, P), parameters to start from; the best of the C is taken for each problem.
        free: (R, P), which parameters may change.
        iterations: At most.

    Returns:
        (R, P)
    """
    with np.errstate(all="ignore"):  # a trial may leave the range of numbers: its sum of squares is then infinite
        everything = np.arange(len(starts))
        parameters, best = _best(starts, _sums(problems.residuals(starts)))
        damping = np.full(len(starts), 0.1)
        active = everything
        size = starts.shape[-1]
        perturbations = np.concatenate([np.zeros((1, size)), DIFFERENCE * np.eye(size)])
        for _ in range(iterations):
            if not len(active):
                break
            points = parameters[active, None] + perturbations * free[active, None]  # (r, 1 + P, P)
            some = problems.subset(active)
            values = some.residuals(points)  # (r, 1 + P, T)
            jacobian = np.nan_to_num((values[:, 1:] - values[:, :1]) / DIFFERENCE, posinf=0, neginf=0)
            normal = jacobian @ jacobian.swapaxes(1, 2)  # (r, P, P)
            gradient = jacobian @ np.nan_to_num(values[:, 0])[..., None]  # (r, P, 1)
            diagonal = np.einsum("rpp->rp", normal)
            floor = 1e-9 * (diagonal.max(1, keepdims=True) + 1e-12)
            trials = np.empty((len(active), len(DAMPING_FACTORS), size))
            for index, factor in enumerate(DAMPING_FACTORS):
                added = (factor * damping[active])[:, None] * diagonal + floor
                trials[:, index] = np.linalg.solve(normal + added[:, None] * np.eye(size), gradient)[..., 0]
            trials = parameters[active, None] - np.clip(trials, -2, 2)
            sums = _sums(some.residuals(trials))
            chosen = sums.argmin(1)
            found = np.take_along_axis(sums, chosen[:, None], 1)[:, 0]
            better = found < best[active]
            decrease = np.where(better, 1 - found / np.maximum(best[active], 1e-300), 0)
            rows = active[better]
            parameters[rows] = trials[better, chosen[better]]
            best[rows] = found[better]
            damping[active] *= np.where(better, np.array(DAMPING_FACTORS)[chosen], DAMPING_FACTORS[-1])
            active = active[(decrease > CONVERGED) | (~better & (damping[active] < 1e6))]
    return parameters


def _sums(values: Array) -> Array:
    """Sums of squares, (r, C, T) to (r, C)."""
    sums: Array = np.einsum("rct,rct->rc", values, values)
    return np.nan_to_num(sums, nan=np.inf, posinf=np.inf)


def _best(starts: Array, sums: Array) -> tuple[Array, Array]:
    chosen = sums.argmin(1)
    rows = np.arange(len(starts))
    return starts[rows, chosen].copy(), sums[rows, chosen]
