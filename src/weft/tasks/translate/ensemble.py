"""Several translators with different seeds in the place of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.data.buckets import Padded
from weft.tasks.ensemble import Ensemble, mean_log_probs
from weft.tasks.translate.attention_stepper import AttentionStepper
from weft.tasks.translate.model import TranslationBatch, TranslationStepper, Translator


class TranslatorEnsemble(Ensemble[Translator]):
    """Averages the probabilities of each next token, and the attention weights."""

    @property
    def has_attention(self) -> bool:
        """Whether the decoders have attention."""
        return self.members[0].has_attention

    @torch.no_grad()
    def token_losses(self, batch: TranslationBatch) -> Tensor:
        """Computes the cross-entropy of every target token, (B, T); 0 in the padding."""
        return -mean_log_probs([-member.token_losses(batch) for member in self.members])

    @torch.no_grad()
    def attention_weights(self, batch: TranslationBatch) -> Tensor:
        """Computes the mean attention weights of each target token over the source tokens, (B, T, S)."""
        return torch.stack([member.attention_weights(batch) for member in self.members]).mean(0)

    def stepper(self, sources: Padded) -> EnsembleStepper:
        """Encodes the sources and returns a `Stepper` over their translations."""
        return EnsembleStepper([member.stepper(sources) for member in self.members])


class EnsembleState(NamedTuple):
    """The states of all members, and their mean attention weights in the last step, if these are recorded."""

    members: tuple[Any, ...]
    weights: Tensor | None = None  # (R, S)


@dataclass(frozen=True)
class EnsembleStepper:
    """A `Stepper` that averages the probabilities of others."""

    steppers: Sequence[TranslationStepper | AttentionStepper]

    def with_attention(self) -> EnsembleStepper:
        """The stepper whose state has the attention weights of the last step."""
        return EnsembleStepper([AttentionStepper(one) for one in self.steppers if isinstance(one, TranslationStepper)])

    def initial_state(self, rows: int) -> EnsembleState:
        return EnsembleState(tuple(one.initial_state(rows) for one in self.steppers))

    def step(self, ids: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Reads ids (R,). Returns log-probabilities (R, V) of the next token and the new state."""
        found: list[Any] = [one.step(ids, own) for one, own in zip(self.steppers, state.members, strict=True)]
        states = tuple(after for _, after in found)
        recorded = [after.weights for after in states if getattr(after, "weights", None) is not None]
        weights = torch.stack(recorded).mean(0) if recorded else None
        return mean_log_probs([log_probs for log_probs, _ in found]), EnsembleState(states, weights)

    def select(self, state: EnsembleState, rows: Tensor) -> EnsembleState:
        """Returns the state of the given rows, which may repeat."""
        found: list[Any] = list(zip(self.steppers, state.members, strict=True))
        return EnsembleState(tuple(one.select(own, rows) for one, own in found))
