"""Training curves of runs as figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from weft.pictures.figures import Array, Curve, Curves
from weft.probes.runs import MetricCurve

TRAIN, HELD_OUT = "train_cross_entropy", "cross_entropy"
LOG = ("learning_rate", "grad_norm")
TITLES = {"grad_norm": "Norm of the gradient before clipping", "learning_rate": "Learning rate"}


def curve_figures(
    runs: Sequence[Mapping[str, MetricCurve]], wanted: Sequence[str] | None = None, smooth: float = 0.6
) -> list[Curves]:
    """One figure for each metric, with all runs in it; training (dashed) and held-out cross-entropy share one.

    A run has the same colour in every figure.

    Args:
        runs: The curves of each run by their names.
        wanted: The metrics, in order; without it all.
        smooth: The weight of the past in the exponential smoothing of training curves.
    """
    names = list(wanted or dict.fromkeys(name for one in runs for name in one))
    figures = []
    if wanted is None and {TRAIN, HELD_OUT} <= set(names):
        both = [
            dataclasses.replace(_curve(one[name], len(runs), smooth, name), hue=hue, dashed=name == TRAIN)
            for hue, one in enumerate(runs)
            for name in (TRAIN, HELD_OUT)
            if name in one
        ]
        figures.append(Curves("Cross-entropy", tuple(both), "step", "nats per token"))
        names = [name for name in names if name not in (TRAIN, HELD_OUT)]
    for name in names:
        curves = tuple(
            dataclasses.replace(_curve(one[name], len(runs), smooth, ""), hue=hue)
            for hue, one in enumerate(runs)
            if name in one
        )
        title = TITLES.get(name, name.replace("_", " ").capitalize())
        figures.append(Curves(title, curves, "step", name, log=name in LOG))
    return figures


def _curve(one: MetricCurve, runs: int, smooth: float, part: str) -> Curve:
    own = {TRAIN: "training", HELD_OUT: "held-out"}.get(part, "")
    name = f"{Path(one.path).name} {own}".strip() if runs > 1 or not own else own
    train = one.name in (TRAIN, "grad_norm") and smooth > 0 and len(one.values) > 2
    if not train:
        return Curve(name, one.steps, one.values, one.best)
    return Curve(name, one.steps, smoothed(one.values, smooth), None, one.values)


def smoothed(values: Array, weight: float) -> Array:
    """Exponential smoothing without a bias towards the first value."""
    total, norm, found = 0.0, 0.0, []
    for value in values.tolist():
        if np.isfinite(value):
            total, norm = weight * total + (1 - weight) * value, weight * norm + (1 - weight)
        found.append(total / norm if norm else np.nan)
    return np.array(found)
