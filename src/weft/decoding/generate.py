"""One continuation of every prompt: the likeliest token each time, or one by chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from weft.decoding.stepper import Stepper
from weft.errors import WeftError


class Sampler(Protocol):
    """Something that chooses and reads many tokens by itself, without coming back for each one."""

    def sample(
        self,
        ids: Tensor,
        state: Any,
        uniforms: Tensor,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        banned: Sequence[int],
        end: int | None,
    ) -> tuple[Tensor, Any]:
        """Read ids (R,), then choose and read a token for each column of uniforms (R, N), as `Sample` chooses.

        Gives the tokens (R, N), NOTHING from a row's end on, and the state; the last token is not read yet.
        """
        ...


@runtime_checkable
class SelfSampling(Protocol):
    """A Stepper that may have a faster way to sample."""

    def sampler(self, rows: int) -> Sampler | None:
        """It, for that many rows, with the weights as they are now; None where there is none."""
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


AT_ONCE = 32  # tokens that a Sampler writes before they are handed on: few enough to be watched
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
    every = torch.arange(rows)
    lengths = np.array([len(prompt) for prompt in prompts])
    written = np.zeros(rows, dtype=int)
    ended = np.full(rows, tokens == 0)
    drawn = Sample(top_k=1) if choose is greedy else choose
    sampler = stepper.sampler(rows) if isinstance(stepper, SelfSampling) and isinstance(drawn, Sample) else None

    def settle(chosen: np.ndarray[Any, np.dtype[Any]]) -> list[int]:
        """Take the tokens chosen for the rows that are writing."""
        writing = (time >= lengths) & ~ended
        np.logical_or(ended, writing & ((chosen == end) | (chosen == NOTHING)), out=ended)
        new = np.where(writing & ~ended, chosen, NOTHING)
        np.add(written, writing & ~ended, out=written)
        np.logical_or(ended, written >= tokens, out=ended)
        return [int(token) for token in new]

    state = stepper.initial_state(rows)
    ids = torch.tensor([prompt[0] for prompt in prompts])
    time = 0
    while not ended.all():
        if sampler is not None and isinstance(drawn, Sample) and time + 1 >= lengths.max():
            # Every row has read its prompt but for the token at hand.
            columns = torch.arange(min(AT_ONCE, tokens - int(written[~ended].min())))
            places = (torch.from_numpy(written)[:, None] + columns).clamp(max=tokens - 1)  # (R, N)
            many, state = sampler.sample(
                ids,
                state,
                uniforms.gather(1, places),
                temperature=drawn.temperature,
                top_k=drawn.top_k,
                top_p=drawn.top_p,
                banned=banned,
                end=end,
            )
            time += len(columns)
            for chosen in many.numpy().T:
                if not ended.all():
                    yield settle(chosen)
            ids = many[:, -1].clamp(min=0)
            continue
        log_probs, state = stepper.step(ids, state)
        time += 1
        new = [NOTHING] * rows
        if ((time >= lengths) & ~ended).any():
            log_probs = log_probs.cpu().clone()
            log_probs[:, list(banned)] = -torch.inf
            new = settle(choose(log_probs, uniforms[every, torch.from_numpy(written).clamp(max=tokens - 1)]).numpy())
            yield new
        ids = torch.tensor(
            [prompt[time] if time < len(prompt) else max(token, 0) for prompt, token in zip(prompts, new, strict=True)]
        )
