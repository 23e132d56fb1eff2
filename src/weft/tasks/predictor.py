"""What all predictors have in common."""

from __future__ import annotations

from typing import Any

from torch import nn

from weft.training.run import Run


class TaskPredictor:
    """A trained model, ready for use."""

    run: Run
    model: Any

    def __repr__(self) -> str:
        weights = ""
        if isinstance(self.model, nn.Module):
            weights = f", {sum(parameter.numel() for parameter in self.model.parameters()):,} weights"
        return f"{type(self).__name__}({str(self.run.path)!r}{weights})"
