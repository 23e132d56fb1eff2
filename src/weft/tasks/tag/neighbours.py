"""The auxiliary loss of predicting neighbouring words, or characters in segmentation.

Rei 2017, "Semi-supervised multitask learning for sequence labeling".

The forward direction of a bidirectional layer predicts the next word, the backward direction the previous one. Every
word of a text is a target, so the layer learns similarities of words also from sentences tagged O throughout. The
predictions are not used after training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from weft.engine import linear_cross_entropy

# By the task: so many most frequent words or characters are targets of their own; all others share the unknown word.
NEIGHBOURS = {"tags": 3000, "segments": 1000}
HIDDEN_SIZE = 50  # units between a state and the words


class NeighbourWordLoss(nn.Module):
    """The cross-entropy of neighbouring words, predicted from the outputs (B, T, 2H) of a bidirectional layer.

    Args:
        hidden_size: H, the units of each direction.
        words: how many words are predicted, the most frequent ones. All others count as the unknown word.
    """

    def __init__(self, hidden_size: int, words: int) -> None:
        super().__init__()
        self.hidden_size, self.words = hidden_size, words
        self.next_word, self.previous_word = (
            nn.Sequential(nn.Linear(hidden_size, HIDDEN_SIZE), nn.Tanh(), nn.Linear(HIDDEN_SIZE, self.words))
            for _ in range(2)
        )

    def forward(self, outputs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Computes the summed cross-entropy of all next and previous words.

        Args:
            outputs: (B, T, 2H), the forward direction first.
            ids: (B, T) word ids.
            lengths: (B,).
        """
        ids, lengths = ids.to(outputs.device), lengths.to(outputs.device)
        ids = ids.masked_fill(ids >= self.words, 0)
        pairs = torch.arange(1, ids.shape[1], device=ids.device) < lengths[:, None]  # (B, T - 1): both words exist
        previous, following = ids[:, :-1][pairs], ids[:, 1:][pairs]
        forward = outputs[:, :-1, : self.hidden_size][pairs]
        backward = outputs[:, 1:, self.hidden_size :][pairs]
        return _cross_entropy(self.next_word, forward, following) + _cross_entropy(
            self.previous_word, backward, previous
        )


def _cross_entropy(predictor: nn.Sequential, states: Tensor, words: Tensor) -> Tensor:
    states, last = predictor[:-1](states), predictor[-1]
    assert isinstance(last, nn.Linear)
    return linear_cross_entropy(states[None], last.weight, last.bias, words[None], reduction="sum")
