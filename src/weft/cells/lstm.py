"""The long short-term memory cell."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from weft.cells.base import Cell, LSTMState, from_iterable, labelled


@from_iterable
@labelled(i="input gate", f="forget gate", g="candidate", o="output gate")
class LSTMGates(NamedTuple):
    """Input gate, forget gate, candidate, output gate; (B, H) each."""

    i: Tensor
    f: Tensor
    g: Tensor
    o: Tensor


class LSTMCell(Cell):
    """The long short-term memory cell with a forget gate.

        i = s(W_i x + U_i h)
        f = s(W_f x + U_f h)
        g = tanh(W_g x + U_g h)
        o = s(W_o x + U_o h)
        c' = f * c + i * g
        h' = o * tanh(c')

    Papers: Hochreiter and Schmidhuber 1997, "Long short-term memory"; the forget gate: Gers, Schmidhuber and Cummins
    2000, "Learning to forget". Convention: torch.nn.LSTMCell. Block order: i, f, g, o.
    """

    blocks = 4
    state_type = LSTMState

    def step(self, x_proj: Tensor, state: LSTMState) -> tuple[LSTMState, LSTMGates]:
        return gated_memory(x_proj + self.recur(state.h), state.c)


def gated_memory(blocks: Tensor, c: Tensor) -> tuple[LSTMState, LSTMGates]:
    """Computes the gates from their blocks (B, 4*H) before the activation functions, and the new state."""
    i, f, g, o = blocks.chunk(4, -1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    new = f * c + i * g
    return LSTMState(o * torch.tanh(new), new), LSTMGates(i, f, g, o)
