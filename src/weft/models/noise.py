"""Noise while training, for models that read ids, so that a small set of examples is not learned by heart."""

from __future__ import annotations

import torch
from torch import Tensor


def drop_words(ids: Tensor, share: float, unknown: int) -> Tensor:
    """The ids (B, T) with a `share` of them turned into `unknown`: a model must not hang on any one word."""
    if not share:
        return ids
    return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < share, unknown)


def drop_rows(x: Tensor, share: float) -> Tensor:
    """x (B, T, I) with a `share` of its I numbers dropped, the same at all steps of a row (Gal, Ghahramani 2016)."""
    if not share:
        return x
    keep = 1 - share
    return x * (torch.bernoulli(x.new_full((x.shape[0], 1, x.shape[2]), keep)) / keep)
