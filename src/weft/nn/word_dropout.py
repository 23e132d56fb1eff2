"""Noise while training, for models that read ids, so that a small set of examples is not learned by heart."""

from __future__ import annotations

import torch
from torch import Tensor


def drop_words(ids: Tensor, share: float, unknown: int) -> Tensor:
    """The ids (B, T) with a `share` of them turned into `unknown`: a model must not hang on any one word."""
    if not share:
        return ids
    return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < share, unknown)
