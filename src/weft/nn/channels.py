"""The lowest layer of models that read series: from the values of channels to vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from weft.engine.dropout import dropout


class ChannelLayer(nn.Module):
    """Scaled values (B, T, C) -> a linear map of them (B, T, E), with dropout; with size 0 the values.

    A missing value, NaN, is read as 0, the mean of its channel, beside a mask with 1 where a value is missing.

    Args:
        channels: C.
        size: E.
        rate: the dropout rate of the outputs.
    """

    def __init__(self, channels: int, size: int, rate: float = 0.0) -> None:
        super().__init__()
        self.rate, self.output_size = rate, size or 2 * channels
        self.projection = nn.Linear(2 * channels, size) if size else None
        if self.projection is not None:
            with torch.no_grad():  # values that are never missing in training have no say when they are
                self.projection.weight[:, channels:] = 0

    def forward(self, values: Tensor) -> Tensor:
        return dropout(self.vectors(values, values.dtype), self.rate, self.training)

    def vectors(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """What the stack reads of the values (B, T, C)."""
        missing = values.isnan()
        inputs = torch.cat([values.masked_fill(missing, 0), missing.to(values.dtype)], -1)
        if self.projection is None:
            return inputs.to(dtype)
        found: Tensor = self.projection(inputs.to(self.projection.weight.dtype))
        return found
