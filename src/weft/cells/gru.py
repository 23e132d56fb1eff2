"""The gated recurrent unit, in its two conventions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.cells.base import Cell, HiddenState, from_iterable, labelled


@from_iterable
@labelled(r="reset gate", z="update gate", n="candidate")
class GRUGates(NamedTuple):
    """Reset gate, update gate, candidate; (B, H) each."""

    r: Tensor
    z: Tensor
    n: Tensor


class GRUCell(Cell):
    """The gated recurrent unit, reset gate after the product.

        r = s(W_r x + U_r h)
        z = s(W_z x + U_z h)
        n = tanh(W_n x + r * (U_n h))
        h' = z * h + (1 - z) * n

    Paper: Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder for statistical machine
    translation". Convention: torch.nn.GRUCell and cuDNN; the reset gate scales the product U_n h, so a step needs one
    product, and z = 1 keeps the old state. Block order: r, z, n.
    """

    blocks = 3

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, GRUGates]:
        x_r, x_z, x_n = x_proj.chunk(3, -1)
        h_r, h_z, h_n = self.recur(state.h).chunk(3, -1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        return HiddenState(z * state.h + (1 - z) * n), GRUGates(r, z, n)


class GRUResetBeforeCell(Cell):
    """The gated recurrent unit, reset gate before the product.

        r = s(W_r x + U_r h)
        z = s(W_z x + U_z h)
        n = tanh(W_n x + U_n (r * h))
        h' = z * h + (1 - z) * n

    Paper: Cho et al. 2014. Convention: the paper and the textbooks; the reset gate scales h, so a step needs two
    products, the second of them on r * h. With r = 0 the candidate is an MLP of x, with r = 1 an RNN cell; z = 1 keeps
    the old state. Block order: r, z, n.
    """

    blocks = 3

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, GRUGates]:
        H = self.hidden_size
        r, z = (x_proj[:, : 2 * H] + F.linear(state.h, self.weight_hh[: 2 * H], self.bias_hh[: 2 * H])).chunk(2, -1)
        r, z = torch.sigmoid(r), torch.sigmoid(z)
        n = torch.tanh(x_proj[:, 2 * H :] + F.linear(r * state.h, self.weight_hh[2 * H :], self.bias_hh[2 * H :]))
        return HiddenState(z * state.h + (1 - z) * n), GRUGates(r, z, n)
