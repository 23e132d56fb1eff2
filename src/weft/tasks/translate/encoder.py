"""The encoder of the translation model: a vector for each source token, and a final state."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.data.buckets import Padded
from weft.engine import Embedded
from weft.nn import BothDirections, Stack


class Encoded(NamedTuple):
    """Encoded sources."""

    outputs: Tensor  # (B, S, M), a vector for each token
    state: tuple[State, ...]  # the final state of each layer, lowest first
    lengths: Tensor  # (B,)

    @property
    def context(self) -> Tensor:
        """The final hidden state of the top layer, both directions concatenated, (B, M)."""
        top = self.state[-1]
        context: Tensor = torch.cat([side.h for side in top], -1) if isinstance(top, BothDirections) else top.h
        return context


def make_embedding(vocabulary_size: int, size: int) -> nn.Embedding:
    """Builds an embedding with small initial values.

    Tied output weights need small values, and large inputs would saturate states and attention.
    """
    embedding = nn.Embedding(vocabulary_size, size)
    nn.init.normal_(embedding.weight, std=0.1)
    return embedding


class Encoder(nn.Module):
    """An embedding and a stack of layers in one or both directions."""

    def __init__(self, vocabulary_size: int, stack: Stack) -> None:
        super().__init__()
        self.embedding, self.stack = make_embedding(vocabulary_size, stack.input_size), stack
        self.output_size = stack.output_size

    def forward(self, sources: Padded) -> Encoded:
        """Encodes padded token ids (B, S)."""
        x = Embedded.of(sources.ids, self.embedding.weight, self.stack.dropout, self.training)
        outputs, state = self.stack(x, lengths=sources.lengths)
        return Encoded(outputs, state, sources.lengths.to(outputs.device))
