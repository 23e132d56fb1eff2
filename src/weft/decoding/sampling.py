"""Generation: one continuation of each prompt, greedy or sampled."""

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
    """Selects the next token of each row."""

    def __call__(self, log_probs: Tensor, uniforms: Tensor) -> Tensor:
        """Maps log-probabilities (R, V) and one random number in [0, 1) per row, (R,), to token ids (R,)."""
        ...


def greedy(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """Selects the most probable token; the lowest id in a tie. A `Sampler`.

    Args:
        log_probs: (R, V) log-probabilities of the next token.
        uniforms: (R,) random numbers, which are not used.
    """
    return log_probs.argmax(-1)


@dataclass(frozen=True)
class Sample:
    """Samples the next token. A `Sampler`.

    The distribution is sharpened or flattened by the temperature, then restricted to the `top_k` most probable tokens,
    then to the smallest set whose probability reaches `top_p` (nucleus sampling, Holtzman et al. 2020). The uniform
    number is inverted through the cumulative distribution in vocabulary order, so equal numbers give equal tokens.

    Args:
        temperature: divides the log-probabilities; below 1 sharpens the distribution.
        top_k: number of tokens to sample from; 0 means all.
        top_p: probability mass to sample from.

    Raises:
        WeftError: a parameter is out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise WeftError(f"temperature is {self.temperature}", expected="more than 0", hint="`sampler=greedy`")
        if self.top_k < 0:
            raise WeftError(f"top_k is {self.top_k}", expected="0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            raise WeftError(f"top_p is {self.top_p}", expected="more than 0, at most 1")

    def __call__(self, log_probs: Tensor, uniforms: Tensor) -> Tensor:
        probs = torch.softmax(log_probs.double() / self.temperature, -1)  # (R, V)
        if 0 < self.top_k < probs.shape[-1] or self.top_p < 1:
            ordered, order = probs.sort(dim=-1, descending=True, stable=True)
            if self.top_k:
                ordered[:, self.top_k :] = 0
                ordered /= ordered.sum(-1, keepdim=True)
            mass_before = ordered.cumsum(-1) - ordered
            ordered[mass_before >= self.top_p] = 0
            probs = torch.zeros_like(probs).scatter(-1, order, ordered)
        cumulative = probs.cumsum(-1)
        chosen = torch.searchsorted(cumulative, uniforms.double()[:, None] * cumulative[:, -1:], right=True)[:, 0]
        # Rounding can push the number past the end: clamp to the last token of non-zero probability.
        last = probs.shape[-1] - 1 - (probs.flip(-1) > 0).int().argmax(-1)
        return torch.minimum(chosen, last)


class SequenceSampler(Protocol):
    """Samples and reads many tokens in one call, without returning to Python for each of them."""

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
        """Reads ids (R,), then samples as `Sample` does, and reads, one token for each column of uniforms (R, N).

        Returns:
            The tokens (R, N), NO_TOKEN from a row's end on, and the state. The last token has not been read yet.
        """
        ...


@runtime_checkable
class SequenceStepper(Protocol):
    """A `Stepper` that may offer a `SequenceSampler`."""

    def sampler(self, rows: int) -> SequenceSampler | None:
        """Returns a sampler for that many rows with the current weights, or None if there is none."""
        ...


CHUNK = 32  # tokens that a SequenceSampler samples before they are yielded: few enough to watch them appear
NO_TOKEN = -1  # in a row of `generate`: it is still reading its prompt, or has ended


def generate(
    stepper: Stepper,
    prompts: Sequence[Sequence[int]],
    sampler: Sampler,
    *,
    tokens: int,
    seed: int = 0,
    banned: Sequence[int] = (),
    end: int | None = None,
) -> Iterator[list[int]]:
    """Continues every prompt by up to `tokens` tokens.

    Each row has its own clock: it starts to write as soon as its own prompt has been read, even while longer prompts
    are still being read. The random number of row r's n-th token depends on (seed, r, n) alone, not on the other rows.

    Args:
        stepper: the model.
        prompts: token ids, at least one in every row.
        sampler: `greedy`, a `Sample`, or another `Sampler`.
        tokens: the maximum number of new tokens in each row.
        seed: the random seed.
        banned: ids that are never generated.
        end: the id that ends a row; it is not yielded.

    Yields:
        The new token of each row, step by step; NO_TOKEN before a row starts to write and after its end.

    Raises:
        WeftError: a prompt is empty.
    """
    if not prompts or not all(prompts):
        raise WeftError("a prompt has no token", expected="at least one token to start from in every row")
    rows = len(prompts)
    uniforms = torch.from_numpy(np.stack([np.random.default_rng((seed, row)).random(tokens) for row in range(rows)]))
    every = torch.arange(rows)
    lengths = np.array([len(prompt) for prompt in prompts])
    written = np.zeros(rows, dtype=int)
    ended = np.full(rows, tokens == 0)
    sample = Sample(top_k=1) if sampler is greedy else sampler
    fast = stepper.sampler(rows) if isinstance(stepper, SequenceStepper) and isinstance(sample, Sample) else None

    def accept(chosen: np.ndarray[Any, np.dtype[Any]]) -> list[int]:
        """Records the tokens chosen for the rows that are writing, and returns them."""
        writing = (time >= lengths) & ~ended
        np.logical_or(ended, writing & ((chosen == end) | (chosen == NO_TOKEN)), out=ended)
        new = np.where(writing & ~ended, chosen, NO_TOKEN)
        np.add(written, writing & ~ended, out=written)
        np.logical_or(ended, written >= tokens, out=ended)
        return [int(token) for token in new]

    state = stepper.initial_state(rows)
    ids = torch.tensor([prompt[0] for prompt in prompts])
    time = 0
    while not ended.all():
        if fast is not None and isinstance(sample, Sample) and time + 1 >= lengths.max():
            # Every row has read its prompt except for the current token.
            columns = torch.arange(min(CHUNK, tokens - int(written[~ended].min())))
            positions = (torch.from_numpy(written)[:, None] + columns).clamp(max=tokens - 1)  # (R, N)
            many, state = fast.sample(
                ids,
                state,
                uniforms.gather(1, positions),
                temperature=sample.temperature,
                top_k=sample.top_k,
                top_p=sample.top_p,
                banned=banned,
                end=end,
            )
            time += len(columns)
            for chosen in many.numpy().T:
                if not ended.all():
                    yield accept(chosen)
            ids = many[:, -1].clamp(min=0)
            continue
        log_probs, state = stepper.step(ids, state)
        time += 1
        new = [NO_TOKEN] * rows
        if ((time >= lengths) & ~ended).any():
            log_probs = log_probs.cpu().clone()
            log_probs[:, list(banned)] = -torch.inf
            now = uniforms[every, torch.from_numpy(written).clamp(max=tokens - 1)]
            new = accept(sampler(log_probs, now).numpy())
            yield new
        ids = torch.tensor(
            [prompt[time] if time < len(prompt) else max(token, 0) for prompt, token in zip(prompts, new, strict=True)]
        )
