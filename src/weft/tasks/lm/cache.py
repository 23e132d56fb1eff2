"""The neural cache: tokens that followed similar states of the text just read.

    P_cache(w | h_t) is proportional to the sum over i < t, x_(i+1) = w, of exp(theta h_t . h_i)

h_t is the output of the recurrent stack after t tokens. The sum runs over the last `size` tokens. A cache has no
weights: it is interpolated with a trained model, and its two parameters are fitted to held-out text.

Grave, Joulin and Usunier 2017, "Improving neural language models with a continuous cache".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from weft.cells import State
from weft.data.windows import Tokens
from weft.errors import WeftError
from weft.tasks.lm.model import LanguageModel
from weft.tasks.mixture import LINEAR, Array

# theta times the mean squared norm of the outputs: so the candidates do not depend on the size of the model.
CANDIDATES = (0.0, 4.0, 8.0, 16.0, 32.0)

Segment = tuple[Tensor, Tensor]  # outputs (T, H) of the stack, and the token (T,) that followed each of them


@dataclass(frozen=True)
class CacheConfig:
    """The parameters of a cache.

    Attributes:
        size: How many of the last tokens it holds.
        theta: How strongly similar states are preferred; 0: a unigram model of the last tokens.
    """

    size: int = 2000
    theta: float = 0.3

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.theta < float("inf"):
            raise WeftError(f"a cache of size {self.size} with theta {self.theta}", expected="size 1, theta 0, or more")


class CacheReader:
    """Reads a text in segments and computes the cache's probability of each next token, without entries 1 / V."""

    def __init__(self, config: CacheConfig, vocabulary_size: int) -> None:
        self.config, self.vocabulary_size = config, vocabulary_size
        self.keys: Tensor | None = None  # (n, H) outputs
        self.tokens = torch.zeros(0, dtype=torch.long)  # (n,) the token that followed each of them

    def read(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The probabilities (T,) of a segment's targets, in double precision; 0 where the cache does not have one."""
        first = not len(self.tokens)
        shares, tokens = self._attend(outputs, targets)
        probs = (shares * (tokens == targets[:, None])).sum(1)
        if first:
            probs[:1] = 1 / self.vocabulary_size
        return probs

    def read_all(self, outputs: Tensor, targets: Tensor) -> Tensor:
        first = not len(self.tokens)
        shares, tokens = self._attend(outputs, targets)
        probs = shares.new_zeros(len(targets), self.vocabulary_size)
        probs.scatter_add_(1, tokens.expand(len(targets), -1), shares)
        if first:
            probs[:1] = 1 / self.vocabulary_size
        return probs

    def _attend(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Adds T entries. Returns the shares (T, n) of all entries, 0 of those that are not before it, and tokens."""
        size = self.config.size
        keys = outputs if self.keys is None else torch.cat([self.keys, outputs])
        tokens = torch.cat([self.tokens, targets])
        steps = torch.arange(len(targets))[:, None] + len(self.tokens)  # (T, 1) the number of each target's entry
        entries = torch.arange(len(tokens))
        inside = (entries < steps) & (entries >= steps - size)  # (T, n)
        scores = (self.config.theta * (outputs @ keys.t())).double().masked_fill(~inside, -torch.inf)
        self.keys, self.tokens = keys[-size:], tokens[-size:]
        return scores.softmax(1).masked_fill(~inside, 0), tokens


class CacheState(NamedTuple):
    """The state of a cache: that of the network, its last output, and the entries, which grow with the text."""

    network: State
    output: Tensor  # (R, 1, H); (R, 0, H) before any token
    keys: Tensor  # (R, n, H)
    tokens: Tensor  # (R, n)


class CacheModel(nn.Module):
    """The distribution of a cache over the outputs of a recurrent language model, as a part of an interpolation.

    Without entries it is the uniform distribution. A token that the cache does not have has probability 0.
    """

    context = "left"

    def __init__(self, network: LanguageModel, config: CacheConfig) -> None:
        super().__init__()
        self.network, self.config = network, config

    def initial_state(self, rows: int) -> CacheState:
        empty = torch.zeros(rows, 0, self.network.stack.output_size)
        return CacheState(self.network.initial_state(rows), empty, empty, torch.zeros(rows, 0, dtype=torch.long))

    @torch.no_grad()
    def step(self, ids: Tensor, state: CacheState) -> tuple[Tensor, CacheState]:
        keys, tokens = state.keys, state.tokens
        if state.output.shape[1]:
            keys = torch.cat([keys, state.output], 1)[:, -self.config.size :]
            tokens = torch.cat([tokens, ids[:, None]], 1)[:, -self.config.size :]
        x = self.network.embed(ids[:, None].to(self.network.device))
        outputs, network = self.network.stack(x, state.network)
        outputs = outputs.cpu()
        size = self.network.vocabulary_size
        if keys.shape[1]:
            scores = self.config.theta * (keys @ outputs.transpose(1, 2))[:, :, 0]  # (R, n)
            probs = torch.zeros(len(ids), size, dtype=torch.float64)
            probs.scatter_add_(1, tokens, scores.double().softmax(-1))
        else:
            probs = torch.full((len(ids), size), 1 / size, dtype=torch.float64)
        return probs.log(), CacheState(network, outputs, keys, tokens)

    def select(self, state: CacheState, rows: Tensor) -> CacheState:
        return CacheState(self.network.select(state.network, rows), *(part[rows] for part in state[1:]))

    @torch.no_grad()
    def next_probs(self, tokens: Tokens) -> Iterator[Array]:
        reader = CacheReader(self.config, self.network.vocabulary_size)
        for outputs, targets in self.network.read_segments(tokens):
            yield reader.read_all(outputs.cpu(), targets).numpy()

    @torch.no_grad()
    def token_log_probs(self, tokens: Tokens) -> Array:
        return cache_log_probs(self.network.read_segments(tokens), self.config, self.network.vocabulary_size)


def cache_log_probs(segments: Iterator[Segment] | Sequence[Segment], config: CacheConfig, size: int) -> Array:
    """The log-probabilities (N,) of the tokens of segments by a cache over `size` tokens that reads them in order."""
    reader = CacheReader(config, size)
    probs = [reader.read(outputs.cpu(), targets) for outputs, targets in segments]
    with np.errstate(divide="ignore"):
        found: Array = np.log(torch.cat(probs).numpy()) if probs else np.zeros(0)
    return found


class FittedCache(NamedTuple):
    """The parameters of a cache, and what it does on the text that they were fitted to."""

    config: CacheConfig
    log_probs: Array  # (N,) of each token by the cache
    weights: Array  # (K + 1,) of the other models and of the cache


def fit_cache(segments: Sequence[Segment], log_probs: Array, vocabulary_size: int, size: int) -> FittedCache:
    """Selects theta from CANDIDATES by the likelihood of the interpolation with other models.

    Args:
        segments: N tokens as the network has read them, in order.
        log_probs: (N, K) the log-probabilities of these tokens by the other models.
        vocabulary_size: V.
        size: how many tokens the cache holds.
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
