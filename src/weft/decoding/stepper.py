"""What decoding asks of a model."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Stepper(Protocol):
    """Anything that tells the next token's chances from those before: a recurrent model, an n-gram, an HMM."""

    def initial_state(self, rows: int) -> Any:
        """The state before any token."""
        ...

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read one token a row, (R,); give log-probabilities (R, V) of the next, and the state after it."""
        ...

    def select(self, state: Any, rows: Tensor) -> Any:
        """The state of those rows, in that order; rows may repeat. The state given stays as it is."""
        ...
