"""The ladder: what each cell becomes when a gate is held open or shut, rung by rung from the RNN to the LSTM."""

from __future__ import annotations

import pytest
import torch

from weft.cells import (
    CELLS,
    GRU,
    LSTM,
    RNN,
    Additive,
    CoupledGate,
    GRUResetBefore,
    Hidden,
    Memory,
    ReluRNN,
    Stateless,
    TwoGates,
)
from weft.errors import WeftError
from weft.nn import Recurrent

B, T, INPUT, HIDDEN = 3, 6, 4, 5
OPEN, SHUT = 1e3, -1e3  # a bias that makes a sigmoid exactly 1 or 0
NEAR = {"atol": 1e-12, "rtol": 1e-10}


def make(kind):
    torch.manual_seed(11)
    cell = kind(INPUT, HIDDEN).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.uniform_(-0.9, 0.9)
    return cell


def hold(cell, block, bias):
    """Fix a gate for good: no weights, only a bias."""
    rows = slice(block * HIDDEN, (block + 1) * HIDDEN)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter[rows] = 0
        cell.bias_ih[rows] = bias


def copy_block(source, block, target, target_block=0):
    """The weights of one block of a cell into a block of another."""
    rows = slice(block * HIDDEN, (block + 1) * HIDDEN)
    target_rows = slice(target_block * HIDDEN, (target_block + 1) * HIDDEN)
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            parameter[target_rows] = getattr(source, name)[rows]


def run(cell, x, h=None, c=None):
    state = None
    if h is not None:
        state = Memory(h, c) if cell.state_type is Memory else Hidden(h)
    return Recurrent(cell)(x, state)[0]


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(B, T, INPUT, dtype=torch.float64)


@pytest.fixture
def h():
    torch.manual_seed(2)
    return torch.randn(B, HIDDEN, dtype=torch.float64)


@pytest.mark.parametrize("kind", [GRU, GRUResetBefore])
def test_gru_that_resets_nothing_and_keeps_nothing_is_an_rnn(kind, x, h):
    cell, plain = make(kind), make(RNN)
    hold(cell, 0, OPEN)
    hold(cell, 1, SHUT)
    copy_block(cell, 2, plain)
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)


def test_gru_with_both_gates_shut_is_a_layer_without_state(x, h):
    cell, plain = make(GRUResetBefore), make(Stateless)
    hold(cell, 0, SHUT)
    hold(cell, 1, SHUT)
    copy_block(cell, 2, plain)
    with torch.no_grad():
        plain.bias_ih += cell.bias_hh[2 * HIDDEN :]
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)


def test_reset_after_the_product_also_takes_the_hidden_bias_away(x, h):
    """The one place where the two GRUs differ even with a shut reset gate."""
    cell, plain = make(GRU), make(Stateless)
    hold(cell, 0, SHUT)
    hold(cell, 1, SHUT)
    copy_block(cell, 2, plain)
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)


@pytest.mark.parametrize("kind", [GRU, GRUResetBefore])
def test_gru_with_an_open_update_gate_keeps_its_state(kind, x, h):
    cell = make(kind)
    hold(cell, 1, OPEN)
    torch.testing.assert_close(run(cell, x, h), h[:, None].expand(B, T, HIDDEN), **NEAR)


def test_the_two_grus_differ_only_in_where_reset_acts(x, h):
    after, before = make(GRU), make(GRUResetBefore)
    before.load_state_dict(after.state_dict())
    assert (run(after, x, h) - run(before, x, h)).abs().max() > 1e-3
    hold(after, 0, OPEN)
    hold(before, 0, OPEN)
    torch.testing.assert_close(run(after, x, h), run(before, x, h), **NEAR)


def test_stateless_sees_the_present_alone(x, h):
    cell = make(Stateless)
    assert [name for name, _ in cell.named_parameters()] == ["weight_ih", "bias_ih"]
    outputs = run(cell, x, h)
    torch.testing.assert_close(outputs, torch.tanh(x @ cell.weight_ih.T + cell.bias_ih), **NEAR)
    order = torch.randperm(T)
    torch.testing.assert_close(run(cell, x[:, order]), outputs[:, order], **NEAR)


def test_additive_is_the_sum_of_all_that_came(x, h):
    cell = make(Additive)
    trace = Recurrent(cell).trace(x, Hidden(h))
    torch.testing.assert_close(trace.states.h, h[:, None] + trace.gates.u.cumsum(1), **NEAR)


def test_additive_has_a_straight_way_through():
    """Without recurrent weights the gradient to the first state is the identity, however long the run."""
    cell = make(Additive)
    with torch.no_grad():
        cell.weight_hh.zero_()
    start = torch.zeros(1, HIDDEN, dtype=torch.float64, requires_grad=True)
    outputs = run(cell, torch.randn(1, 50, INPUT, dtype=torch.float64), start)
    torch.testing.assert_close(torch.autograd.grad(outputs[0, -1, 2], start)[0][0], torch.eye(HIDDEN).double()[2])


def test_rnn_is_additive_without_the_old(x, h):
    cell, plain = make(Additive), make(RNN)
    plain.load_state_dict(cell.state_dict())
    projected = cell.project(x[:, 0])
    torch.testing.assert_close(cell.step(projected, Hidden(h))[0].h, h + plain.step(projected, Hidden(h))[0].h, **NEAR)


def test_relu_rnn_is_the_rnn_with_another_bend(x, h):
    cell = make(ReluRNN)
    before = cell.project(x[:, 0]) + cell.recur(h)
    torch.testing.assert_close(run(cell, x, h)[:, 0], before.clamp(min=0), **NEAR)


def test_two_gates_with_complementary_gates_is_the_coupled_gate(x, h):
    """i = 1 - f because s(-a) = 1 - s(a)."""
    coupled, cell = make(CoupledGate), make(TwoGates)
    copy_block(coupled, 0, cell, 1)
    copy_block(coupled, 1, cell, 2)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter[:HIDDEN] = -parameter[HIDDEN : 2 * HIDDEN]
    torch.testing.assert_close(run(cell, x, h), run(coupled, x, h), **NEAR)


def test_two_gates_held_open_is_additive(x, h):
    cell, plain = make(TwoGates), make(Additive)
    hold(cell, 0, OPEN)
    hold(cell, 1, OPEN)
    copy_block(cell, 2, plain)
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)


def test_coupled_gate_shut_is_an_rnn_and_open_keeps(x, h):
    cell, plain = make(CoupledGate), make(RNN)
    copy_block(cell, 1, plain)
    hold(cell, 0, SHUT)
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)
    hold(cell, 0, OPEN)
    torch.testing.assert_close(run(cell, x, h), h[:, None].expand(B, T, HIDDEN), **NEAR)


def test_coupled_gate_is_a_gru_that_resets_nothing(x, h):
    coupled, cell = make(CoupledGate), make(GRU)
    hold(cell, 0, OPEN)
    copy_block(cell, 1, coupled, 0)
    copy_block(cell, 2, coupled, 1)
    torch.testing.assert_close(run(coupled, x, h), run(cell, x, h), **NEAR)


def test_lstm_that_does_not_remember_is_a_gated_rnn(x, h):
    """With the forget gate shut and input and output open: h' = tanh(tanh(W x + U h))."""
    cell, plain = make(LSTM), make(RNN)
    for block, bias in ((0, OPEN), (1, SHUT), (3, OPEN)):
        hold(cell, block, bias)
    copy_block(cell, 2, plain)
    first = run(plain, x[:, :1], h)
    torch.testing.assert_close(run(cell, x, h, torch.ones_like(h))[:, :1], torch.tanh(first), **NEAR)


def test_lstm_memory_is_two_gates_behind_an_output_gate(x):
    """Without recurrent weights the memory cell follows the third rung exactly; h only reads it."""
    cell, rung = make(LSTM), make(TwoGates)
    with torch.no_grad():
        cell.weight_hh.zero_()
    for block in range(3):
        copy_block(cell, block, rung, block)
    trace = Recurrent(cell).trace(x)
    torch.testing.assert_close(trace.states.c, run(rung, x), **NEAR)
    torch.testing.assert_close(trace.states.h, trace.gates.o * torch.tanh(trace.states.c), **NEAR)


def test_lstm_memory_kept_and_hidden_closed(x, h):
    cell = make(LSTM)
    for block, bias in ((0, SHUT), (1, OPEN), (3, SHUT)):
        hold(cell, block, bias)
    outputs, last = Recurrent(cell)(x, Memory(h, 2 * h))
    assert not outputs.any()
    torch.testing.assert_close(last.c, 2 * h, **NEAR)


@pytest.mark.parametrize("name", CELLS)
def test_token_ids_are_columns_of_the_input_weight(name):
    cell = make(CELLS[name])
    ids = torch.tensor([[2, 0], [3, 3], [1, 2]])
    expected = cell.weight_ih.T[ids] + cell.bias_ih
    torch.testing.assert_close(cell.project(ids), expected, **NEAR)
    torch.testing.assert_close(cell.project(ids.int()), expected, **NEAR)


@pytest.mark.parametrize("name", CELLS)
def test_cells_show_their_sizes_and_start_as_torch_does(name):
    cell = CELLS[name](INPUT, HIDDEN)
    assert repr(cell) == f"{CELLS[name].__name__}({INPUT}, {HIDDEN})"
    for parameter in cell.parameters():
        assert parameter.any()
        assert parameter.abs().max() <= HIDDEN**-0.5


@pytest.mark.parametrize("sizes", [(0, 5), (4, 0), (-1, 5)])
def test_sizes_are_checked(sizes):
    with pytest.raises(WeftError, match=rf"GRU: input_size={sizes[0]}, hidden_size={sizes[1]}; expected both"):
        GRU(*sizes)
