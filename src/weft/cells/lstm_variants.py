"""Variants of the LSTM: block-diagonal recurrent weights, exponential gates, and inputs that state and input gate."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.cells.base import Cell, LSTMState, from_iterable, labelled
from weft.cells.lstm import LSTMCell, LSTMGates, gated_memory


class MultiHeadLSTMCell(Cell):
    """The LSTM with block-diagonal recurrent weights: its units form heads, and a head reads only its own units.

        The equations of `LSTMCell`, with U_i, U_f, U_g and U_o block-diagonal: H^2 / heads weights each.

    Papers: block-diagonal weights, Kuchaiev and Ginsburg 2017, "Factorization tricks for LSTM networks" (groups);
    heads of an LSTM, Beck et al. 2024, "xLSTM: extended long short-term memory". There are 4 heads; if H is odd 1, if
    it is even but no multiple of 4, 2. `weight_heads` (4*H, H/heads) has the rows of `weight_hh` without their zeros.
    Block order: i, f, g, o.
    """

    blocks = 4
    state_type = LSTMState
    computed = ("weight_block_diagonal",)
    head_type = LSTMCell

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        del self.weight_hh
        self.heads = math.gcd(4, hidden_size)
        self.weight_heads = nn.Parameter(
            torch.empty(4 * hidden_size, hidden_size // self.heads, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "weight_heads"):  # as many weights enter a unit as a head has units
            bound = math.sqrt(self.heads / self.hidden_size) if self.hidden_size else 0.0
            nn.init.uniform_(self.weight_heads, -bound, bound)

    @property
    def weight_block_diagonal(self) -> Tensor:
        """The recurrent weights of all heads with the zeros between them, (4*H, H)."""
        n, d = self.heads, self.hidden_size // self.heads
        blocks = self.weight_heads.view(4, n, d, d).permute(0, 2, 3, 1)
        return torch.diag_embed(blocks, dim1=1, dim2=3).reshape(4 * n * d, n * d)

    def head_parameters(self) -> list[dict[str, Tensor]]:
        """Returns the parameters of each head as those of an `LSTMCell` of H/heads units."""

        def divide(rows: Tensor) -> tuple[Tensor, ...]:
            return rows.view(4, self.heads, -1, *rows.shape[1:]).transpose(0, 1).contiguous().flatten(1, 2).unbind()

        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        whole = (self.weight_ih, self.weight_heads, self.bias_ih, self.bias_hh)
        return [dict(zip(names, one, strict=True)) for one in zip(*map(divide, whole), strict=True)]

    def step(self, x_proj: Tensor, state: LSTMState) -> tuple[LSTMState, LSTMGates]:
        return gated_memory(x_proj + F.linear(state.h, self.weight_block_diagonal, self.bias_hh), state.c)


@from_iterable
@labelled(h="hidden state", c="memory cell", n="normalizer", m="log scale")
class SLSTMState(NamedTuple):
    """The state of an sLSTM: hidden state, memory cell, normalizer, and the logarithm of their common scale."""

    h: Tensor  # (B, H)
    c: Tensor  # (B, H)
    n: Tensor  # (B, H)
    m: Tensor  # (B, H)


class SLSTMCell(Cell):
    """The LSTM with an exponential input gate, and a normalizer that counts what has entered.

        m' = max(log s(W_f x + U_f h) + m, W_i x + U_i h)
        i = exp(W_i x + U_i h - m')
        f = exp(log s(W_f x + U_f h) + m - m')
        g = tanh(W_g x + U_g h)
        o = s(W_o x + U_o h)
        c' = f * c + i * g
        n' = f * n + i
        h' = o * c' / n'

    Paper: Beck et al. 2024, "xLSTM: extended long short-term memory". Convention: one head and a sigmoid forget gate,
    two of the paper's choices; no normalization after the cell. m scales i and f, and cancels in h. The divisor is at
    least 1e-10, for a unit that nothing has entered. The biases of the forget gate start from 3 to 6, so that units
    begin with long and different memories. Block order: i, f, g, o.
    """

    blocks = 4
    state_type = SLSTMState

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            H = self.hidden_size
            with torch.no_grad():
                self.bias_ih[H : 2 * H] = torch.linspace(3, 6, H)

    def step(self, x_proj: Tensor, state: SLSTMState) -> tuple[SLSTMState, LSTMGates]:
        i, f, g, o = (x_proj + self.recur(state.h)).chunk(4, -1)
        kept = state.m - F.softplus(-f)  # log s(f) = -softplus(-f)
        m = torch.maximum(kept, i)
        i, f, g, o = torch.exp(i - m), torch.exp(kept - m), torch.tanh(g), torch.sigmoid(o)
        c, n = f * state.c + i * g, f * state.n + i
        return SLSTMState(o * c / torch.clamp(n, min=1e-10), c, n, m), LSTMGates(i, f, g, o)


class MogrifierLSTMCell(Cell):
    """The LSTM whose input and hidden state gate each other in five rounds before they enter the gates.

        x = W x + bias_ih
        x = 2 s(Q_1 h) * x;  h = 2 s(R_1 x) * h;  x = 2 s(Q_2 h) * x;  h = 2 s(R_2 x) * h;  x = 2 s(Q_3 h) * x
        The equations of `LSTMCell` with this x and h.

    Paper: Melis, Kocisky and Blunsom 2020, "Mogrifier LSTM". Convention: Q and R have full rank; the first line maps
    the input to H features, so that all rounds have vectors of H. `weight_q` is Q_1, Q_2, Q_3; `weight_r` is R_1, R_2;
    `weight_x`, `weight_h` and `bias_gates` are those of the LSTM, in the order i, f, g, o. Blocks: one.
    """

    blocks = 1
    state_type = LSTMState
    rounds: ClassVar[int] = 5
    weight_q: Tensor
    weight_r: Tensor
    weight_x: Tensor
    weight_h: Tensor
    bias_gates: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        del self.weight_hh, self.bias_hh
        H = hidden_size
        for name, rows in (("weight_q", 3 * H), ("weight_r", 2 * H), ("weight_x", 4 * H), ("weight_h", 4 * H)):
            self.register_parameter(name, nn.Parameter(torch.empty(rows, H, device=device, dtype=dtype)))
        gates = torch.zeros(4 * H, device=device, dtype=dtype)
        if bias:
            self.register_parameter("bias_gates", nn.Parameter(gates))
        else:
            self.register_buffer("bias_gates", gates, persistent=False)
        self.reset_parameters()

    def step(self, x_proj: Tensor, state: LSTMState) -> tuple[LSTMState, LSTMGates]:
        x, h, H = x_proj, state.h, self.hidden_size
        for n in range(self.rounds):
            rows = slice(n // 2 * H, (n // 2 + 1) * H)
            if n % 2 == 0:
                x = 2 * torch.sigmoid(F.linear(h, self.weight_q[rows])) * x
            else:
                h = 2 * torch.sigmoid(F.linear(x, self.weight_r[rows])) * h
        return gated_memory(F.linear(x, self.weight_x) + F.linear(h, self.weight_h, self.bias_gates), state.c)
