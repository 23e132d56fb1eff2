"""Training curves of runs as figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from weft.pictures.figures import Array, Curve, Curves
from weft.tasks.runs import TRAINING, MetricCurve

LOG = ("learning_rate", "grad_norm")
TITLES = {
    "cross_entropy": "Cross-entropy",
    "grad_norm": "Norm of the gradient before clipping",
    "learning_rate": "Learning rate",
}


def curve_figures(
    runs: Sequence[Mapping[str, MetricCurve]], wanted: Sequence[str] | None = None, smooth: float = 0.6
) -> list[Curves]:
    """One figure for each metric, with all runs in it; training (dashed) and held-out loss share one.

    A run has the same colour in every figure. `smooth` is the weight of the past in the exponential smoothing of
    training curves.
    """
    names = list(wanted or dict.fromkeys(name for one in runs for name in one))
    figures = []
    for loss in [name.removeprefix(TRAINING) for name in names if name.startswith(TRAINING)] if wanted is None else []:
        pair = (TRAINING + loss, loss)
        if not set(pair) <= set(names):
            continue
        both = [
            dataclasses.replace(_curve(one[name], len(runs), smooth, part), hue=hue, dashed=name != loss)
            for hue, one in enumerate(runs)
            for name, part in zip(pair, ("training", "held-out"), strict=True)
            if name in one
        ]
        figures.append(Curves(_title(loss), tuple(both), "step", _label(runs, loss)))
        names = [name for name in names if name not in pair]
    for name in names:
        curves = tuple(
            dataclasses.replace(_curve(one[name], len(runs), smooth, ""), hue=hue)
            for hue, one in enumerate(runs)
            if name in one
        )
        figures.append(Curves(_title(name), curves, "step", _label(runs, name), log=name in LOG))
    return figures


def _label(runs: Sequence[Mapping[str, MetricCurve]], name: str) -> str:
    """What an axis says, if the runs agree."""
    labels = {one[name].label for one in runs if name in one}
    return labels.pop() if len(labels) == 1 else name


def _title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " ").capitalize())


def _curve(one: MetricCurve, runs: int, smooth: float, part: str) -> Curve:
    name = f"{Path(one.path).name} {part}".strip() if runs > 1 or not part else part
    train = (one.name.startswith(TRAINING) or one.name == "grad_norm") and smooth > 0 and len(one.values) > 2
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
