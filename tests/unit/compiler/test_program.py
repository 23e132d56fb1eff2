"""Programs: what is traced is what the cell computes, what is derived is its derivative, and what cannot be traced is
named with its line."""

from __future__ import annotations

from operator import attrgetter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from examples.own_cell import OWN_CELLS
from weft.cells import CELLS, Candidate, Cell, GRUCell, HiddenState, LSTMCell
from weft.compiler import Untraceable, evaluate, program_of, trace

ALL = {**CELLS, **OWN_CELLS}


@pytest.mark.parametrize("hidden", [1, 5])
@pytest.mark.parametrize("name", ALL)
def test_traced_equations_give_what_the_step_gives(name, hidden):
    cell = ALL[name](3, hidden).double()
    state = cell.state_type(*(torch.randn(4, hidden, dtype=torch.float64) for _ in cell.initial_state(1)))
    x_proj = torch.randn(4, cell.blocks * hidden, dtype=torch.float64)
    found = evaluate(trace(cell), lambda name: attrgetter(name)(cell), x_proj, state)
    for ours, theirs in zip(found, cell.step(x_proj, state)[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_an_lstm_is_one_product_and_one_segment():
    program = program_of(LSTMCell(3, 4))
    assert [len(product.blocks) for product in program.products] == [4]
    assert [(block.block, block.vector) for block in program.products[0].blocks] == [(g, -1) for g in range(4)]
    assert program.extra == 2, "beside the four gates only h and c are kept; tanh(c) is computed again"
    assert program.d_products == program.operands == 0


def test_a_gru_keeps_its_candidate_product_apart():
    program = program_of(GRUCell(3, 4))
    assert [block.block for block in program.products[0].blocks] == [0, 1, -1]
    assert program.d_products == 1


def test_tracing_leaves_the_random_state_alone():
    cell = LSTMCell(3, 4)
    before = torch.get_rng_state()
    program_of(cell)
    assert torch.equal(torch.get_rng_state(), before)


class Own(Cell):
    """A cell whose update is given from outside."""

    blocks = 1

    def __init__(self, update, hidden_size=5):
        super().__init__(3, hidden_size)
        self.update = update
        self.scale = nn.Parameter(torch.rand(hidden_size) + 0.5)
        self.single = nn.Parameter(torch.tensor(0.7))
        self.other = nn.Parameter(torch.randn(hidden_size, 2 * hidden_size) / hidden_size**0.5)
        self.register_buffer("fixed", torch.rand(hidden_size))

    def step(self, x_proj, state):
        u = self.update(self, x_proj + self.recur(state.h), state.h)
        return HiddenState(u), Candidate(u)


UPDATES = {
    "arithmetic": lambda cell, a, h: (2 * a - h / 3 + 1) * 0.1 - (1 - h) * 0.2,
    "exp and log": lambda cell, a, h: torch.log(torch.exp(-a.abs()) + 1.5) - torch.sqrt(h * h + 0.1),
    "where": lambda cell, a, h: torch.where(a > h, torch.tanh(a), 0.5 * h),
    "extremes": lambda cell, a, h: torch.maximum(a, h).tanh() + torch.minimum(a, h * 0.5).clamp(-0.3, 0.4),
    "relu": lambda cell, a, h: torch.relu(a) * 0.3 - F.leaky_relu(h, 0.2) * 0.1,
    "softplus": lambda cell, a, h: F.softplus(a) * 0.2 + F.silu(h) * 0.1,
    "hard gates and mish": lambda cell, a, h: (
        F.hardsigmoid(4 * a) * h + 0.1 * F.hardswish(3 * h) + 0.1 * F.mish(30 * a)
    ),
    "vectors": lambda cell, a, h: torch.sigmoid(cell.scale) * h + cell.single * torch.tanh(a) + cell.fixed,
    "plain weight": lambda cell, a, h: torch.tanh(a + (h @ cell.other)[:, :5]) * torch.sigmoid((h @ cell.other)[:, 5:]),
    "weight used twice": lambda cell, a, h: torch.tanh(a + F.linear(torch.tanh(a), cell.weight_hh)),
    "norm over units": lambda cell, a, h: torch.tanh(F.layer_norm(a, (5,), cell.scale, cell.fixed)) + 0.1 * h,
    "mean over units": lambda cell, a, h: (
        torch.tanh(a - a.mean(-1, keepdim=True)) / (1 + (h * h).sum(-1, keepdim=True))
    ),
    "cat and slice": lambda cell, a, h: torch.cat([a, h], -1)[:, 5:].tanh() + torch.stack([a, h], 1)[:, 0] * 0.1,
    "lerp and powers": lambda cell, a, h: torch.lerp(h, a.tanh(), 0.3) + 0.1 * h**2 - 0.05 * a.square(),
    "constants": lambda cell, a, h: torch.tanh(a + torch.ones_like(h)) * torch.full((1,), 0.5),
}


@pytest.mark.parametrize("name", UPDATES)
def test_the_vocabulary_of_operations(name):
    cell = Own(UPDATES[name]).double()
    state, x_proj = HiddenState(torch.randn(4, 5, dtype=torch.float64)), torch.randn(4, 5, dtype=torch.float64)
    named = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    (found,) = evaluate(trace(cell), named.__getitem__, x_proj, state)
    torch.testing.assert_close(found, cell.step(x_proj, state)[0].h, rtol=1e-12, atol=1e-12)


def refused_cumsum(cell, a, h):
    return torch.cumsum(a, -1)  # the line that must be named


def refused_branch(cell, a, h):
    return a if a.sum() > 0 else h


@pytest.mark.parametrize(
    ("update", "named"),
    [
        (refused_cumsum, "`cumsum` .*test_program.py, line "),
        (refused_branch, "test_program.py, line "),
        (lambda cell, a, h: a - a.mean(0, keepdim=True), "`mean` over anything but the units"),
        (lambda cell, a, h: a.tanh_(), "`tanh_` changes a tensor in place"),
        (lambda cell, a, h: a + torch.rand(5), "picks units|made outside|not an operation"),
        (lambda cell, a, h: torch.tanh(a[:, torch.tensor([4, 3, 2, 1, 0])]), "`index` is not an operation"),
    ],
)
def test_what_cannot_be_traced_is_named_with_its_line(update, named):
    with pytest.raises(Untraceable, match=named):
        trace(Own(update))


def test_the_named_line_is_the_cells_own():
    with pytest.raises(Untraceable) as why:
        trace(Own(refused_cumsum))
    assert f"line {refused_cumsum.__code__.co_firstlineno + 1})" in str(why.value)
