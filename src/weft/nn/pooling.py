"""Pooling: from the outputs of all tokens of a text to one vector.

Every pooling also returns the weight of each token: non-negative, summing to 1 over a text, 0 in the padding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Pooled(NamedTuple):
    """The result of a pooling; P is the size of its vector."""

    vector: Tensor  # (B, P)
    weights: Tensor  # (B, T)


class Pooling(nn.Module):
    """Base class: outputs (B, T, H) and a mask (B, T), true inside the rows, to `Pooled`.

    Args:
        forward_size: the units of the forward direction, the first ones of H.
        backward_size: the units of the backward direction; 0 if there is none.
    """

    def __init__(self, forward_size: int, backward_size: int) -> None:
        super().__init__()
        self.forward_size, self.output_size = forward_size, forward_size + backward_size


class LastPooling(Pooling):
    """The final output of each direction: forward at a row's last token, backward at its first.

    These two tokens share the weight in proportion to the sizes of the directions.
    """

    def forward(self, outputs: Tensor, inside: Tensor) -> Pooled:
        rows = torch.arange(len(outputs), device=outputs.device)
        last = (inside.sum(1) - 1).clamp(min=0)
        vector = torch.cat([outputs[rows, last, : self.forward_size], outputs[:, 0, self.forward_size :]], -1)
        forward_weight = self.forward_size / self.output_size
        weights = outputs.new_zeros(inside.shape)
        weights[rows, last] += forward_weight
        weights[:, 0] += 1 - forward_weight
        return Pooled(vector, weights * inside)


class MeanPooling(Pooling):
    """The mean of all outputs; every token has the same weight."""

    def forward(self, outputs: Tensor, inside: Tensor) -> Pooled:
        weights = inside.to(outputs.dtype) / inside.sum(1, keepdim=True).clamp(min=1)
        return Pooled(_weighted_sum(weights, outputs), weights)


class MaxPooling(Pooling):
    """The maximum of each unit over time; a token's weight is the fraction of units that have their maximum there."""

    def forward(self, outputs: Tensor, inside: Tensor) -> Pooled:
        vector, positions = _masked_max(outputs, inside)
        weights = outputs.new_zeros(inside.shape)
        weights.scatter_add_(1, positions, torch.full_like(vector, 1 / self.output_size))
        return Pooled(vector, weights * inside)


class AttentionPooling(Pooling):
    """A weighted mean with learned weights: softmax over the tokens of v^T tanh(W h + b).

    Yang et al. 2016, "Hierarchical attention networks for document classification".
    """

    def __init__(self, forward_size: int, backward_size: int) -> None:
        super().__init__(forward_size, backward_size)
        self.key = nn.Linear(self.output_size, self.output_size)
        self.query = nn.Parameter(torch.randn(self.output_size) * self.output_size**-0.5)

    def forward(self, outputs: Tensor, inside: Tensor) -> Pooled:
        scores = torch.tanh(self.key(outputs)) @ self.query  # (B, T)
        # The lowest finite number, not -inf, which would give NaN in a row without tokens.
        weights = scores.masked_fill(~inside, torch.finfo(scores.dtype).min).softmax(1) * inside
        return Pooled(_weighted_sum(weights, outputs), weights)


POOLINGS: dict[str, type[Pooling]] = {
    "last": LastPooling,
    "mean": MeanPooling,
    "max": MaxPooling,
    "attention": AttentionPooling,
}


def _weighted_sum(weights: Tensor, outputs: Tensor) -> Tensor:
    """(B, T), (B, T, H) -> (B, H)."""
    return torch.einsum("bt,bth->bh", weights, outputs)


def _masked_max(outputs: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the maximum of each unit inside the row and its position, (B, H) each; zeros in a row without tokens."""
    vector, positions = outputs.masked_fill(~inside.unsqueeze(-1), -torch.inf).max(1)
    return vector.masked_fill(~inside.any(1, keepdim=True), 0.0), positions
