"""How the next token is chosen: greedy or sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from weft.config import LARGEST_INTEGER, Settings, setting
from weft.errors import WeftError

NO_TOKEN = -1  # of a row that has ended, or has not begun yet
TokenCounts = dict[int, int]  # of a text so far: id to how often it was generated; 0: only the prompt has it


def count_token(seen: TokenCounts, token: int) -> None:
    seen[token] = seen.get(token, 0) + 1


class Sampler(Protocol):
    """Selects the next token of each row."""

    def __call__(self, log_probs: Tensor, uniforms: Tensor) -> Tensor:
        """Maps log-probabilities (R, V) and one random number in [0, 1) per row, (R,), to token ids (R,)."""
        ...


def greedy(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """Selects the most probable token; the lowest id in a tie. A `Sampler`.

    Args:
        log_probs: (R, V) log-probabilities of the next token.
        uniforms: (R,) random numbers, which are not used.

    Returns:
        (R,) token ids.
    """
    return log_probs.argmax(-1)


@dataclass(frozen=True)
class Sample(Settings):
    """Samples the next token. A `Sampler`.

    In this order: the penalties change the log-probabilities, the temperature divides them; then the tokens are
    restricted by `top_k`, `top_p` (nucleus sampling, Holtzman et al. 2020), `min_p` (Nguyen et al. 2024) and
    `typical_p` (locally typical sampling, Meister et al. 2023), each among those that the one before has left. The
    uniform number is inverted through the cumulative distribution in vocabulary order, so equal numbers give equal
    tokens.

    Args:
        temperature: divides the log-probabilities; below 1 sharpens the distribution.
        top_k: number of tokens to sample from; 0 means all.
        top_p: probability mass to sample from: the most probable tokens that reach it.
        min_p: leaves out tokens that are less probable than this times the most probable one.
        typical_p: probability mass to sample from: the tokens whose surprisal is closest to the entropy.
        repetition_penalty: multiplies the log-probability of each token of the text so far, the prompt included (Keskar
            et al. 2019); above 1 discourages repetition.
        presence_penalty: is subtracted from the log-probability of each token that has been generated.
        frequency_penalty: the same for each time that the token has been generated.

    Raises:
        WeftError: a parameter is out of range.

    >>> Sample(temperature=0.7, min_p=0.3)(torch.tensor([[0.2, 0.8]]).log(), torch.tensor([0.1]))
    tensor([1])
    """

    temperature: float = setting(1.0, "divides the log-probabilities: below 1 more conservative, above 1 more diverse",
                                 low=0, high=100)  # fmt: skip
    top_k: int = setting(0, "sample from the k most probable tokens; 0: all", low=0,
                         high=LARGEST_INTEGER)  # fmt: skip
    top_p: float = setting(1.0, "sample from the fewest tokens whose probabilities sum to at least this", low=0, high=1)
    min_p: float = setting(0.0, "leave out tokens less probable than this times the most probable one", low=0, high=1)
    typical_p: float = setting(1.0, "sample from the tokens with a surprisal closest to the entropy, the fewest whose "
                               "probabilities sum to at least this", low=0, high=1)  # fmt: skip
    repetition_penalty: float = setting(1.0, "multiply the log-probability of tokens of the text so far, the prompt "
                                        "included: above 1 less repetition", low=0, high=100)  # fmt: skip
    presence_penalty: float = setting(0.0, "subtract this from the log-probability of tokens generated before",
                                      low=-2, high=2)  # fmt: skip
    frequency_penalty: float = setting(0.0, "the same for each time that a token was generated before", low=-2, high=2)

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise WeftError(f"temperature is {self.temperature}", expected="more than 0", hint="`sampler=greedy`")
        if not 0 <= self.top_k <= LARGEST_INTEGER:
            raise WeftError(f"top_k is {self.top_k}", expected=f"0 (all tokens) to {LARGEST_INTEGER}")
        for name in ("top_p", "typical_p"):
            if not 0 < getattr(self, name) <= 1:
                raise WeftError(f"{name} is {getattr(self, name)}", expected="more than 0, at most 1")
        if not 0 <= self.min_p <= 1:
            raise WeftError(f"min_p is {self.min_p}", expected="0 to 1")
        if not 0 < self.repetition_penalty <= 100:
            raise WeftError(f"repetition_penalty is {self.repetition_penalty}", expected="more than 0, at most 100",
                            hint="1, which is no penalty")  # fmt: skip
        for name in ("presence_penalty", "frequency_penalty"):
            if not -2 <= getattr(self, name) <= 2:
                raise WeftError(f"{name} is {getattr(self, name)}", expected="-2 to 2")

    @property
    def penalizes(self) -> bool:
        """Whether the choice depends on the tokens before."""
        return bool(self.repetition_penalty != 1 or self.presence_penalty or self.frequency_penalty)

    def __call__(self, log_probs: Tensor, uniforms: Tensor, seen: Sequence[TokenCounts] = ()) -> Tensor:
        """Maps log-probabilities (R, V) and uniforms (R,) to ids (R,); `seen` are the tokens of each row so far."""
        log_probs = log_probs.double()
        if self.penalizes and seen:
            log_probs = torch.stack([self._penalized(*row) for row in zip(log_probs, seen, strict=True)])
        if self.top_k == 1:
            return log_probs.argmax(-1)
        probs = torch.softmax(log_probs / self.temperature, -1)  # (R, V)
        if 0 < self.top_k < probs.shape[-1] or self.top_p < 1:
            probs = _first(probs, probs, self.top_p, self.top_k)
        if self.min_p > 0:
            probs = probs.masked_fill(probs < self.min_p * probs.amax(-1, keepdim=True), 0)
        if self.typical_p < 1:
            probs = probs / probs.sum(-1, keepdim=True)
            entropy = torch.special.entr(probs).sum(-1, keepdim=True)
            probs = _first(probs, -(probs.log() + entropy).abs(), self.typical_p)
        cumulative = probs.cumsum(-1)
        chosen = torch.searchsorted(cumulative, uniforms.double()[:, None] * cumulative[:, -1:], right=True)[:, 0]
        # Rounding can push the number past the end: clamp to the last token of non-zero probability.
        last = probs.shape[-1] - 1 - (probs.flip(-1) > 0).int().argmax(-1)
        return torch.minimum(chosen, last)

    def _penalized(self, log_probs: Tensor, seen: TokenCounts) -> Tensor:
        ids, counts = torch.tensor(list(seen)), torch.tensor(list(seen.values()))
        values = log_probs[ids]
        # A bias may have made a log-probability positive.
        values = torch.where(values < 0, values * self.repetition_penalty, values / self.repetition_penalty)
        values -= self.presence_penalty * (counts > 0) + self.frequency_penalty * counts
        return log_probs.index_copy(0, ids, values)


def _first(probs: Tensor, order: Tensor, mass: float, most: int = 0) -> Tensor:
    """Probabilities (R, V) of the `most` first tokens by `order` (0: all), the fewest that reach a mass; else 0."""
    order = order.sort(dim=-1, descending=True, stable=True).indices
    ordered = probs.gather(-1, order)
    if most:
        ordered[:, most:] = 0
        ordered /= ordered.sum(-1, keepdim=True)
    ordered[ordered.cumsum(-1) - ordered >= mass] = 0
    return torch.zeros_like(probs).scatter(-1, order, ordered)
