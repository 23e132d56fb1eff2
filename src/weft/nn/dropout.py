"""Dropout of whole tokens."""

from __future__ import annotations

import torch
from torch import Tensor


def word_dropout(ids: Tensor, rate: float, unknown: int) -> Tensor:
    """Replaces each id by `unknown` with probability `rate`, so that a model does not rely on single words.

    Paper: Iyyer et al. 2015, "Deep unordered composition rivals syntactic methods for text classification".

    Args:
        ids: (B, T) token ids.
        rate: the dropout rate.
        unknown: the id of the unknown token.

    Returns:
        (B, T) token ids.
    """
    if not rate:
        return ids
    return ids.masked_fill(torch.rand(ids.shape, device=ids.device) < rate, unknown)
