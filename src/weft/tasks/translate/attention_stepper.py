"""A stepper that keeps the attention weights of each step, so that a search can return those of its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.tasks.mixture import MEAN, Mixture
from weft.tasks.translate.decoder import Decoded, DecoderState
from weft.tasks.translate.model import TranslationStepper


class AttentionState(NamedTuple):
    """The decoder's state, and the attention weights of the step that led to it."""

    decoder: DecoderState
    weights: Tensor | None  # (R, S); None before the first step


@dataclass(frozen=True)
class AttentionStepper:
    """A `TranslationStepper` whose state has the attention weights of the last step."""

    stepper: TranslationStepper

    def initial_state(self, rows: int) -> AttentionState:
        return AttentionState(self.stepper.initial_state(rows), None)

    @torch.no_grad()
    def step(self, ids: Tensor, state: AttentionState) -> tuple[Tensor, AttentionState]:
        """Reads ids (R,). Returns log-probabilities (R, V) of the next token."""
        decoded = self._decode(ids, state)
        return F.log_softmax(self.stepper.model.readout(decoded.outputs[:, 0]), -1), _state(decoded)

    @torch.no_grad()
    def top_k(self, ids: Tensor, state: AttentionState, k: int) -> tuple[Tensor, Tensor, AttentionState]:
        """Reads ids (R,). Returns log-probabilities and ids (R, k) of the most probable next tokens."""
        decoded = self._decode(ids, state)
        outputs = self.stepper.model.project_outputs(decoded.outputs[:, 0])
        return *self.stepper.output(outputs, min(k, self.stepper.output.size)), _state(decoded)

    def select(self, state: AttentionState, rows: Tensor) -> AttentionState:
        return AttentionState(self.stepper.select(state.decoder, rows), None)

    def _decode(self, ids: Tensor, state: AttentionState) -> Decoded:
        model = self.stepper.model
        decoded: Decoded = model.decoder(model.embed(ids[:, None]), state.decoder)
        return decoded


def _state(decoded: Decoded) -> AttentionState:
    assert decoded.weights is not None, "a decoder without attention"
    return AttentionState(decoded.state, decoded.weights[:, 0])


def with_attention(stepper: TranslationStepper | Mixture[TranslationStepper]) -> Any:
    """The stepper whose state has the attention weights of the last step."""
    if isinstance(stepper, Mixture):
        return Mixture([AttentionStepper(one) for one in stepper.models], stepper.rule)
    return AttentionStepper(stepper)


def last_weights(state: AttentionState | tuple[AttentionState, ...]) -> Tensor:
    """The attention weights (R, S) of the last step, for `beam_search(record=...)`; their mean, of several models."""
    states = (state,) if isinstance(state, AttentionState) else state
    return MEAN.join([one.weights for one in states if one.weights is not None])
