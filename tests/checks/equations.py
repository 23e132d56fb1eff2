"""Reference equations of one row: (W, U, x, *state) -> (new state, {name: gate}).

W(k, x) is block k of the input projection with its bias, U(k, h) block k of the recurrent projection with its bias;
W.cell has the parameters that only some cells have. They share nothing with the package.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from weft.cells import (
    AdditiveCell,
    Cell,
    CoupledGateCell,
    GRUCell,
    GRUResetBeforeCell,
    LSTMCell,
    MinGRUCell,
    MinLSTMCell,
    MogrifierLSTMCell,
    MultiHeadLSTMCell,
    ReLURNNCell,
    RGLRUCell,
    RNNCell,
    SLSTMCell,
    SRUCell,
    StatelessCell,
    TwoGateCell,
)

Equations = Callable[..., tuple[tuple[Tensor, ...], dict[str, Tensor]]]


def s(a: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-a))


def rnn(W, U, x, h):
    u = torch.tanh(W(0, x) + U(0, h))
    return (u,), {"u": u}


def relu_rnn(W, U, x, h):
    a = W(0, x) + U(0, h)
    u = a * (a > 0)
    return (u,), {"u": u}


def stateless(W, U, x, h):
    u = torch.tanh(W(0, x))
    return (u,), {"u": u}


def additive(W, U, x, h):
    u = torch.tanh(W(0, x) + U(0, h))
    return (h + u,), {"u": u}


def coupled_gate(W, U, x, h):
    f = s(W(0, x) + U(0, h))
    u = torch.tanh(W(1, x) + U(1, h))
    return (f * h + (1 - f) * u,), {"f": f, "u": u}


def two_gates(W, U, x, h):
    i = s(W(0, x) + U(0, h))
    f = s(W(1, x) + U(1, h))
    u = torch.tanh(W(2, x) + U(2, h))
    return (f * h + i * u,), {"i": i, "f": f, "u": u}


def lstm(W, U, x, h, c):
    i = s(W(0, x) + U(0, h))
    f = s(W(1, x) + U(1, h))
    g = torch.tanh(W(2, x) + U(2, h))
    o = s(W(3, x) + U(3, h))
    new = f * c + i * g
    return (o * torch.tanh(new), new), {"i": i, "f": f, "g": g, "o": o}


def gru(W, U, x, h):
    r = s(W(0, x) + U(0, h))
    z = s(W(1, x) + U(1, h))
    n = torch.tanh(W(2, x) + r * U(2, h))
    return (z * h + (1 - z) * n,), {"r": r, "z": z, "n": n}


def gru_reset_before(W, U, x, h):
    r = s(W(0, x) + U(0, h))
    z = s(W(1, x) + U(1, h))
    n = torch.tanh(W(2, x) + U(2, r * h))
    return (z * h + (1 - z) * n,), {"r": r, "z": z, "n": n}


def mingru(W, U, x, h):
    z, n = s(W(0, x)), W(1, x)
    return (n + z * (h - n),), {"z": z, "n": n}


def minlstm(W, U, x, h):
    i, f, u = s(W(0, x)), s(W(1, x)), W(2, x)
    i, f = i / (i + f), f / (i + f)
    return (f * h + i * u,), {"i": i, "f": f, "u": u}


def sru(W, U, x, h, c):
    H = len(c)
    f = s(W(1, x) + W.cell.peephole[:H] * c)
    r = s(W(2, x) + W.cell.peephole[H:] * c)
    new = f * c + (1 - f) * W(0, x)
    return (r * new + (1 - r) * W(3, x), new), {"f": f, "r": r, "u": W(0, x), "k": W(3, x)}


def rg_lru(W, U, x, h):
    r, i, u = s(W(0, x)), s(W(1, x)), W(2, x)
    a = s(-W.cell.decay) ** (8 * r)  # exp(-softplus(d)) = s(-d)
    return (a * h + (1 - a**2) ** 0.5 * i * u,), {"r": r, "i": i, "a": a, "u": u}


def multi_head_lstm(W, U, x, h, c):
    H, (_, size) = len(h), W.cell.weight_heads.shape

    def own(k, h):  # head by head
        rows = [(k * H + start, start) for start in range(0, H, size)]
        parts = [W.cell.weight_heads[row : row + size] @ h[start : start + size] for row, start in rows]
        return torch.cat(parts) + W.cell.bias_hh[k * H : (k + 1) * H]

    return lstm(W, own, x, h, c)


def slstm(W, U, x, h, c, n, m):
    i, f = W(0, x) + U(0, h), torch.log(s(W(1, x) + U(1, h))) + m
    g, o = torch.tanh(W(2, x) + U(2, h)), s(W(3, x) + U(3, h))
    scale = torch.where(f > i, f, i)
    i, f = torch.exp(i - scale), torch.exp(f - scale)
    new, total = f * c + i * g, f * n + i
    return (o * new / total, new, total, scale), {"i": i, "f": f, "g": g, "o": o}


def mogrifier_lstm(W, U, x, h, c):
    cell, H, v = W.cell, len(h), W(0, x)
    Q, R = cell.weight_q.split(H), cell.weight_r.split(H)
    v = 2 * s(Q[0] @ h) * v
    h = 2 * s(R[0] @ v) * h
    v = 2 * s(Q[1] @ h) * v
    h = 2 * s(R[1] @ v) * h
    v = 2 * s(Q[2] @ h) * v
    return lstm(
        lambda k, _: cell.weight_x.split(H)[k] @ v,
        lambda k, h: cell.weight_h.split(H)[k] @ h + cell.bias_gates.split(H)[k],
        x,
        h,
        c,
    )


EQUATIONS: dict[type[Cell], Equations] = {
    RNNCell: rnn,
    ReLURNNCell: relu_rnn,
    StatelessCell: stateless,
    AdditiveCell: additive,
    CoupledGateCell: coupled_gate,
    TwoGateCell: two_gates,
    LSTMCell: lstm,
    GRUCell: gru,
    GRUResetBeforeCell: gru_reset_before,
    MinGRUCell: mingru,
    MinLSTMCell: minlstm,
    SRUCell: sru,
    RGLRUCell: rg_lru,
    MultiHeadLSTMCell: multi_head_lstm,
    SLSTMCell: slstm,
    MogrifierLSTMCell: mogrifier_lstm,
}

TORCH: dict[type[Cell], Callable[..., nn.RNNBase]] = {
    RNNCell: nn.RNN,
    ReLURNNCell: functools.partial(nn.RNN, nonlinearity="relu"),
    GRUCell: nn.GRU,
    LSTMCell: nn.LSTM,
}
