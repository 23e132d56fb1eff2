"""Decoding: from a model that gives the next token's chances to text. Written once, over Stepper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError


class Stepper(Protocol):
    """Anything that tells the next token's chances from those before: a recurrent model, an n-gram, an HMM."""

    def start(self, rows: int) -> Any:
        """The state before any token."""
        ...

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read one token a row, (R,); give log-probabilities (R, V) of the next, and the state after it."""
        ...

    def select(self, state: Any, rows: Tensor) -> Any:
        """The state of those rows, in that order; rows may repeat. The state given stays as it is."""
        ...


class Choice(Protocol):
    """A way to choose the next token: log-probabilities (R, V) and a number in [0, 1) a row, to ids (R,)."""

    def __call__(self, log_probs: Tensor, uniforms: Tensor) -> Tensor: ...


def greedy(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """The likeliest token; the first one of equals."""
    return log_probs.argmax(-1)


@dataclass(frozen=True)
class Sample:
    """A token by chance: sharpened by the temperature, among the `top_k` likeliest (0: all), and among the fewest
    whose chances reach `top_p`.

    The number in [0, 1) picks a token on the cumulated chances in the vocabulary's order, so that the same numbers
    give the same tokens.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise WeftError(f"temperature is {self.temperature}", expected="more than 0", hint="--greedy")
        if self.top_k < 0:
            raise WeftError(f"top_k is {self.top_k}", expected="0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            raise WeftError(f"top_p is {self.top_p}", expected="more than 0, at most 1")

    def __call__(self, log_probs: Tensor, uniforms: Tensor) -> Tensor:
        chances = torch.softmax(log_probs.double() / self.temperature, -1)  # (R, V)
        if 0 < self.top_k < chances.shape[-1] or self.top_p < 1:
            ordered, order = chances.sort(dim=-1, descending=True, stable=True)
            if self.top_k:
                ordered[:, self.top_k :] = 0
                ordered /= ordered.sum(-1, keepdim=True)
            reached_before = ordered.cumsum(-1) - ordered
            ordered[reached_before >= self.top_p] = 0
            chances = torch.zeros_like(chances).scatter(-1, order, ordered)
        cumulated = chances.cumsum(-1)
        chosen = torch.searchsorted(cumulated, uniforms.double()[:, None] * cumulated[:, -1:], right=True)[:, 0]
        # Rounding can carry the number past the end: the last token with any chance is meant.
        last = chances.shape[-1] - 1 - (chances.flip(-1) > 0).int().argmax(-1)
        return torch.minimum(chosen, last)


NOTHING = -1  # in a row of `generate`: still reading its prompt, or already ended


def generate(
    stepper: Stepper,
    prompts: Sequence[Sequence[int]],
    choose: Choice,
    *,
    tokens: int,
    seed: int = 0,
    banned: Sequence[int] = (),
    end: int | None = None,
) -> Iterator[list[int]]:
    """Continue every prompt by up to `tokens` tokens; yields the new token of each row, step by step.

    Each row has its own clock: it begins to write when its own prompt is read, while longer prompts are still
    being read, and it yields NOTHING before and after. A row ends at the token `end`, which is not yielded. The
    chances of row r's n-th token depend on (seed, r, n) alone, not on the other rows.
    """
    if not prompts or not all(prompts):
        raise WeftError("a prompt has no token", expected="at least one token to start from in every row")
    rows = len(prompts)
    uniforms = torch.from_numpy(np.stack([np.random.default_rng((seed, row)).random(tokens) for row in range(rows)]))
    lengths = np.array([len(prompt) for prompt in prompts])
    written = np.zeros(rows, dtype=int)
    ended = np.full(rows, tokens == 0)
    state = stepper.start(rows)
    ids = torch.tensor([prompt[0] for prompt in prompts])
    time = 0
    while not ended.all():
        log_probs, state = stepper.step(ids, state)
        time += 1
        writing = (time >= lengths) & ~ended
        new = np.full(rows, NOTHING)
        if writing.any():
            log_probs = log_probs.cpu().clone()
            log_probs[:, list(banned)] = -torch.inf
            chosen = choose(log_probs, uniforms[torch.arange(rows), torch.from_numpy(written % tokens)]).numpy()
            ended |= writing & (chosen == end)
            new[writing & ~ended] = chosen[writing & ~ended]
            written[writing & ~ended] += 1
            ended |= written >= tokens
            yield new.tolist()
        next_prompt = [prompt[time] if time < len(prompt) else 0 for prompt in prompts]
        ids = torch.from_numpy(np.where(time < lengths, next_prompt, np.maximum(new, 0)))
