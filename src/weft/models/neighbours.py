"""Telling the words beside each place, as a second thing to learn (Rei 2017).

What goes ahead tells the next word, what goes back the one before. Every word of a text teaches that, so that a layer
learns what words are alike from sentences in which nothing is tagged but O. Once trained it is not asked any more.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from weft.engine import linear_cross_entropy

TOLD = 3000  # the most frequent words are told apart; all others are one
WIDTH = 50  # numbers between a state and the words


class Neighbours(nn.Module):
    """The two halves of a bidirectional layer's outputs (B, T, 2 H) to what the words beside them cost, in nats."""

    def __init__(self, hidden: int, words: int) -> None:
        super().__init__()
        self.hidden, self.told = hidden, min(words, TOLD)
        self.ahead, self.back = (
            nn.Sequential(nn.Linear(hidden, WIDTH), nn.Tanh(), nn.Linear(WIDTH, self.told)) for _ in range(2)
        )

    def forward(self, outputs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """The nats of all words but the first of each row told from the left, of all but the last from the right."""
        ids, lengths = ids.to(outputs.device), lengths.to(outputs.device)
        ids = ids.masked_fill(ids >= self.told, 0)
        both = torch.arange(1, ids.shape[1], device=ids.device) < lengths[:, None]  # (B, T - 1): a pair stands here
        before, after = ids[:, :-1][both], ids[:, 1:][both]
        left, right = outputs[:, :-1, : self.hidden][both], outputs[:, 1:, self.hidden :][both]
        return _nats(self.ahead, left, after) + _nats(self.back, right, before)


def _nats(teller: nn.Sequential, states: Tensor, words: Tensor) -> Tensor:
    states, last = teller[:-1](states), teller[-1]
    assert isinstance(last, nn.Linear)
    return linear_cross_entropy(states[None], last.weight, last.bias, words[None], reduction="sum")
