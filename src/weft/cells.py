"""The cells: one step of a recurrence each, as equations and nothing else.

A cell holds the weights of its equations and computes one step for a batch of rows. The input part of every
equation arrives already projected, `x_proj = x W_ih' + b_ih` for all gate blocks side by side, because it does
not depend on the state and is cheaper for all steps at once. The recurrent part is the cell's own affair.

Parameters have the names, shapes and block order of torch.nn's cells: weight_ih (G*H, I), weight_hh (G*H, H),
bias_ih (G*H), bias_hh (G*H). Two biases, because where a gate acts between them (GRU) they are not the same.

In the equations W x stands for the block of `x_proj` (its bias included), U h for the block of
`weight_hh h + bias_hh`, s for the logistic sigmoid and * for the product element by element.

A cell of your own is a subclass with `blocks` and `step`:

    class MinimalGatedUnit(Cell):
        blocks = 2
        def step(self, x_proj, state):
            (x_f, x_u), (h_f, h_u) = x_proj.chunk(2, -1), self.recur(state.h).chunk(2, -1)
            f = torch.sigmoid(x_f + h_f)
            u = torch.tanh(x_u + f * h_u)
            return Hidden(state.h + f * (u - state.h)), SharedGate(f, u)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.errors import WeftError


class Hidden(NamedTuple):
    """The state of a cell that remembers by its hidden state alone."""

    h: Tensor  # (B, H)


class Memory(NamedTuple):
    """The state of a cell that keeps a memory cell c behind its hidden state."""

    h: Tensor  # (B, H)
    c: Tensor  # (B, H)


class Candidate(NamedTuple):
    """What a cell without gates computes: its new value."""

    u: Tensor


class SharedGate(NamedTuple):
    """One gate that weighs old against new, and the new value."""

    f: Tensor
    u: Tensor


class ForgetInput(NamedTuple):
    """A gate for the old, a gate for the new, and the new value."""

    i: Tensor
    f: Tensor
    u: Tensor


class GRUGates(NamedTuple):
    """Reset gate, update gate, candidate."""

    r: Tensor
    z: Tensor
    n: Tensor


class LSTMGates(NamedTuple):
    """Input, forget gate, candidate, output gate."""

    i: Tensor
    f: Tensor
    g: Tensor
    o: Tensor


State = Any  # a NamedTuple of (B, H) tensors, h first: Hidden, Memory, or a user's own
Gates = Any  # a NamedTuple of (B, H) tensors


class Cell(nn.Module, ABC):
    """The base of all cells: the parameters, the input projection and the zero state."""

    blocks: ClassVar[int]  # G: how many blocks of H the projections have
    state_type: ClassVar[type] = Hidden

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        if input_size < 1 or hidden_size < 1:
            raise WeftError(
                f"{type(self).__name__}: input_size={input_size}, hidden_size={hidden_size}",
                expected="both to be 1 or more",
            )
        self.input_size, self.hidden_size = input_size, hidden_size
        rows = self.blocks * hidden_size
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden_size))
        self.bias_ih = nn.Parameter(torch.empty(rows))
        self.bias_hh = nn.Parameter(torch.empty(rows))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(H), as torch.nn does it."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def project(self, x: Tensor) -> Tensor:
        """The input part of every equation: (..., I) numbers or (...) token ids to (..., G*H).

        A token id stands for the one-hot vector with a one there, so its product is a column of weight_ih.
        """
        if x.is_floating_point():
            return F.linear(x, self.weight_ih, self.bias_ih)
        return F.embedding(x, self.weight_ih.t()) + self.bias_ih

    def recur(self, h: Tensor) -> Tensor:
        """The recurrent part of every equation: (B, H) to (B, G*H)."""
        return F.linear(h, self.weight_hh, self.bias_hh)

    def start(self, rows: int) -> State:
        """The zero state for that many rows."""
        size = len(self.state_type._fields)  # type: ignore[attr-defined]
        return self.state_type(*(self.weight_ih.new_zeros(rows, self.hidden_size) for _ in range(size)))

    @abstractmethod
    def step(self, x_proj: Tensor, state: State) -> tuple[State, Gates]:
        """One step for all rows: x_proj (B, G*H) and the state before it to the state after it, and the gates."""

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class RNN(Cell):
    """h' = tanh(W x + U h). Elman 1990; torch.nn.RNN."""

    blocks = 1

    def step(self, x_proj: Tensor, state: Hidden) -> tuple[Hidden, Candidate]:
        u = torch.tanh(x_proj + self.recur(state.h))
        return Hidden(u), Candidate(u)


class ReluRNN(Cell):
    """h' = max(0, W x + U h). torch.nn.RNN with nonlinearity="relu"."""

    blocks = 1

    def step(self, x_proj: Tensor, state: Hidden) -> tuple[Hidden, Candidate]:
        u = torch.relu(x_proj + self.recur(state.h))
        return Hidden(u), Candidate(u)


class Stateless(Cell):
    """u = tanh(W x); h' = u. A hidden layer without hidden state, for comparison.

    It is what a GRU becomes whose reset and update gates are closed: an MLP of the present input alone. It has
    no recurrent weights; bias_ih stays the only bias.
    """

    blocks = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        del self.weight_hh, self.bias_hh

    def step(self, x_proj: Tensor, state: Hidden) -> tuple[Hidden, Candidate]:
        u = torch.tanh(x_proj)
        return Hidden(u), Candidate(u)


class Additive(Cell):
    """u = tanh(W x + U h); h' = h + u. The first rung to the LSTM: every past value has a straight way through."""

    blocks = 1

    def step(self, x_proj: Tensor, state: Hidden) -> tuple[Hidden, Candidate]:
        u = torch.tanh(x_proj + self.recur(state.h))
        return Hidden(state.h + u), Candidate(u)


class CoupledGate(Cell):
    """f = s(W_f x + U_f h); u = tanh(W_u x + U_u h); h' = f * h + (1 - f) * u.

    The second rung: one forget gate weighs old against new. Blocks: f, u.
    """

    blocks = 2

    def step(self, x_proj: Tensor, state: Hidden) -> tuple[Hidden, SharedGate]:
        f, u = (x_proj + self.recur(state.h)).chunk(2, -1)
        f, u = torch.sigmoid(f), torch.tanh(u)
        return Hidden(f * state.h + (1 - f) * u), SharedGate(f, u)


class TwoGates(Cell):
    """i = s(W_i x + U_i h); f = s(W_f x + U_f h); u = tanh(W_u x + U_u h); h' = f * h + i * u.

    The third rung: old and new are weighed apart, still without a memory cell. Blocks: i, f, u.
    """

    blocks = 3

    def step(self, x_proj: Tensor, state: Hidden) -> tuple[Hidden, ForgetInput]:
        i, f, u = (x_proj + self.recur(state.h)).chunk(3, -1)
        i, f, u = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(u)
        return Hidden(f * state.h + i * u), ForgetInput(i, f, u)


class LSTM(Cell):
    """i, f, o = s(W x + U h), each its own block; g = tanh(W_g x + U_g h); c' = f * c + i * g; h' = o * tanh(c').

    Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000; torch.nn.LSTM. Blocks: i, f, g, o.
    """

    blocks = 4
    state_type = Memory

    def step(self, x_proj: Tensor, state: Memory) -> tuple[Memory, LSTMGates]:
        i, f, g, o = (x_proj + self.recur(state.h)).chunk(4, -1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        c = f * state.c + i * g
        return Memory(o * torch.tanh(c), c), LSTMGates(i, f, g, o)


class GRU(Cell):
    """r, z = s(W x + U h); n = tanh(W_n x + r * (U_n h)); h' = z * h + (1 - z) * n.

    The reset gate acts after the product, as torch.nn.GRU and cuDNN do it: one product a step. z keeps the old.
    Cho et al. 2014. Blocks: r, z, n.
    """

    blocks = 3

    def step(self, x_proj: Tensor, state: Hidden) -> tuple[Hidden, GRUGates]:
        x_r, x_z, x_n = x_proj.chunk(3, -1)
        h_r, h_z, h_n = self.recur(state.h).chunk(3, -1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        return Hidden(z * state.h + (1 - z) * n), GRUGates(r, z, n)


class GRUResetBefore(Cell):
    """r, z = s(W x + U h); n = tanh(W_n x + U_n (r * h)); h' = z * h + (1 - z) * n.

    The reset gate acts before the product, as the textbook equations have it: two products a step, the second
    on what r leaves of h. With r = 0 the candidate is an MLP of x, with r = 1 a plain RNN. z keeps the old.
    Cho et al. 2014. Blocks: r, z, n.
    """

    blocks = 3

    def step(self, x_proj: Tensor, state: Hidden) -> tuple[Hidden, GRUGates]:
        H = self.hidden_size
        r, z = (x_proj[:, : 2 * H] + F.linear(state.h, self.weight_hh[: 2 * H], self.bias_hh[: 2 * H])).chunk(2, -1)
        r, z = torch.sigmoid(r), torch.sigmoid(z)
        n = torch.tanh(x_proj[:, 2 * H :] + F.linear(r * state.h, self.weight_hh[2 * H :], self.bias_hh[2 * H :]))
        return Hidden(z * state.h + (1 - z) * n), GRUGates(r, z, n)


CELLS: dict[str, type[Cell]] = {
    "rnn": RNN,
    "rnn-relu": ReluRNN,
    "gru": GRU,
    "gru-reset-before": GRUResetBefore,
    "lstm": LSTM,
    "additive": Additive,
    "coupled-gate": CoupledGate,
    "two-gates": TwoGates,
    "stateless": Stateless,
}
