"""The plain recurrent cells, and the cell without recurrence."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.cells.base import Candidate, Cell, HiddenState


class RNNCell(Cell):
    """The Elman cell.

        h' = tanh(W x + U h)

    Paper: Elman 1990, "Finding structure in time". Convention: torch.nn.RNNCell. Blocks: one.

    The gates of a step are `Candidate(u)` with u = h'.
    """

    blocks = 1

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, Candidate]:
        u = torch.tanh(x_proj + self.recur(state.h))
        return HiddenState(u), Candidate(u)


class ReLURNNCell(Cell):
    """The Elman cell with a rectified linear unit.

        h' = max(0, W x + U h)

    Paper: Le, Jaitly and Hinton 2015, "A simple way to initialize recurrent networks of rectified linear units" (with
    another initialisation). Convention: torch.nn.RNNCell with nonlinearity="relu". Blocks: one.
    """

    blocks = 1

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, Candidate]:
        u = torch.relu(x_proj + self.recur(state.h))
        return HiddenState(u), Candidate(u)


class StatelessCell(Cell):
    """A hidden layer without recurrence, a baseline for the other cells.

        u = tanh(W x);  h' = u

    It is a GRU whose reset and update gates are zero: an MLP of the current input. It has no recurrent weights, so
    `bias_ih` is its only bias. Blocks: one.
    """

    blocks = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        del self.weight_hh, self.bias_hh

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, Candidate]:
        u = torch.tanh(x_proj)
        return HiddenState(u), Candidate(u)
