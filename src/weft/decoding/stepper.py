"""The interface between decoding and a model."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Stepper(Protocol):
    """A model of the next token given the tokens before it: a recurrent model, an n-gram, an HMM.

    The state goes in and comes out; a stepper keeps no hidden state of its own. R is the number of rows.
    """

    def initial_state(self, rows: int) -> Any:
        """Returns the state of `rows` sequences before any token."""
        ...

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads one token in each row.

        Args:
            ids: (R,) token ids.
            state: the state before the tokens; it is not modified.

        Returns:
            The log-probabilities (R, V) of the next token, and the state after the tokens.
        """
        ...

    def select(self, state: Any, rows: Tensor) -> Any:
        """Returns the state of the given rows, in that order. Rows may repeat; the state passed in is not modified."""
        ...
