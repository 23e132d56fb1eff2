"""The encoder of a translator: a source, read once, as a vector for each of its tokens and a last state."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.buckets import Padded
from weft.cells import State
from weft.recurrent import Both, Stack


class Encoded(NamedTuple):
    """What an encoder knows of some sources."""

    outputs: Tensor  # (B, S, M) for each token
    state: tuple[State, ...]  # of each layer, lowest first, after the whole source
    lengths: Tensor  # (B,)

    @property
    def context(self) -> Tensor:
        """The whole source as one vector (B, M): what the top layer ends with, both directions side by side."""
        top = self.state[-1]
        context: Tensor = torch.cat([side.h for side in top], -1) if isinstance(top, Both) else top.h
        return context


class Embedding(nn.Module):
    """Numbers for each token, kept small and read strong: sqrt(E) w, with w of variance 1 / E at the start.

    Small, they can be output weights too; strong, they count as much as the state does. And a step of the optimizer,
    which is the same for all weights, changes what a token stands for much more than with w of variance 1, so that
    rare tokens find their meaning too.
    """

    def __init__(self, vocabulary_size: int, size: int) -> None:
        super().__init__()
        self.weight, self.strength = nn.Parameter(torch.empty(vocabulary_size, size)), math.sqrt(size)
        nn.init.normal_(self.weight, std=size**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.strength * F.embedding(ids.to(self.weight.device), self.weight)


class Encoder(nn.Module):
    """Token ids (B, S) through an embedding and a stack of layers of one or both directions."""

    def __init__(self, vocabulary_size: int, stack: Stack) -> None:
        super().__init__()
        self.embedding, self.stack = Embedding(vocabulary_size, stack.input_size), stack
        self.output_size = stack.output_size

    def forward(self, sources: Padded) -> Encoded:
        x = F.dropout(self.embedding(sources.ids), self.stack.dropout, self.training)
        outputs, state = self.stack(x, lengths=sources.lengths)
        return Encoded(outputs, state, sources.lengths.to(x.device))
