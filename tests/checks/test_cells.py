"""The battery passes for every cell, and fails for mutants, each of which has exactly one defect."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.checks.cells import check_cell
from weft.cells import (
    CELLS,
    AdditiveCell,
    Candidate,
    Cell,
    CoupledGateCell,
    CoupledGates,
    GRUCell,
    GRUGates,
    GRUResetBeforeCell,
    HiddenState,
    InputForgetGates,
    LSTMCell,
    LSTMGates,
    LSTMState,
    ReLURNNCell,
    RNNCell,
    StatelessCell,
    TwoGateCell,
)
from weft.nn import map_state


@pytest.mark.parametrize("name", CELLS)
def test_cell(name):
    check_cell(CELLS[name])


class MinimalGatedUnit(Cell):
    """The custom cell of the docstring of weft.cells."""

    blocks = 2

    def step(self, x_proj, state):
        (x_f, x_u), (h_f, h_u) = x_proj.chunk(2, -1), self.recur(state.h).chunk(2, -1)
        f = torch.sigmoid(x_f + h_f)
        u = torch.tanh(x_u + f * h_u)
        return HiddenState(state.h + f * (u - state.h)), CoupledGates(f, u)


def minimal_gated_unit(W, U, x, h):
    f = 1 / (1 + torch.exp(-W(0, x) - U(0, h)))
    u = torch.tanh(W(1, x) + f * U(1, h))
    return ((1 - f) * h + f * u,), {"f": f, "u": u}


@pytest.mark.parametrize("equations", [None, minimal_gated_unit])
def test_custom_cell(equations):
    check_cell(MinimalGatedUnit, equations=equations, dtypes=[torch.float64])


def test_wrong_equations_are_detected():
    with pytest.raises(AssertionError, match="step: h"):
        check_cell(
            MinimalGatedUnit, equations=lambda W, U, x, h: ((h,), minimal_gated_unit(W, U, x, h)[1]), rtol=0, atol=0.01
        )


# --- cells with one defect ---------------------------------------------------------------------------------


def gru_parts(cell, x_proj, state):
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x_proj.chunk(3, -1), cell.recur(state.h).chunk(3, -1)
    return torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z), x_n, h_n


def mix(z, n, state):
    return HiddenState(z * state.h + (1 - z) * n)


class GRUWithoutHiddenBias(GRUCell):
    def step(self, x_proj, state):
        r, z, x_n, h_n = gru_parts(self, x_proj, state)
        n = torch.tanh(x_n + r * (h_n - self.bias_hh[2 * self.hidden_size :]))
        return mix(z, n, state), GRUGates(r, z, n)


class GRUBiasOutsideReset(GRUCell):
    def step(self, x_proj, state):
        r, z, x_n, h_n = gru_parts(self, x_proj, state)
        bias = self.bias_hh[2 * self.hidden_size :]
        n = torch.tanh(x_n + r * (h_n - bias) + bias)
        return mix(z, n, state), GRUGates(r, z, n)


class GRUInvertedUpdate(GRUCell):
    def step(self, x_proj, state):
        r, z, x_n, h_n = gru_parts(self, x_proj, state)
        n = torch.tanh(x_n + r * h_n)
        return mix(1 - z, n, state), GRUGates(r, z, n)


class GRUSwappedGates(GRUCell):
    def step(self, x_proj, state):
        z, r, x_n, h_n = gru_parts(self, x_proj, state)
        n = torch.tanh(x_n + r * h_n)
        return mix(z, n, state), GRUGates(r, z, n)


class GRUGatesInWrongOrder(GRUCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return new, GRUGates(gates.z, gates.r, gates.n)


class GRUResetOnTheWrongSide(GRUCell):
    step = GRUResetBeforeCell.step


class GRUResetBeforeOnTheWrongSide(GRUResetBeforeCell):
    step = GRUCell.step


def lstm_step(i, f, g, o, state):
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = f * state.c + i * g
    return LSTMState(o * torch.tanh(c), c), LSTMGates(i, f, g, o)


class LSTMInputForgetSwapped(LSTMCell):
    def step(self, x_proj, state):
        f, i, g, o = (x_proj + self.recur(state.h)).chunk(4, -1)
        return lstm_step(i, f, g, o, state)


class LSTMCandidateOutputSwapped(LSTMCell):
    def step(self, x_proj, state):
        i, f, o, g = (x_proj + self.recur(state.h)).chunk(4, -1)
        return lstm_step(i, f, g, o, state)


class LSTMWithoutTanhOnOutput(LSTMCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return LSTMState(gates.o * new.c, new.c), gates


class LSTMWithOldMemoryInOutput(LSTMCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return LSTMState(gates.o * torch.tanh(state.c), new.c), gates


class LSTMMemoryFirst(LSTMCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return LSTMState(new.c, new.h), gates


class LSTMMemoryWithoutGradient(LSTMCell):
    def step(self, x_proj, state):
        return super().step(x_proj, LSTMState(state.h, state.c.detach()))


class CoupledGateInverted(CoupledGateCell):
    def step(self, x_proj, state):
        _, (f, u) = super().step(x_proj, state)
        return HiddenState(f * u + (1 - f) * state.h), CoupledGates(f, u)


class TwoGatesSwapped(TwoGateCell):
    def step(self, x_proj, state):
        _, (i, f, u) = super().step(x_proj, state)
        return HiddenState(i * state.h + f * u), InputForgetGates(i, f, u)


class AdditiveWithoutOldState(AdditiveCell):
    step = RNNCell.step


class StatelessWithState(StatelessCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return HiddenState(new.h + 0.01 * state.h), gates


class RNNWithoutHiddenBias(RNNCell):
    def step(self, x_proj, state):
        return super().step(x_proj - self.bias_hh, state)


class LeakyReLURNN(ReLURNNCell):
    def step(self, x_proj, state):
        h = F.leaky_relu(x_proj + self.recur(state.h), 0.01)
        return HiddenState(h), Candidate(h)


class RNNImprecise(RNNCell):
    def step(self, x_proj, state):
        return super().step(x_proj * (1 + 1e-6), state)


class RNNThatWritesIntoItsState(RNNCell):
    def step(self, x_proj, state):
        result = super().step(x_proj, state)
        state.h.data.zero_()
        return result


class RNNWithNonzeroInitialState(RNNCell):
    def initial_state(self, rows):
        return map_state(torch.ones_like, super().initial_state(rows))


class RNNWithParametersInAnotherOrder(RNNCell):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        weight = self.weight_ih
        del self.weight_ih
        self.weight_ih = weight


class CallIgnoresTheState(GRUCell):
    def forward(self, x, state=None):
        return super().forward(x)


class GateOutOfRange(MinimalGatedUnit):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return new, CoupledGates(2 * gates.f, gates.u)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (GRUWithoutHiddenBias, "step: h"),
        (GRUBiasOutsideReset, "step: h"),
        (GRUInvertedUpdate, "step: h"),
        (GRUSwappedGates, "step: h"),
        (GRUGatesInWrongOrder, "gate r"),
        (GRUResetOnTheWrongSide, "step: h"),
        (GRUResetBeforeOnTheWrongSide, "step: h"),
        (LSTMInputForgetSwapped, "step: h"),
        (LSTMCandidateOutputSwapped, "step: h"),
        (LSTMWithoutTanhOnOutput, "step: h"),
        (LSTMWithOldMemoryInOutput, "step: h"),
        (LSTMMemoryFirst, "step: h"),
        (LSTMMemoryWithoutGradient, "gradient of"),
        (CoupledGateInverted, "step: h"),
        (TwoGatesSwapped, "step: h"),
        (AdditiveWithoutOldState, "step: h"),
        (StatelessWithState, "step: h"),
        (RNNWithoutHiddenBias, "step: h"),
        (LeakyReLURNN, "step: h"),
        (RNNImprecise, "step: h"),
        (RNNThatWritesIntoItsState, "changed the state"),
        (RNNWithNonzeroInitialState, "initial_state: not zero"),
        (RNNWithParametersInAnotherOrder, "order"),
        (GateOutOfRange, "within 0 to 1"),
        (CallIgnoresTheState, "calling the cell is not its step"),
    ],
)
def test_cell_mutants_fail(mutant, message):
    with pytest.raises(AssertionError, match=message):
        check_cell(mutant)
