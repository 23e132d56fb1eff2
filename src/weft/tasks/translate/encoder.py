"""The encoder of a translator: a source, read once, as a vector for each of its tokens and a last state."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.data.buckets import Padded
from weft.engine import Embedded
from weft.nn import BothDirections, Stack


class Encoded(NamedTuple):
    """What an encoder knows of some sources."""

    outputs: Tensor  # (B, S, M) for each token
    state: tuple[State, ...]  # of each layer, lowest first, after the whole source
    lengths: Tensor  # (B,)

    @property
    def context(self) -> Tensor:
        """The whole source as one vector (B, M): what the top layer ends with, both directions side by side."""
        top = self.state[-1]
        context: Tensor = torch.cat([side.h for side in top], -1) if isinstance(top, BothDirections) else top.h
        return context


def make_embedding(vocabulary_size: int, size: int) -> nn.Embedding:
    """An embedding with small initial values.

    It also serves as output weights, and large inputs would saturate states and attention, which slows learning.
    """
    embedding = nn.Embedding(vocabulary_size, size)
    nn.init.normal_(embedding.weight, std=0.1)
    return embedding


class Encoder(nn.Module):
    """Token ids (B, S) through an embedding and a stack of layers of one or both directions."""

    def __init__(self, vocabulary_size: int, stack: Stack) -> None:
        super().__init__()
        self.embedding, self.stack = make_embedding(vocabulary_size, stack.input_size), stack
        self.output_size = stack.output_size

    def forward(self, sources: Padded) -> Encoded:
        x = Embedded.of(sources.ids, self.embedding.weight, self.stack.dropout, self.training)
        outputs, state = self.stack(x, lengths=sources.lengths)
        return Encoded(outputs, state, sources.lengths.to(outputs.device))
