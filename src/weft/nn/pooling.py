"""From the states of all tokens of a text to one vector for the whole.

Every pooling also says how much each token counts for it: weights that sum to 1 over a text, and are 0 past its end.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Pooled(NamedTuple):
    vector: Tensor  # (B, P)
    weights: Tensor  # (B, T)


class Pooling(nn.Module):
    """Outputs (B, T, H) and which of them are within their rows (B, T) -> Pooled."""

    def __init__(self, ahead: int, back: int) -> None:
        """`ahead` units of H belong to the forward direction, `back` to the backward one, if there is one."""
        super().__init__()
        self.ahead, self.output_size = ahead, ahead + back


class LastPooling(Pooling):
    """Where each direction ends: the forward state at a row's last token, the backward state at its first.

    The weights are shared by these two tokens.
    """

    def forward(self, outputs: Tensor, inside: Tensor) -> Pooled:
        rows = torch.arange(len(outputs), device=outputs.device)
        last = (inside.sum(1) - 1).clamp(min=0)
        vector = torch.cat([outputs[rows, last, : self.ahead], outputs[:, 0, self.ahead :]], -1)
        share = self.ahead / self.output_size
        weights = outputs.new_zeros(inside.shape)
        weights[rows, last] += share
        weights[:, 0] += 1 - share
        return Pooled(vector, weights * inside)


class MeanPooling(Pooling):
    """The mean of all states; every token counts the same."""

    def forward(self, outputs: Tensor, inside: Tensor) -> Pooled:
        weights = inside.to(outputs.dtype) / inside.sum(1, keepdim=True).clamp(min=1)
        return Pooled(_weighted(weights, outputs), weights)


class MaxPooling(Pooling):
    """The largest value of each unit; a token counts by the share of units that are largest there."""

    def forward(self, outputs: Tensor, inside: Tensor) -> Pooled:
        vector, places = _largest(outputs, inside)
        weights = outputs.new_zeros(inside.shape)
        weights.scatter_add_(1, places, torch.full_like(vector, 1 / self.output_size))
        return Pooled(vector, weights * inside)


class AttentionPooling(Pooling):
    """A mean with learned weights: softmax over the tokens of v tanh(W h + b) (Yang et al. 2016)."""

    def __init__(self, ahead: int, back: int) -> None:
        super().__init__(ahead, back)
        self.key = nn.Linear(self.output_size, self.output_size)
        self.query = nn.Parameter(torch.randn(self.output_size) * self.output_size**-0.5)

    def forward(self, outputs: Tensor, inside: Tensor) -> Pooled:
        scores = torch.tanh(self.key(outputs)) @ self.query  # (B, T)
        # The lowest finite score, not minus infinity: a row without tokens would be NaN.
        weights = scores.masked_fill(~inside, torch.finfo(scores.dtype).min).softmax(1) * inside
        return Pooled(_weighted(weights, outputs), weights)


POOLINGS: dict[str, type[Pooling]] = {
    "last": LastPooling,
    "mean": MeanPooling,
    "max": MaxPooling,
    "attention": AttentionPooling,
}


def _weighted(weights: Tensor, outputs: Tensor) -> Tensor:
    """(B, T), (B, T, H) -> (B, H)."""
    return torch.einsum("bt,bth->bh", weights, outputs)


def _largest(outputs: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Of each unit the largest value within the row and where it is, (B, H) each; zeros where a row has no tokens."""
    vector, places = outputs.masked_fill(~inside.unsqueeze(-1), -torch.inf).max(1)
    return vector.masked_fill(~inside.any(1, keepdim=True), 0.0), places
