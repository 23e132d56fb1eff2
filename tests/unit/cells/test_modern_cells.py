"""Linear recurrences and variants of the LSTM: what each becomes in a special case, extreme inputs, the engine."""

from __future__ import annotations

import pytest
import torch

from tests.checks.cells import check_cell
from tests.checks.equations import EQUATIONS
from weft import engine
from weft.cells import (
    CELLS,
    Candidate,
    Cell,
    GRUCell,
    HiddenState,
    InputForgetGates,
    InputGatedCell,
    LSTMCell,
    LSTMState,
    MinGRUCell,
    MinLSTMCell,
    MogrifierLSTMCell,
    MultiHeadLSTMCell,
    RGLRUCell,
    SLSTMCell,
    SLSTMState,
    SRUCell,
)
from weft.compiler import StepMasks, program_of
from weft.engine import Pass
from weft.engine.cells import plan_of
from weft.nn import Recurrent
from weft.nn.steps import run_steps

MODERN = ("mingru", "minlstm", "sru", "rg-lru", "multi-head-lstm", "slstm", "mogrifier-lstm")
INPUT, HIDDEN = 4, 8
NEAR = {"atol": 1e-11, "rtol": 1e-9}


def make(kind, hidden=HIDDEN):
    torch.manual_seed(11)
    cell = kind(INPUT, hidden).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.uniform_(-0.9, 0.9)
    return cell


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(3, 6, INPUT, dtype=torch.float64)


# --- cells with one defect ------------------------------------------------------------------------------------------


class MinGRUInverted(MinGRUCell):
    def step(self, x_proj, state):
        _, gates = super().step(x_proj, state)
        return HiddenState(gates.z * gates.n + (1 - gates.z) * state.h), gates


class MinLSTMWithoutNormalization(MinLSTMCell):
    def step(self, x_proj, state):
        i, f, u = x_proj.chunk(3, -1)
        i, f = torch.sigmoid(i), torch.sigmoid(f)
        return HiddenState(f * state.h + i * u), InputForgetGates(i, f, u)


class SRUWithOldMemoryInOutput(SRUCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return LSTMState(gates.r * state.c + (1 - gates.r) * gates.k, new.c), gates


class RGLRUWithoutScale(RGLRUCell):
    def step(self, x_proj, state):
        _, gates = super().step(x_proj, state)
        return HiddenState(gates.a * state.h + gates.i * gates.u), gates


class MultiHeadLSTMWithSharedInputs(MultiHeadLSTMCell):
    """With H = 7 there is one head, so only its transpose differs."""

    @property
    def weight_block_diagonal(self):
        dense = super().weight_block_diagonal.view(4, self.hidden_size, self.hidden_size)
        return dense.transpose(1, 2).reshape(-1, self.hidden_size)


class SLSTMWithoutNormalizer(SLSTMCell):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return new._replace(h=gates.o * new.c), gates


class MogrifierWithThreeRounds(MogrifierLSTMCell):
    rounds = 3


@pytest.mark.parametrize(
    "mutant",
    [
        MinGRUInverted,
        MinLSTMWithoutNormalization,
        SRUWithOldMemoryInOutput,
        RGLRUWithoutScale,
        MultiHeadLSTMWithSharedInputs,
        SLSTMWithoutNormalizer,
        MogrifierWithThreeRounds,
    ],
)
def test_mutants_fail(mutant):
    with pytest.raises(AssertionError, match="step: h"):
        check_cell(mutant)


# --- special cases ---------------------------------------------------------------------------------------------------


def test_mingru_is_a_weighted_sum_of_its_candidates(x):
    states, gates = Recurrent(make(MinGRUCell)).record(x)
    expected = sum(
        (1 - gates.z[:, t]) * gates.n[:, t] * gates.z[:, t + 1 :].prod(1) for t in range(x.shape[1])
    )  # the product over no steps is 1
    torch.testing.assert_close(states.h[:, -1], expected, **NEAR)


def test_the_gates_of_minlstm_sum_to_one(x):
    gates = Recurrent(make(MinLSTMCell)).record(x).gates
    torch.testing.assert_close(gates.i + gates.f, torch.ones_like(gates.i), **NEAR)


@pytest.mark.parametrize("hidden", [8, 6, 5, 12, 4])
def test_heads_are_lstms_side_by_side(hidden, x):
    cell = make(MultiHeadLSTMCell, hidden)
    assert cell.heads == {8: 4, 6: 2, 5: 1, 12: 4, 4: 4}[hidden]
    size = hidden // cell.heads
    assert cell.weight_heads.numel() == 4 * hidden**2 // cell.heads
    outputs, last = Recurrent(cell)(x)
    (outputs * torch.linspace(-1, 1, outputs.numel()).view_as(outputs)).sum().backward()
    for head in range(cell.heads):
        own = slice(head * size, (head + 1) * size)
        alone = LSTMCell(INPUT, size).double()
        rows = torch.cat([torch.arange(hidden)[own] + gate * hidden for gate in range(4)])
        with torch.no_grad():
            for name, source in (("weight_hh", "weight_heads"), ("weight_ih",) * 2, ("bias_ih",) * 2, ("bias_hh",) * 2):
                getattr(alone, name).copy_(getattr(cell, source)[rows])
        expected, last_alone = Recurrent(alone)(x)
        torch.testing.assert_close(outputs[..., own], expected, **NEAR)
        torch.testing.assert_close(last.c[:, own], last_alone.c, **NEAR)
        weights = torch.linspace(-1, 1, outputs.numel()).view_as(outputs)[..., own]
        (expected * weights).sum().backward()
        torch.testing.assert_close(cell.weight_heads.grad[rows], alone.weight_hh.grad, **NEAR)
        torch.testing.assert_close(cell.weight_ih.grad[rows], alone.weight_ih.grad, **NEAR)


class HeadsOfGRUs(GRUCell):
    """Two GRUs side by side, of which the engine learns by what the cell declares."""

    head_type, heads, computed = GRUCell, 2, ("weight_joined",)

    @property
    def weight_joined(self):
        size = self.hidden_size // 2
        blocks = self.weight_hh.view(3, 2, size, 2, size)
        return (blocks * torch.eye(2, dtype=blocks.dtype)[None, :, None, :, None]).reshape(self.weight_hh.shape)

    def head_parameters(self):
        size = self.hidden_size // 2

        def part(rows, head):
            return rows.view(3, 2, size, -1)[:, head].reshape(3 * size, -1)

        return [
            {
                "weight_ih": part(self.weight_ih, head),
                "weight_hh": part(self.weight_hh, head)[:, head * size : (head + 1) * size].contiguous(),
                "bias_ih": part(self.bias_ih, head)[:, 0],
                "bias_hh": part(self.bias_hh, head)[:, 0],
            }
            for head in range(2)
        ]

    def recur(self, h):
        return torch.nn.functional.linear(h, self.weight_joined, self.bias_hh)


class NegatedHeadsOfGRUs(HeadsOfGRUs):
    def step(self, x_proj, state):
        new, gates = super().step(x_proj, state)
        return HiddenState(-new.h), gates


@pytest.mark.parametrize("kind", [HeadsOfGRUs, NegatedHeadsOfGRUs])
def test_a_custom_cell_declares_its_heads(kind, monkeypatch):
    """The engine runs what is declared; a subclass with another step runs as a whole."""
    layer, x = Recurrent(make(kind, 8)), torch.randn(3, 5, INPUT, dtype=torch.float64, requires_grad=True)
    declared, parameters_of = [], HeadsOfGRUs.head_parameters
    monkeypatch.setattr(kind, "head_parameters", lambda cell: declared.append(cell) or parameters_of(cell))
    (fast := layer(x)[0]).sin().sum().backward()
    gradients = [x.grad.clone(), *(parameter.grad.clone() for parameter in layer.parameters())]
    state, outputs = layer.cell.initial_state(3), []
    for t in range(5):
        state, _ = layer.cell.step(layer.cell.project(x[:, t]), state)
        outputs.append(state.h)
    x.grad = None
    layer.zero_grad()
    torch.stack(outputs, 1).sin().sum().backward()
    torch.testing.assert_close(fast, torch.stack(outputs, 1), **NEAR)
    for found, parameter in zip(gradients, [x, *layer.parameters()], strict=True):
        torch.testing.assert_close(found, parameter.grad, **NEAR)
    assert bool(declared) == (kind is HeadsOfGRUs)


def test_mogrifier_with_half_open_gates_is_an_lstm(x):
    cell, plain = make(MogrifierLSTMCell), LSTMCell(HIDDEN, HIDDEN).double()
    with torch.no_grad():
        cell.weight_q.zero_()
        cell.weight_r.zero_()
        for name, source in (("weight_ih", "weight_x"), ("weight_hh", "weight_h"), ("bias_ih", "bias_gates")):
            getattr(plain, name).copy_(getattr(cell, source))
        plain.bias_hh.zero_()
    torch.testing.assert_close(Recurrent(cell)(x)[0], Recurrent(plain)(cell.project(x))[0], **NEAR)


def test_the_common_scale_of_an_slstm_cancels():
    cell, x = make(SLSTMCell), torch.randn(3, INPUT, dtype=torch.float64)
    h, c, n, m = torch.rand(4, 3, HIDDEN, dtype=torch.float64) + 0.1
    one = cell(x, SLSTMState(h, c, n, m))
    other = cell(x, SLSTMState(h, 5 * c, 5 * n, m - torch.log(torch.tensor(5.0, dtype=torch.float64))))
    torch.testing.assert_close(one.h, other.h, **NEAR)


def test_initial_values():
    torch.manual_seed(0)
    decay = torch.exp(-torch.nn.functional.softplus(RGLRUCell(INPUT, 500).decay.detach()))
    assert 0.9 <= float(decay.min()) < 0.91
    assert 0.99 < float(decay.max()) <= 0.9991
    bias = SLSTMCell(INPUT, 5).bias_ih[5:10]
    assert bias.tolist() == pytest.approx([3, 3.75, 4.5, 5.25, 6])


@pytest.mark.parametrize("name", MODERN)
@pytest.mark.parametrize("scale", [300.0, -300.0])
def test_extreme_inputs_give_finite_values_and_gradients(name, scale):
    torch.manual_seed(2)
    layer, x = Recurrent(CELLS[name](INPUT, HIDDEN)), torch.randn(2, 5, INPUT).sign() * scale
    x.requires_grad_()
    for outputs in (layer(x)[0], layer.record(x).states.h):
        assert outputs.isfinite().all()
        found = torch.autograd.grad(outputs.square().mean(), [x, *layer.parameters()], allow_unused=True)
        assert all(gradient is None or gradient.isfinite().all() for gradient in found)


@pytest.mark.parametrize("name", MODERN)
def test_without_biases(name, x):
    cell = CELLS[name](INPUT, HIDDEN, bias=False, dtype=torch.float64)
    assert not [parameter for parameter, _ in cell.named_parameters() if parameter.startswith("bias")]
    assert Recurrent(cell)(x)[0].isfinite().all()


# --- the engine ------------------------------------------------------------------------------------------------------


def test_every_modern_cell_has_equations_of_its_own():
    assert {CELLS[name] for name in MODERN} <= set(EQUATIONS)


@pytest.mark.parametrize("name", MODERN)
def test_the_engine_runs_it_and_a_linear_recurrence_has_no_product_in_the_loop(name):
    cell = CELLS[name](INPUT, HIDDEN)
    assert plan_of(cell) is not None
    linear = isinstance(cell, InputGatedCell)
    assert len(program_of(cell).products) == (0 if linear else 6 if name == "mogrifier-lstm" else 1)
    assert [n for n, p in cell.named_parameters() if p.dim() == 2 and n != "weight_ih"] == [] or not linear


@pytest.mark.parametrize("name", MODERN)
def test_recurrent_dropout_is_the_same_with_and_without_the_engine(name, x):
    torch.manual_seed(4)
    cell = make(CELLS[name])
    mask = torch.bernoulli(torch.full((3, HIDDEN), 0.5, dtype=torch.float64)) * 2
    run = Pass(cell, False, StepMasks(recurrent_dropout=True), mask)
    outputs, _ = engine.run_layers([[run]], x, [[None]], None)
    states, _, _ = run_steps(run, x, cell.initial_state(3), None)
    torch.testing.assert_close(outputs, states.h, **NEAR)


@pytest.mark.parametrize("noise", [StepMasks(), StepMasks(recurrent_dropout=True), StepMasks(zoneout=True)])
@pytest.mark.parametrize("reverse", [False, True])
def test_heads_run_as_the_whole_cell_does(noise, reverse, x):
    cell, state = make(MultiHeadLSTMCell), LSTMState(*torch.randn(2, 3, HIDDEN, dtype=torch.float64))
    masks = [torch.bernoulli(torch.full(size, 0.5, dtype=torch.float64)) for size in ((3, 8), (3, 6, 16))]
    row_mask, step_mask = (mask if wanted else None for mask, wanted in zip(masks, noise[:2], strict=True))
    run, lengths = Pass(cell, reverse, noise, row_mask, step_mask), torch.tensor([6, 2, 0])
    states, _, last = run_steps(run, x, state, lengths)
    outputs, ((last_here,),) = engine.run_layers([[run]], x, [[state]], lengths)
    for ours, expected in zip((outputs, *last_here), (states.h, *last), strict=True):
        torch.testing.assert_close(ours, expected, **NEAR)
    found, wanted = (
        torch.autograd.grad(h.sum() + end.c.square().sum(), list(cell.parameters()))
        for h, end in ((outputs, last_here), (states.h, last))
    )
    for ours, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, expected, **NEAR)


def test_a_custom_cell_may_compute_a_weight_from_parameters(x):
    class SymmetricRNN(Cell):
        blocks = 1
        computed = ("symmetric",)

        @property
        def symmetric(self):
            return self.weight_hh + self.weight_hh.t()

        def step(self, x_proj, state):
            u = torch.tanh(x_proj + torch.nn.functional.linear(state.h, self.symmetric))
            return HiddenState(u), Candidate(u)

    cell = make(SymmetricRNN)
    assert plan_of(cell) is not None
    check_cell(SymmetricRNN, dtypes=[torch.float64])
