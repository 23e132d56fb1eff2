"""The ladder from the RNN to the LSTM: each cell adds one idea to the one before.

RNNCell           h' = u                              the new state replaces the old one
AdditiveCell      h' = h + u                          an additive path through time
CoupledGateCell   h' = f * h + (1 - f) * u            one gate weighs old against new
TwoGateCell       h' = f * h + i * u                  separate gates for old and new
LSTMCell          c' = f * c + i * g, h' = o * tanh(c')   a memory cell behind an output gate
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from weft.cells.base import Candidate, Cell, HiddenState, from_iterable, labelled


@from_iterable
@labelled(f="forget gate", u="candidate")
class CoupledGates(NamedTuple):
    """One gate that weighs old against new, and the candidate; (B, H) each."""

    f: Tensor
    u: Tensor


@from_iterable
@labelled(i="input gate", f="forget gate", u="candidate")
class InputForgetGates(NamedTuple):
    """Input gate, forget gate, candidate; (B, H) each."""

    i: Tensor
    f: Tensor
    u: Tensor


class AdditiveCell(Cell):
    """The first step: the candidate is added to the state, so gradients have an additive path through time.

        u = tanh(W x + U h)
        h' = h + u

    Blocks: one.
    """

    blocks = 1

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, Candidate]:
        u = torch.tanh(x_proj + self.recur(state.h))
        return HiddenState(state.h + u), Candidate(u)


class CoupledGateCell(Cell):
    """The second step: one forget gate weighs the old state against the candidate.

        f = s(W_f x + U_f h)
        u = tanh(W_u x + U_u h)
        h' = f * h + (1 - f) * u

    Block order: f, u.
    """

    blocks = 2

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, CoupledGates]:
        f, u = (x_proj + self.recur(state.h)).chunk(2, -1)
        f, u = torch.sigmoid(f), torch.tanh(u)
        return HiddenState(f * state.h + (1 - f) * u), CoupledGates(f, u)


class TwoGateCell(Cell):
    """The third step: separate input and forget gates, without a memory cell.

        i = s(W_i x + U_i h)
        f = s(W_f x + U_f h)
        u = tanh(W_u x + U_u h)
        h' = f * h + i * u

    Block order: i, f, u.
    """

    blocks = 3

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, InputForgetGates]:
        i, f, u = (x_proj + self.recur(state.h)).chunk(3, -1)
        i, f, u = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(u)
        return HiddenState(f * state.h + i * u), InputForgetGates(i, f, u)
