"""The bridge: from the encoder's final state to the decoder's initial state."""

from __future__ import annotations

import torch
from torch import nn

from weft.cells import State
from weft.nn import Stack
from weft.nn.states import state_leaves


class IdentityBridge(nn.Module):
    """The final state is the initial state, because encoder and decoder have the same shape (Sutskever et al. 2014)."""

    def forward(self, states: tuple[State, ...]) -> tuple[State, ...]:
        return states


class LinearBridge(nn.Module):
    """Each decoder layer starts with tanh(W s + b), where the shapes of encoder and decoder differ.

    s is the complete final state of an encoder layer, both directions and memory cells included: of the layer at the
    same height, or of the top layer for decoder layers above it.
    """

    def __init__(self, encoder: Stack, decoder: Stack) -> None:
        super().__init__()
        sizes = [sum(part.shape[-1] for part in state_leaves(layer)) for layer in encoder.initial_state(1)]
        wanted = decoder.initial_state(1)
        self.kinds = [type(layer) for layer in wanted]
        self.sizes = [[part.shape[-1] for part in state_leaves(layer)] for layer in wanted]
        self.linears = nn.ModuleList(
            nn.Linear(sizes[min(height, len(sizes) - 1)], sum(parts)) for height, parts in enumerate(self.sizes)
        )

    def forward(self, states: tuple[State, ...]) -> tuple[State, ...]:
        initial = []
        for height, (kind, sizes, linear) in enumerate(zip(self.kinds, self.sizes, self.linears, strict=True)):
            below = torch.cat(state_leaves(states[min(height, len(states) - 1)]), -1)
            initial.append(kind(*torch.split(torch.tanh(linear(below)), sizes, -1)))
        return tuple(initial)


def make_bridge(encoder: Stack, decoder: Stack) -> IdentityBridge | LinearBridge:
    """Builds the identity if the shapes of the states agree, else a linear bridge."""

    def shape(stack: Stack) -> list[object]:
        return [(type(layer), [part.shape for part in state_leaves(layer)]) for layer in stack.initial_state(1)]

    return IdentityBridge() if shape(encoder) == shape(decoder) else LinearBridge(encoder, decoder)
