"""From what the encoder ends with to what the decoder begins with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.nn import Stack, map_state


class Straight(nn.Module):
    """Encoder and decoder are alike, and the last states are the first ones (Sutskever et al. 2014)."""

    def forward(self, states: tuple[State, ...]) -> tuple[State, ...]:
        return states


class Bridge(nn.Module):
    """Sizes, cells, directions or layers differ: each decoder layer begins with tanh(W s + b).

    s is all that a layer of the encoder ends with, both directions and memory cells included: the layer of the same
    height, or the top one for decoder layers that stand higher.
    """

    def __init__(self, encoder: Stack, decoder: Stack) -> None:
        super().__init__()
        sizes = [sum(part.shape[-1] for part in _parts(layer)) for layer in encoder.initial_state(1)]
        wanted = decoder.initial_state(1)
        self.kinds = [type(layer) for layer in wanted]
        self.sizes = [[part.shape[-1] for part in _parts(layer)] for layer in wanted]
        self.lines = nn.ModuleList(
            nn.Linear(sizes[min(height, len(sizes) - 1)], sum(parts)) for height, parts in enumerate(self.sizes)
        )

    def forward(self, states: tuple[State, ...]) -> tuple[State, ...]:
        begun = []
        for height, (kind, sizes, line) in enumerate(zip(self.kinds, self.sizes, self.lines, strict=True)):
            below = torch.cat(_parts(states[min(height, len(states) - 1)]), -1)
            begun.append(kind(*torch.split(torch.tanh(line(below)), sizes, -1)))
        return tuple(begun)


def make_bridge(encoder: Stack, decoder: Stack) -> Straight | Bridge:
    """The way from one to the other: straight wherever that is possible."""

    def shape(stack: Stack) -> list[object]:
        return [(type(layer), [part.shape for part in _parts(layer)]) for layer in stack.initial_state(1)]

    return Straight() if shape(encoder) == shape(decoder) else Bridge(encoder, decoder)


def _parts(state: State) -> list[Tensor]:
    found: list[Tensor] = []
    map_state(lambda part: found.append(part) or part, state)  # type: ignore[func-returns-value]
    return found
