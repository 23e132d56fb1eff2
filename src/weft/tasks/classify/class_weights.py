"""The weights of labels in the losses of a classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from weft.errors import WeftError, unknown_name


def class_weights(setting: str, counts: Mapping[str, int]) -> Tensor | None:
    """The class weights of the setting train.class_weights; None if all are equal.

    >>> class_weights("balanced", {"ham": 30, "spam": 10}), class_weights("spam=3", {"ham": 30, "spam": 10})
    (tensor([0.6667, 2.0000]), tensor([1., 3.]))
    """
    if setting == "none":
        return None
    if setting == "balanced":
        return torch.tensor([sum(counts.values()) / (len(counts) * max(1, count)) for count in counts.values()])
    weights = dict.fromkeys(counts, 1.0)
    for part in setting.split(","):
        label, equals, number = (piece.strip() for piece in part.rpartition("="))
        if not equals:
            raise WeftError(
                f"train.class_weights is {setting!r}",
                expected="none, balanced, or numbers by label, as spam=3, ham=0.5",
            )
        if label not in weights:
            raise unknown_name("train.class_weights: label", label, weights)
        try:
            weights[label] = float(number)
        except ValueError:
            weights[label] = math.nan
        if not 0 < weights[label] < math.inf:
            raise WeftError(f"train.class_weights: {label!r} has the weight {number!r}", expected="a number above 0")
    return torch.tensor(list(weights.values()))
