"""The neural cache: tokens that followed similar states of the text just read.

    P_cache(w | h_t) is proportional to the sum over i < t, x_(i+1) = w, of exp(theta h_t . h_i)

h_t is the output of the recurrent stack after t tokens. The sum runs over the last `size` tokens. A cache has no
weights: it is interpolated with a trained model, and its two parameters are fitted to held-out text.

Grave, Joulin and Usunier 2017, "Improving neural language models with a continuous cache".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from weft.cells import State
from weft.data.windows import Tokens
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.nn import map_state
from weft.tasks.lm.interpolation import likelihood, predict_stepwise
from weft.tasks.lm.model import LanguageModel
from weft.tasks.mixture import Array

SEGMENT = 256  # tokens that are read in one call


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
    """Reads a text in segments and computes the cache's probability of each next token.

    Args:
        config: the parameters.
        vocabulary_size: V. Without entries all V tokens have the same probability.
    """

    def __init__(self, config: CacheConfig, vocabulary_size: int) -> None:
        self.config, self.vocabulary_size = config, vocabulary_size
        self.keys: Tensor | None = None  # (n, H) outputs
        self.tokens = torch.zeros(0, dtype=torch.long)  # (n,) the token that followed each of them

    def read(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Reads T tokens.

        Args:
            outputs: (T, H) outputs of the stack.
            targets: (T,) the token that followed each of them.

        Returns:
            The probability (T,) of each target, in double precision; 0 where the cache does not have it.
        """
        first = not len(self.tokens)
        shares, tokens = self._attend(outputs, targets)
        probs = (shares * (tokens == targets[:, None])).sum(1)
        if first:
            probs[:1] = 1 / self.vocabulary_size
        return probs

    def read_all(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Like `read`, but returns the probabilities (T, V) of all tokens."""
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
    """The distribution of a cache over the outputs of a recurrent language model. It is a `Stepper`.

    Without entries it is the uniform distribution. A token that the cache does not have has probability 0.

    Args:
        network: the language model whose outputs are compared.
        config: the parameters.
    """

    def __init__(self, network: LanguageModel, config: CacheConfig) -> None:
        super().__init__()
        self.network, self.config = network, config

    context = "left"

    def initial_state(self, rows: int) -> CacheState:
        """Returns the state before any token."""
        empty = torch.zeros(rows, 0, self.network.stack.output_size)
        return CacheState(self.network.initial_state(rows), empty, empty, torch.zeros(rows, 0, dtype=torch.long))

    @torch.no_grad()
    def step(self, ids: Tensor, state: CacheState) -> tuple[Tensor, CacheState]:
        """Reads ids (R,). Returns log-probabilities (R, V) of the next token, and the new state."""
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
        """Returns the state of the given rows, which may repeat."""
        return CacheState(
            map_state(lambda part: part[rows], state.network),
            state.output[rows],
            state.keys[rows],
            state.tokens[rows],
        )

    @torch.no_grad()
    def token_log_probs(self, tokens: Tokens) -> Array:
        """Computes log P of each token but the first of (N,), given those before it: (N - 1,)."""
        reader = CacheReader(self.config, self.network.vocabulary_size)
        found = [reader.read(outputs, targets) for outputs, targets in read_outputs(self.network, tokens)]
        with np.errstate(divide="ignore"):
            return np.log(torch.cat(found).numpy()) if found else np.zeros(0)

    def evaluate(self, tokens: Tokens) -> Likelihood:
        """Computes the likelihood of the tokens (N,), each given all tokens before it."""
        return likelihood(self.token_log_probs(tokens))

    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """As `evaluate`, and counts how often the most probable token is the true one."""
        return predict_stepwise(self, tokens)


def read_outputs(network: LanguageModel, tokens: Tokens, segment: int = SEGMENT) -> Iterator[tuple[Tensor, Tensor]]:
    """Reads a text from left to right. Yields the outputs (T, H) of each segment, and the tokens (T,) that followed."""
    ids = torch.from_numpy(np.asarray(tokens).astype(np.int64))
    state: Any = None
    network.eval()
    for begin in range(0, len(ids) - 1, segment):
        end = min(begin + segment, len(ids) - 1)
        outputs, state = network.stack(network.embed(ids[None, begin:end].to(network.device)), state)
        yield outputs[0].cpu(), ids[begin + 1 : end + 1]
