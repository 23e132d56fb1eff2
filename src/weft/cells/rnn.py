"""The plain recurrent cells, and the cell without recurrence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.cells.base import Candidate, Cell, HiddenState, InputGatedCell
from weft.errors import WeftError


class RNNCell(Cell):
    """The Elman cell.

        h' = tanh(W x + U h)

    Paper: Elman 1990, "Finding structure in time". Convention: torch.nn.RNNCell. Blocks: one.

    The gates of a step are `Candidate(u)` with u = h'.

    Args:
        input_size: I, the number of input features.
        hidden_size: H, the number of hidden units.
        bias: whether the cell has biases.
        nonlinearity: "tanh"; with "relu", torch's name for another cell, the result is a `ReLURNNCell`.
        device: of the parameters, as in torch.nn.
        dtype: of the parameters, as in torch.nn.
    """

    blocks = 1
    nonlinearity = "tanh"

    def __new__(cls, *arguments: Any, **named: Any) -> RNNCell:
        wanted = named.get("nonlinearity", arguments[3] if len(arguments) > 3 else cls.nonlinearity)
        return super().__new__(ReLURNNCell if cls is RNNCell and wanted == "relu" else cls)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in (None, self.nonlinearity):
            raise WeftError(
                f"{type(self).__name__}: nonlinearity is {nonlinearity!r}",
                expected='"tanh" or "relu"' if type(self) is RNNCell else repr(self.nonlinearity),
            )
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, Candidate]:
        u = torch.tanh(x_proj + self.recur(state.h))
        return HiddenState(u), Candidate(u)


class ReLURNNCell(RNNCell):
    """The Elman cell with a rectified linear unit.

        h' = max(0, W x + U h)

    Paper: Le, Jaitly and Hinton 2015, "A simple way to initialize recurrent networks of rectified linear units" (with
    another initialisation). Convention: torch.nn.RNNCell with nonlinearity="relu". Blocks: one.
    """

    nonlinearity = "relu"

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, Candidate]:
        u = torch.relu(x_proj + self.recur(state.h))
        return HiddenState(u), Candidate(u)


class StatelessCell(InputGatedCell):
    """A hidden layer without recurrence, a baseline for the other cells.

        u = tanh(W x);  h' = u

    It is a GRU whose reset and update gates are zero: an MLP of the current input. Blocks: one.
    """

    blocks = 1

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, Candidate]:
        u = torch.tanh(x_proj)
        return HiddenState(u), Candidate(u)
