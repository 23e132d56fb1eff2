"""The ladder: what each cell becomes when a gate is held open or shut, rung by rung from the RNN to the LSTM."""

from __future__ import annotations

import pickle
from typing import NamedTuple

import pytest
import torch

from weft.cells import (
    CELLS,
    AdditiveCell,
    Candidate,
    Cell,
    CoupledGateCell,
    GRUCell,
    GRUResetBeforeCell,
    HiddenState,
    LSTMCell,
    LSTMState,
    ReLURNNCell,
    RNNCell,
    StatelessCell,
    TwoGateCell,
    check_cell,
)
from weft.errors import WeftError
from weft.nn import Bidirectional, Recurrent, make_stack

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
        state = LSTMState(h, c) if cell.state_type is LSTMState else HiddenState(h)
    return Recurrent(cell)(x, state)[0]


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(B, T, INPUT, dtype=torch.float64)


@pytest.fixture
def h():
    torch.manual_seed(2)
    return torch.randn(B, HIDDEN, dtype=torch.float64)


@pytest.mark.parametrize("kind", [GRUCell, GRUResetBeforeCell])
def test_gru_that_resets_nothing_and_keeps_nothing_is_an_rnn(kind, x, h):
    cell, plain = make(kind), make(RNNCell)
    hold(cell, 0, OPEN)
    hold(cell, 1, SHUT)
    copy_block(cell, 2, plain)
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)


def test_gru_with_both_gates_shut_is_a_layer_without_state(x, h):
    cell, plain = make(GRUResetBeforeCell), make(StatelessCell)
    hold(cell, 0, SHUT)
    hold(cell, 1, SHUT)
    copy_block(cell, 2, plain)
    with torch.no_grad():
        plain.bias_ih += cell.bias_hh[2 * HIDDEN :]
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)


def test_reset_after_the_product_also_takes_the_hidden_bias_away(x, h):
    """The one place where the two GRUs differ even with a shut reset gate."""
    cell, plain = make(GRUCell), make(StatelessCell)
    hold(cell, 0, SHUT)
    hold(cell, 1, SHUT)
    copy_block(cell, 2, plain)
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)


@pytest.mark.parametrize("kind", [GRUCell, GRUResetBeforeCell])
def test_gru_with_an_open_update_gate_keeps_its_state(kind, x, h):
    cell = make(kind)
    hold(cell, 1, OPEN)
    torch.testing.assert_close(run(cell, x, h), h[:, None].expand(B, T, HIDDEN), **NEAR)


def test_the_two_grus_differ_only_in_where_reset_acts(x, h):
    after, before = make(GRUCell), make(GRUResetBeforeCell)
    before.load_state_dict(after.state_dict())
    assert (run(after, x, h) - run(before, x, h)).abs().max() > 1e-3
    hold(after, 0, OPEN)
    hold(before, 0, OPEN)
    torch.testing.assert_close(run(after, x, h), run(before, x, h), **NEAR)


def test_stateless_sees_the_present_alone(x, h):
    cell = make(StatelessCell)
    assert [name for name, _ in cell.named_parameters()] == ["weight_ih", "bias_ih"]
    outputs = run(cell, x, h)
    torch.testing.assert_close(outputs, torch.tanh(x @ cell.weight_ih.T + cell.bias_ih), **NEAR)
    order = torch.randperm(T)
    torch.testing.assert_close(run(cell, x[:, order]), outputs[:, order], **NEAR)


def test_additive_is_the_sum_of_all_that_came(x, h):
    cell = make(AdditiveCell)
    recording = Recurrent(cell).record(x, HiddenState(h))
    torch.testing.assert_close(recording.states.h, h[:, None] + recording.gates.u.cumsum(1), **NEAR)


def test_additive_has_a_straight_way_through():
    """Without recurrent weights the gradient to the first state is the identity, however long the run."""
    cell = make(AdditiveCell)
    with torch.no_grad():
        cell.weight_hh.zero_()
    start = torch.zeros(1, HIDDEN, dtype=torch.float64, requires_grad=True)
    outputs = run(cell, torch.randn(1, 50, INPUT, dtype=torch.float64), start)
    torch.testing.assert_close(torch.autograd.grad(outputs[0, -1, 2], start)[0][0], torch.eye(HIDDEN).double()[2])


def test_rnn_is_additive_without_the_old(x, h):
    cell, plain = make(AdditiveCell), make(RNNCell)
    plain.load_state_dict(cell.state_dict())
    projected = cell.project(x[:, 0])
    torch.testing.assert_close(
        cell.step(projected, HiddenState(h))[0].h, h + plain.step(projected, HiddenState(h))[0].h, **NEAR
    )


def test_relu_rnn_is_the_rnn_with_another_bend(x, h):
    cell = make(ReLURNNCell)
    before = cell.project(x[:, 0]) + cell.recur(h)
    torch.testing.assert_close(run(cell, x, h)[:, 0], before.clamp(min=0), **NEAR)


def test_two_gates_with_complementary_gates_is_the_coupled_gate(x, h):
    """i = 1 - f because s(-a) = 1 - s(a)."""
    coupled, cell = make(CoupledGateCell), make(TwoGateCell)
    copy_block(coupled, 0, cell, 1)
    copy_block(coupled, 1, cell, 2)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter[:HIDDEN] = -parameter[HIDDEN : 2 * HIDDEN]
    torch.testing.assert_close(run(cell, x, h), run(coupled, x, h), **NEAR)


def test_two_gates_held_open_is_additive(x, h):
    cell, plain = make(TwoGateCell), make(AdditiveCell)
    hold(cell, 0, OPEN)
    hold(cell, 1, OPEN)
    copy_block(cell, 2, plain)
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)


def test_coupled_gate_shut_is_an_rnn_and_open_keeps(x, h):
    cell, plain = make(CoupledGateCell), make(RNNCell)
    copy_block(cell, 1, plain)
    hold(cell, 0, SHUT)
    torch.testing.assert_close(run(cell, x, h), run(plain, x, h), **NEAR)
    hold(cell, 0, OPEN)
    torch.testing.assert_close(run(cell, x, h), h[:, None].expand(B, T, HIDDEN), **NEAR)


def test_coupled_gate_is_a_gru_that_resets_nothing(x, h):
    coupled, cell = make(CoupledGateCell), make(GRUCell)
    hold(cell, 0, OPEN)
    copy_block(cell, 1, coupled, 0)
    copy_block(cell, 2, coupled, 1)
    torch.testing.assert_close(run(coupled, x, h), run(cell, x, h), **NEAR)


def test_lstm_that_does_not_remember_is_a_gated_rnn(x, h):
    """With the forget gate shut and input and output open: h' = tanh(tanh(W x + U h))."""
    cell, plain = make(LSTMCell), make(RNNCell)
    for block, bias in ((0, OPEN), (1, SHUT), (3, OPEN)):
        hold(cell, block, bias)
    copy_block(cell, 2, plain)
    first = run(plain, x[:, :1], h)
    torch.testing.assert_close(run(cell, x, h, torch.ones_like(h))[:, :1], torch.tanh(first), **NEAR)


def test_lstm_memory_is_two_gates_behind_an_output_gate(x):
    """Without recurrent weights the memory cell follows the third rung exactly; h only reads it."""
    cell, rung = make(LSTMCell), make(TwoGateCell)
    with torch.no_grad():
        cell.weight_hh.zero_()
    for block in range(3):
        copy_block(cell, block, rung, block)
    recording = Recurrent(cell).record(x)
    torch.testing.assert_close(recording.states.c, run(rung, x), **NEAR)
    torch.testing.assert_close(recording.states.h, recording.gates.o * torch.tanh(recording.states.c), **NEAR)


def test_lstm_memory_kept_and_hidden_closed(x, h):
    cell = make(LSTMCell)
    for block, bias in ((0, SHUT), (1, OPEN), (3, SHUT)):
        hold(cell, block, bias)
    outputs, last = Recurrent(cell)(x, LSTMState(h, 2 * h))
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
    for key, parameter in cell.named_parameters():
        assert parameter.any()
        if (name, key) not in {("rg-lru", "decay"), ("slstm", "bias_ih")}:  # those start at values of their own
            assert parameter.abs().max() <= HIDDEN**-0.5


@pytest.mark.parametrize("sizes", [(0, 5), (4, -1), (-1, 5)])
def test_sizes_are_checked(sizes):
    with pytest.raises(
        WeftError, match=rf"GRUCell: input_size={sizes[0]}, hidden_size={sizes[1]}; expected an input_size of 1"
    ):
        GRUCell(*sizes)


# --- calling a cell: one step, as torch.nn's cells -------------------------------------------------------------------

TORCH_CELLS = {
    RNNCell: torch.nn.RNNCell,
    ReLURNNCell: lambda *sizes, **how: torch.nn.RNNCell(*sizes, nonlinearity="relu", **how),
    GRUCell: torch.nn.GRUCell,
    LSTMCell: torch.nn.LSTMCell,
}


@pytest.mark.parametrize("rows", [3, None])
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("kind", TORCH_CELLS)
def test_calling_a_cell_is_one_step_as_in_torch(kind, with_state, rows):
    cell = make(kind)
    theirs = TORCH_CELLS[kind](INPUT, HIDDEN, dtype=torch.float64)
    theirs.load_state_dict(cell.state_dict())
    shape = () if rows is None else (rows,)
    x = torch.randn(*shape, INPUT, dtype=torch.float64, requires_grad=True)
    state = None
    if with_state:
        parts = [torch.randn(*shape, HIDDEN, dtype=torch.float64, requires_grad=True) for _ in cell.state_type._fields]
        state = tuple(parts) if kind is LSTMCell else parts[0]
    found, expected = cell(x, state), theirs(x, state)
    found, expected = (found, expected) if kind is LSTMCell else ((found,), (expected,))
    assert len(found) == len(expected)
    wanted = [x, *(parts if with_state else ())]
    for ours, other in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, other, **NEAR)
        for a, b in zip(
            torch.autograd.grad(
                ours.square().sum(), [*wanted, *cell.parameters()], retain_graph=True, allow_unused=True
            ),
            torch.autograd.grad(
                other.square().sum(), [*wanted, *theirs.parameters()], retain_graph=True, allow_unused=True
            ),
            strict=True,
        ):
            torch.testing.assert_close(a, b, **NEAR)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", TORCH_CELLS)
def test_cells_are_made_as_in_torch(kind, bias):
    """Constructor arguments, draws, parameters, state_dict both ways, results."""
    torch.manual_seed(3)
    theirs = TORCH_CELLS[kind](INPUT, HIDDEN, bias=bias, device="cpu", dtype=torch.float64)
    torch.manual_seed(3)
    ours = kind(INPUT, HIDDEN, bias=bias, device="cpu", dtype=torch.float64)
    assert [(name, p.shape) for name, p in ours.named_parameters()] == [
        (name, p.shape) for name, p in theirs.named_parameters()
    ]
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(3, INPUT, dtype=torch.float64)
    found, expected = ours(input=x, hx=None), theirs(input=x, hx=None)
    torch.testing.assert_close(*([*each] if kind is LSTMCell else [each] for each in (found, expected)), **NEAR)
    layer = Recurrent(ours)  # on the engine, too
    torch.testing.assert_close(layer(x[:, None])[0][:, 0], found[0] if kind is LSTMCell else found, **NEAR)
    assert torch.equal(pickle.loads(pickle.dumps(ours)).weight_hh, ours.weight_hh)
    assert kind(INPUT, HIDDEN, bias, device="meta")(torch.zeros(3, INPUT, device="meta")) is not None


def test_the_nonlinearity_selects_the_cell():
    assert type(RNNCell(4, 5, nonlinearity="relu")) is ReLURNNCell
    assert type(RNNCell(4, 5, True, "relu")) is ReLURNNCell
    assert type(RNNCell(4, 5, nonlinearity="tanh")) is RNNCell
    assert RNNCell(4, 5, nonlinearity="relu").nonlinearity == "relu"
    with pytest.raises(WeftError, match='nonlinearity is \'gelu\'; expected "tanh" or "relu"'):
        RNNCell(4, 5, nonlinearity="gelu")
    with pytest.raises(WeftError, match="ReLURNNCell: nonlinearity is 'tanh'"):
        ReLURNNCell(4, 5, nonlinearity="tanh")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TORCH_CELLS)
def test_cells_of_torch_s_own_tests(kind):
    """The inputs that torch tests its cells with; and one graph for torch.compile, autocast, gradients of gradients."""
    from torch.testing._internal.common_modules import module_db

    (info,) = (info for info in module_db if info.module_cls is getattr(torch.nn, kind.__name__.removeprefix("ReLU")))
    for one in info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=False, training=True):
        arguments, options = one.constructor_input.args, one.constructor_input.kwargs
        if options.get("nonlinearity", "tanh") != getattr(kind, "nonlinearity", "tanh"):
            continue
        theirs, ours = (make(*arguments, **options).double() for make in (info.module_cls, kind))
        ours.load_state_dict(theirs.state_dict())
        x, *state = one.forward_input.args
        expected, found = theirs(x, *state), ours(x, *state)
        torch.testing.assert_close(*([*each] if kind is LSTMCell else [each] for each in (found, expected)), **NEAR)
    cell, x = kind(INPUT, HIDDEN).double(), torch.randn(3, INPUT, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(cell, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), cell(x))

    def output(x):
        return cell(x)[0] if kind is LSTMCell else cell(x)

    assert torch.autograd.gradgradcheck(output, (x + 0.3,))
    theirs, ours = TORCH_CELLS[kind](INPUT, HIDDEN), kind(INPUT, HIDDEN)
    ours.load_state_dict(theirs.state_dict())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = (one(x.detach().float()) for one in (ours, theirs))
    for a, b in zip(*([*each] if kind is LSTMCell else [each] for each in (found, expected)), strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", CELLS)
def test_calling_a_cell_step_by_step_is_the_layer(name, x):
    cell = make(CELLS[name])
    state, outputs = None, []
    for t in range(T):
        state = cell(x[:, t], state)
        outputs.append(state if isinstance(state, torch.Tensor) else state.h)
    torch.testing.assert_close(torch.stack(outputs, 1), Recurrent(cell)(x)[0], **NEAR)


def test_a_cell_reads_token_ids_as_one_hot_vectors():
    cell = make(GRUCell)
    ids = torch.tensor([2, 0, 3])
    torch.testing.assert_close(cell(ids), cell(torch.eye(INPUT, dtype=torch.float64)[ids]), **NEAR)


@pytest.mark.parametrize(
    ("x", "state", "message"),
    [
        (torch.zeros(3, 6, INPUT), None, r"input is \(3, 6, 4\); expected \(B, 4\) .* Try: weft.nn.Recurrent\(cell\)"),
        (torch.zeros(3, 7), None, r"input is \(3, 7\); expected \(B, 4\) because input_size=4"),
        (torch.zeros(7), None, r"input is \(7,\); expected \(B, 4\)"),
        (torch.zeros(3, INPUT), torch.zeros(3, HIDDEN), "LSTMCell: state is Tensor .* Try: LSTMState"),
        (torch.zeros(3, INPUT), (torch.zeros(2, HIDDEN),) * 2, r"expected LSTMState of \(3, 5\)"),
    ],
)
def test_what_a_cell_is_called_with_is_checked(x, state, message):
    with pytest.raises(WeftError, match=message):
        LSTMCell(INPUT, HIDDEN)(x, state)


# --- the check of a custom cell ---------------------------------------------------------------------------------


class Custom(Cell):
    """A correct custom cell; the mistakes below change one thing each."""

    blocks = 1

    def step(self, x_proj, state):
        h = torch.tanh(x_proj + self.recur(state.h))
        return HiddenState(h), Candidate(h)


class NoGates(Custom):
    def step(self, x_proj, state):
        return super().step(x_proj, state)[0], None


class BareState(Custom):
    def step(self, x_proj, state):
        (h,), gates = super().step(x_proj, state)
        return h, gates


class StateAlone(Custom):
    def step(self, x_proj, state):
        return super().step(x_proj, state)[0]


class PlainTupleOfGates(Custom):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return new, tuple(gates)


class AnotherState(Custom):
    def step(self, x_proj, state):
        (h,), gates = super().step(x_proj, state)
        return LSTMState(h, h), gates


class AnotherShape(Custom):
    def step(self, x_proj, state):
        (h,), gates = super().step(x_proj, state)
        return HiddenState(h[:1]), gates


class WrongLabels(Custom):
    def step(self, x_proj, state):
        (h,), gates = super().step(x_proj, state)
        return HiddenState(h), MislabelledGates(*gates)


class MislabelledGates(NamedTuple):
    f: torch.Tensor
    labels = {"forget": "forget gate"}  # noqa: RUF012


class RandomStep(Custom):
    def step(self, x_proj, state):
        torch.rand(1)
        return super().step(x_proj, state)


@pytest.fixture(params=["engine", "torch"])
def backend(request, monkeypatch):
    """The same mistake gives the same message with the engine on and off, at every first use."""
    if request.param == "torch":
        monkeypatch.setattr("weft.engine.cells.usable", lambda: False)
    monkeypatch.setattr("weft.cells.base.CHECKED", set())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoGates, r"NoGates.step returns None as the gates; expected a NamedTuple of tensors"),
        (BareState, r"BareState.step returns a tensor of \(2, 5\) as the state; expected HiddenState.* Try: return "),
        (StateAlone, r"StateAlone.step returns a HiddenState of 1; expected a pair: state, gates"),
        (PlainTupleOfGates, r"returns a tuple of 1 as the gates; expected a NamedTuple"),
        (AnotherState, r"returns a LSTMState of 2 as the state; expected HiddenState, the cell's state_type"),
        (WrongLabels, r"MislabelledGates: labels is {'forget': 'forget gate'}; expected a dict from some of f to what"),
        (AnotherShape, r"returns a tensor of \(1, 5\) as `h` of the state .* expected a tensor of \(2, 5\)"),
    ],
)
def test_a_custom_cell_is_checked_at_its_first_use(kind, message, backend):
    x = torch.zeros(3, 6, INPUT)
    cell = kind(INPUT, HIDDEN)
    for use in (Recurrent(cell), Recurrent(cell).record, make_stack(kind, INPUT, HIDDEN, layers=2, bidirectional=True)):
        with pytest.raises(WeftError, match=message):
            use(x)
    with pytest.raises(WeftError, match=message):
        cell(x[:, 0])


def test_the_check_leaves_the_random_state_alone(backend):
    cell, before = RandomStep(INPUT, HIDDEN), torch.get_rng_state()
    check_cell("test", cell)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", CELLS)
def test_all_gates_and_states_are_called_something(name):
    cell = CELLS[name](INPUT, HIDDEN)
    for part in cell.step(torch.zeros(1, HIDDEN * cell.blocks), cell.initial_state(1)):
        assert type(part).labels.keys() == set(part._fields)


def test_a_cell_without_blocks_is_refused():
    class NoBlocks(Cell):
        def step(self, x_proj, state):
            raise NotImplementedError

    with pytest.raises(WeftError, match=r"NoBlocks: the class attribute `blocks` is missing; expected G"):
        NoBlocks(INPUT, HIDDEN)


def test_a_cell_class_may_stand_where_a_name_may():
    torch.manual_seed(0)
    by_class = make_stack(GRUCell, INPUT, HIDDEN, layers=2)
    torch.manual_seed(0)
    by_name = make_stack("gru", INPUT, HIDDEN, layers=2)
    x = torch.randn(2, 3, INPUT)
    assert torch.equal(by_class(x)[0], by_name(x)[0])
    assert make_stack(Custom, INPUT, HIDDEN, bidirectional=True).output_size == 2 * HIDDEN


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Recurrent(GRUCell),
            r"Recurrent: cell is the class GRUCell; .* Try: GRUCell\(input_size, hidden_size\)",
        ),
        (lambda: Bidirectional(GRUCell, GRUCell), "Bidirectional: cell is the class GRUCell"),
        (lambda: Recurrent("gru"), r"Recurrent: cell is 'gru'; expected an instance of a weft.cells.Cell"),
        (lambda: make_stack(GRUCell(4, 5), 4, 5), "make_stack: cell is an instance of GRUCell; expected the class"),
        (lambda: make_stack("gur", 4, 5), "cell 'gur' is not known"),
        (lambda: make_stack(torch.nn.GRUCell, 4, 5), "cell .* is not known"),
    ],
)
def test_what_is_passed_as_a_cell_is_checked(build, message):
    with pytest.raises(WeftError, match=message):
        build()
