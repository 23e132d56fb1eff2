"""Fits the parameters of a neural cache to held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.tasks.lm.cache import CacheConfig, CacheReader
from weft.tasks.mixture import LINEAR, Array

# theta times the mean squared norm of the outputs: so the candidates do not depend on the size of the model.
CANDIDATES = (0.0, 4.0, 8.0, 16.0, 32.0)

Segment = tuple[Tensor, Tensor]  # outputs (T, H), and the tokens (T,) that followed them


class FittedCache(NamedTuple):
    """The parameters of a cache, and what it does on the text that they were fitted to."""

    config: CacheConfig
    log_probs: Array  # (N,) of each token by the cache
    weights: Array  # (K + 1,) of the other models and of the cache


def fit_cache(segments: Sequence[Segment], log_probs: Array, vocabulary_size: int, size: int) -> FittedCache:
    """Selects theta from CANDIDATES by the likelihood of the interpolation with other models.

    Args:
        segments: the outputs of the network on N tokens, in order.
        log_probs: (N, K) the log-probabilities of these tokens by the other models.
        vocabulary_size: V.
        size: how many tokens the cache holds.

    Raises:
        WeftError: there are no tokens.
    """
    if not segments:
        raise WeftError("there is no text to fit the cache to", expected="at least 2 tokens")
    norm = float(torch.cat([outputs.square().sum(1) for outputs, _ in segments]).mean())
    best: tuple[float, FittedCache] | None = None
    for candidate in CANDIDATES:
        config = CacheConfig(size, candidate / max(norm, 1e-12))
        found = cache_log_probs(segments, config, vocabulary_size)
        joined = np.concatenate([log_probs, found[:, None]], 1)
        weights = LINEAR.fit_to(joined)
        value = float(LINEAR.join_targets(joined, weights).sum())
        if best is None or value > best[0]:
            best = value, FittedCache(config, found, weights)
    assert best is not None
    return best[1]


def cache_log_probs(segments: Sequence[Segment], config: CacheConfig, vocabulary_size: int) -> Array:
    """The log-probabilities (N,) of the tokens of segments by a cache that reads them in order."""
    reader = CacheReader(config, vocabulary_size)
    probs = torch.cat([reader.read(outputs, targets) for outputs, targets in segments])
    with np.errstate(divide="ignore"):
        found: Array = np.log(probs.numpy())
    return found
