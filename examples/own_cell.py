"""Custom cells: a few lines of equations that run at the speed of a fused kernel.

python examples/own_cell.py
weft train lm --data my.txt --out runs/mine --cell examples/own_cell.py:PeepholeLSTMCell
weft generate runs/mine --cell examples/own_cell.py:PeepholeLSTMCell
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.cells import Cell, CoupledGates, HiddenState, LSTMGates, LSTMState
from weft.nn import Recurrent


class PeepholeLSTMCell(Cell):
    """i, f = s(W x + U h + p * c); c' = f * c + i * tanh(W x + U h); o = s(W x + U h + p * c'); h' = o * tanh(c').

    The gates read the memory cell through one weight per unit. Gers and Schmidhuber 2000. Blocks: i, f, g, o.
    """

    blocks, state_type = 4, LSTMState

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.peephole = nn.Parameter(torch.randn(3, hidden_size) / hidden_size**0.5)

    def step(self, x_proj: Tensor, state: LSTMState) -> tuple[LSTMState, LSTMGates]:
        i, f, g, o = (x_proj + self.recur(state.h)).chunk(4, -1)
        i = torch.sigmoid(i + self.peephole[0] * state.c)
        f = torch.sigmoid(f + self.peephole[1] * state.c)
        g = torch.tanh(g)
        c = f * state.c + i * g
        o = torch.sigmoid(o + self.peephole[2] * c)
        return LSTMState(o * torch.tanh(c), c), LSTMGates(i, f, g, o)


class MinimalGatedUnitCell(Cell):
    """f = s(W_f x + U_f h); u = tanh(W_u x + f * (U_u h)); h' = h + f * (u - h). Zhou et al. 2016. Blocks: f, u."""

    blocks = 2

    def step(self, x_proj: Tensor, state: HiddenState) -> tuple[HiddenState, CoupledGates]:
        (x_f, x_u), (h_f, h_u) = x_proj.chunk(2, -1), self.recur(state.h).chunk(2, -1)
        f = torch.sigmoid(x_f + h_f)
        u = torch.tanh(x_u + f * h_u)
        return HiddenState(state.h + f * (u - state.h)), CoupledGates(f, u)


class LayerNormLSTMCell(Cell):
    """An LSTM whose gate blocks and memory cell are normalized over the units. Ba et al. 2016. Blocks: i, f, g, o."""

    blocks, state_type = 4, LSTMState

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def step(self, x_proj: Tensor, state: LSTMState) -> tuple[LSTMState, LSTMGates]:
        H = self.hidden_size
        gates = (x_proj + self.recur(state.h)).view(-1, 4, H)
        i, f, g, o = F.layer_norm(gates, (H,)).unbind(1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        c = f * state.c + i * g
        return LSTMState(o * torch.tanh(self.norm(c)), c), LSTMGates(i, f, g, o)


OWN_CELLS = {
    "peephole-lstm": PeepholeLSTMCell,
    "minimal-gated-unit": MinimalGatedUnitCell,
    "layer-norm-lstm": LayerNormLSTMCell,
}


def train(cell: Cell, *, steps: int = 200, length: int = 6) -> tuple[float, float]:
    """Train a cell to reproduce its first input at the last step; returns the first and the final loss."""
    layer, output = Recurrent(cell), nn.Linear(cell.hidden_size, cell.input_size)
    optimizer = torch.optim.Adam([*layer.parameters(), *output.parameters()], 1e-2)
    losses = []
    for _ in range(steps):
        ids = torch.randint(0, cell.input_size, (32, length))
        hidden, _ = layer(ids)
        loss = F.cross_entropy(output(hidden[:, -1]), ids[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


if __name__ == "__main__":
    torch.manual_seed(0)
    for name, make in OWN_CELLS.items():
        first, last = train(make(8, 32))
        print(f"{name:20} loss {first:.2f} -> {last:.2f}")
