"""The engine gives what the plain loop gives, values and gradients, for every cell, shape, direction and length."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from examples.own_cell import OWN_CELLS
from tests.checks.comparisons import reachable
from weft import engine
from weft.cells import CELLS, Cell, GRUCell, HiddenState, LSTMCell, RNNCell
from weft.compiler import StepMasks
from weft.engine import Pass
from weft.errors import WeftError
from weft.nn import Bidirectional, Recurrent, make_stack
from weft.nn.steps import run_steps

pytestmark = pytest.mark.skipif(engine.library() is None, reason="the engine is not built")
ALL = {**CELLS, **OWN_CELLS}
NEAR = {torch.float64: {"rtol": 1e-9, "atol": 1e-10}, torch.float32: {"rtol": 2e-4, "atol": 2e-5}}


def randomised(cell: Cell, dtype=torch.float64, bound=0.5) -> Cell:
    """Random, non-zero parameters: zeros hide what is swapped."""
    cell = cell.to(dtype)
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -bound, bound)
    return cell


def random_state(cell: Cell, rows: int):
    parts = (torch.randn(rows, cell.hidden_size, dtype=cell.weight_ih.dtype) for _ in cell.initial_state(1))
    return reachable(cell.state_type(*(part.requires_grad_() for part in parts)))


def results(run, cell, x, state):
    """Outputs, last state and all gradients of one run, by name."""
    leaves = {**dict(cell.named_parameters()), **dict(zip(state._fields, state, strict=True))}
    if x.is_floating_point():
        leaves["x"] = x
    for leaf in leaves.values():
        leaf.grad = None
    outputs, last = run()
    weights = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype).view_as(outputs)
    loss = (outputs * weights).sum()
    for n, part in enumerate(last, 1):
        loss = loss + (part * torch.linspace(-n, 1, part.numel(), dtype=part.dtype).view_as(part)).sum()
    if loss.requires_grad:
        loss.backward()
    found = {"outputs": outputs, **{f"last {name}": part for name, part in zip(state._fields, last, strict=True)}}
    zero = torch.zeros((), dtype=outputs.dtype)
    return {**found, **{f"d {name}": zero + 0 if v.grad is None else v.grad for name, v in leaves.items()}}


def compare(cell, x, *, lengths=None, reverse=False, state=None):
    state = random_state(cell, x.shape[0]) if state is None else state
    assert engine.run_layers([[Pass(cell, reverse)]], x, [[None]], None)  # or else plain is compared with plain
    ours = results(lambda: Recurrent(cell, reverse=reverse)(x, state, lengths=lengths), cell, x, state)

    def plain():
        states, _, last = run_steps(Pass(cell, reverse), x, state, lengths)
        return states.h, last

    for name, theirs in results(plain, cell, x, state).items():
        mine, theirs = torch.broadcast_tensors(ours[name], theirs)  # no gradient is a zero
        torch.testing.assert_close(mine, theirs, **NEAR[cell.weight_ih.dtype], msg=lambda m, n=name: f"{n}: {m}")


def make_x(B, T, inputs, ids, dtype=torch.float64):
    return torch.randint(0, inputs, (B, T)) if ids else torch.randn(B, T, inputs, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("reverse", [False, True], ids=["ahead", "reverse"])
@pytest.mark.parametrize("ids", [False, True], ids=["numbers", "ids"])
def test_every_cell(name, reverse, ids):
    torch.manual_seed(1)
    for B, T, inputs, H in [(3, 5, 4, 7), (14, 3, 6, 128)]:
        cell = randomised(ALL[name](inputs, H))
        compare(cell, make_x(B, T, inputs, ids), reverse=reverse)
        compare(cell, make_x(B, T, inputs, ids), reverse=reverse, lengths=torch.randint(0, T + 1, (B,)))


def test_frozen_parameters_get_no_gradient_and_change_no_other():
    cell, x = randomised(LSTMCell(4, 5)), torch.randn(3, 6, 4, dtype=torch.float64)
    expected = torch.autograd.grad(Recurrent(cell)(x)[0].sum(), [cell.weight_ih, cell.bias_hh])
    cell.weight_hh.requires_grad_(False)
    cell.bias_ih.requires_grad_(False)
    Recurrent(cell)(x)[0].sum().backward()
    assert cell.weight_hh.grad is None
    assert cell.bias_ih.grad is None
    torch.testing.assert_close([cell.weight_ih.grad, cell.bias_hh.grad], list(expected))


def test_a_large_vocabulary():
    torch.manual_seed(0)
    compare(randomised(LSTMCell(3000, 5)), make_x(3, 7, 3000, True), lengths=torch.tensor([7, 0, 4]))
    compare(randomised(GRUCell(3000, 5)), make_x(3, 7, 3000, True))


@pytest.mark.parametrize("gradient", ["sum", "one number", "transposed", "some rows"])
def test_gradients_of_any_layout(gradient):
    cell, x = randomised(GRUCell(4, 32)), torch.randn(3, 6, 4, dtype=torch.float64)

    def loss(outputs):
        if gradient == "sum":
            return outputs.sum()
        if gradient == "one number":
            return outputs[1, 2, 3]
        if gradient == "transposed":
            return (outputs.transpose(0, 1) * torch.linspace(0, 1, 3).double()[:, None]).pow(2).sum()
        return outputs[::2, 1:].sum()

    ours = torch.autograd.grad(loss(Recurrent(cell)(x)[0]), list(cell.parameters()))
    plain = run_steps(Pass(cell, False), x, cell.initial_state(3), None)[0].h
    torch.testing.assert_close(list(ours), list(torch.autograd.grad(loss(plain), list(cell.parameters()))))


@pytest.mark.parametrize("name", ALL)
def test_float32(name):
    cell = randomised(ALL[name](5, 130), torch.float32, bound=0.09)
    compare(cell, make_x(17, 4, 5, False, torch.float32))


class Means(Cell):
    """Means of products, of means, and of what has a factor that is the same on all units."""

    blocks = 1

    def step(self, x_proj, state):
        a, h = x_proj + self.recur(state.h), state.h
        overlap = (a * h).mean(-1, keepdim=True)
        size = torch.sqrt((h * h).mean(-1, keepdim=True) + 0.3)
        shift = (-(a * size) * overlap).mean(-1, keepdim=True) + overlap.expand_as(a).mean(-1, keepdim=True)
        h = torch.tanh(a / size - shift)
        return HiddenState(h), HiddenState(h)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("H", [1, 5, 16, 33, 64, 130])
def test_means_and_what_is_the_same_on_all_units(H, dtype):
    torch.manual_seed(1)
    cell = randomised(Means(3, H), dtype, bound=min(0.5, 2 / H**0.5))
    compare(cell, make_x(5, 4, 3, False, dtype), lengths=torch.tensor([4, 1, 0, 3, 4]))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_shape(data):
    B, T, inputs = (data.draw(st.integers(1, 9)) for _ in range(3))
    H = data.draw(st.sampled_from([1, 2, 3, 8, 15, 16, 17, 33, 64, 72, 600]))
    name = data.draw(st.sampled_from(["gru", "gru-reset-before", "lstm", "layer-norm-lstm"]))
    torch.manual_seed(data.draw(st.integers(0, 2**32)))
    # Larger weights make a wide cell chaotic: differences of rounding grow from step to step.
    cell = randomised(ALL[name](inputs, H), bound=min(0.5, 2 / H**0.5))
    lengths = torch.tensor(data.draw(st.lists(st.integers(0, T), min_size=B, max_size=B)))
    x = make_x(B, T, inputs, data.draw(st.booleans()))
    compare(cell, x, lengths=data.draw(st.sampled_from([None, lengths])), reverse=data.draw(st.booleans()))


@pytest.mark.parametrize("name", ["rnn", "gru", "gru-reset-before", "lstm", "peephole-lstm", "layer-norm-lstm"])
def test_gradcheck(name):
    cell = randomised(ALL[name](2, 3))
    state, x = random_state(cell, 2), torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([3, 1])

    def run(x, *leaves):
        outputs, last = Recurrent(cell)(x, cell.state_type(*leaves[: len(state)]), lengths=lengths)
        return outputs, *last

    assert torch.autograd.gradcheck(run, (x, *state, *cell.parameters()))


def test_both_directions_at_once():
    ahead, back = randomised(LSTMCell(4, 6)), randomised(GRUCell(4, 9))
    both, x, lengths = (
        Bidirectional(ahead, back),
        torch.randn(5, 7, 4, dtype=torch.float64),
        torch.tensor([7, 0, 3, 1, 5]),
    )
    outputs, last = both(x, lengths=lengths)
    one, one_last = Recurrent(ahead)(x, lengths=lengths)
    other, other_last = Recurrent(back, reverse=True)(x, lengths=lengths)
    torch.testing.assert_close(outputs, torch.cat([one, other], -1), rtol=0, atol=0)
    for ours, theirs in zip((*last.forward, *last.backward), (*one_last, *other_last), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    outputs.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in both.parameters())


def test_nothing_in_the_padding_reaches_anything():
    cell = randomised(LSTMCell(3, 5))
    x, lengths = torch.randn(3, 4, 3, dtype=torch.float64), torch.tensor([2, 0, 4])
    dirty = x.clone()
    dirty[0, 2:], dirty[1] = math.nan, math.inf
    dirty.requires_grad_()
    outputs, last = Recurrent(cell)(dirty, lengths=lengths)
    assert (outputs[0, 2:] == 0).all()
    assert (outputs[1] == 0).all()
    clean, clean_last = Recurrent(cell)(x, lengths=lengths)
    torch.testing.assert_close(outputs, clean, rtol=0, atol=0)
    (outputs.sum() + last.c.sum()).backward()
    assert all(p.grad.isfinite().all() for p in [*cell.parameters(), dirty])
    assert (dirty.grad[0, 2:] == 0).all()
    assert (dirty.grad[1] == 0).all()
    torch.testing.assert_close(last.c, clean_last.c, rtol=0, atol=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, -1e4])
def test_strange_numbers_go_where_torch_sends_them(value):
    for make in (RNNCell, LSTMCell, GRUCell):
        for dtype in (torch.float32, torch.float64):
            cell = randomised(make(3, 20), dtype)
            x = torch.zeros(2, 3, 3, dtype=dtype)
            x[0, 1, 0] = value
            ours = Recurrent(cell)(x)[0]
            theirs = run_steps(Pass(cell, False), x, cell.initial_state(2), None)[0].h
            torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-5, atol=1e-6)
            assert ours[1].isfinite().all(), "one row's trouble stays its own"


def test_views_of_any_layout():
    cell = randomised(LSTMCell(4, 6))
    x = torch.randn(7, 5, 4, dtype=torch.float64).transpose(0, 1)[:, ::2].requires_grad_()
    wide = torch.randn(5, 12, dtype=torch.float64)
    state = cell.state_type(
        wide[:, ::2].detach().requires_grad_(), torch.randn(6, 5, dtype=torch.float64).t().requires_grad_()
    )
    outputs, last = Recurrent(cell)(x, state)
    states, _, plain_last = run_steps(Pass(cell, False), x, state, None)
    torch.testing.assert_close(outputs, states.h, **NEAR[torch.float64])
    grads = torch.autograd.grad(outputs.transpose(1, 2).sum() + last.c.sum(), [x, *state])
    plain = torch.autograd.grad(states.h.sum() + plain_last.c.sum(), [x, *state])
    for ours, theirs in zip(grads, plain, strict=True):
        torch.testing.assert_close(ours, theirs, **NEAR[torch.float64])


def test_the_same_layer_twice_in_one_graph_and_a_graph_used_twice():
    layer, x = Recurrent(randomised(GRUCell(3, 5))), torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    once, _ = layer(x)
    loss = once.sum() + layer(x * 2)[0].square().sum()
    loss.backward(retain_graph=True)
    first = [parameter.grad.clone() for parameter in layer.parameters()]
    loss.backward()
    for parameter, grad in zip(layer.parameters(), first, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * grad)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_without_gradients(guard):
    layer, x = Recurrent(randomised(LSTMCell(3, 5))), torch.randn(2, 4, 3, dtype=torch.float64)
    expected = layer(x)[0]
    with guard():
        outputs, _ = layer(x)
    assert not outputs.requires_grad
    torch.testing.assert_close(outputs, expected.detach(), rtol=0, atol=0)


def test_copies_are_independent():
    layer, x = Recurrent(randomised(LSTMCell(3, 5))), torch.randn(2, 4, 3, dtype=torch.float64)
    expected = layer(x)[0].detach()
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.cell.weight_hh.zero_()
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=0)
    assert not torch.allclose(other(x)[0], expected)


def test_threads_change_nothing_but_rounding():
    stack, x = (
        make_stack("lstm", 6, 40, layers=2, bidirectional=True).double(),
        torch.randn(9, 5, 6, dtype=torch.float64),
    )

    def run():
        stack.zero_grad()
        outputs, _ = stack(x, lengths=torch.tensor([5, 4, 3, 2, 1, 5, 4, 3, 0]))
        outputs.square().sum().backward()
        return [outputs.detach(), *(parameter.grad.clone() for parameter in stack.parameters())]

    before = torch.get_num_threads()
    try:
        runs = {}
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            runs[threads] = run()
            assert all(torch.equal(a, b) for a, b in zip(run(), runs[threads], strict=True)), "not the same bits twice"
    finally:
        torch.set_num_threads(before)
    for other in (2, 3):
        for a, b in zip(runs[1], runs[other], strict=True):
            torch.testing.assert_close(a, b)


def test_one_row_gives_what_it_gives_in_a_batch():
    layer, x = Recurrent(randomised(LSTMCell(6, 40))), torch.randn(15, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0][7:8], layer(x[7:8])[0])


def test_empty_batches_and_no_steps():
    layer = Recurrent(randomised(LSTMCell(3, 5)))
    for B, T in [(0, 4), (2, 0), (0, 0)]:
        outputs, last = layer(torch.randn(B, T, 3, dtype=torch.float64, requires_grad=True))
        assert outputs.shape == (B, T, 5)
        assert last.h.shape == (B, 5)
        outputs.sum().backward()


def test_long_sequences():
    layer = Recurrent(randomised(RNNCell(2, 3)))
    outputs, last = layer(torch.randint(0, 2, (1, 20_000)))
    torch.testing.assert_close(outputs[:, -1], last.h)


@pytest.mark.parametrize(
    ("x", "state", "message"),
    [
        (torch.randn(2, 4, 3), None, "x is torch.float32.*expected torch.float64"),
        (torch.full((2, 4), 3), None, "token id is outside the vocabulary"),
        (torch.full((2, 4), -1), None, "token id is outside the vocabulary"),
        (torch.zeros(2, 4, dtype=torch.long), HiddenState(torch.zeros(2, 5)), "h is torch.float32"),
    ],
)
def test_mistakes_are_named(x, state, message):
    with pytest.raises(WeftError, match=message):
        Recurrent(randomised(GRUCell(3, 5)))(x, state)


def test_ids_in_the_padding_may_be_anything():
    layer = Recurrent(randomised(GRUCell(3, 5)))
    outputs, _ = layer(torch.tensor([[1, 2, -100]]), lengths=torch.tensor([2]))
    torch.testing.assert_close(outputs[:, :2], layer(torch.tensor([[1, 2]]))[0])


class Branching(Cell):
    """A cell that looks at its values, which a program cannot."""

    blocks = 1

    def step(self, x_proj, state):
        u = torch.tanh(x_proj + self.recur(state.h)) if x_proj.sum() > 0 else torch.tanh(x_proj)
        return HiddenState(u), HiddenState(u)


def test_a_cell_that_cannot_be_traced_runs_as_torch_and_warns_once():
    layer, x = Recurrent(randomised(Branching(3, 5))), torch.randn(2, 4, 3, dtype=torch.float64)
    with pytest.warns(engine.EngineWarning) as warned:
        layer(x)[0].sum().backward()
    layer(x)  # a second warning would be an error here
    (warning,) = warned
    assert "Branching" in str(warning.message)
    assert "test_engine.py, line" in str(warning.message)
    assert "runs as plain torch" in str(warning.message)


@pytest.mark.parametrize("noise", ["recurrent_dropout", "zoneout"])
@pytest.mark.parametrize("name", ["gru", "gru-reset-before", "lstm"])
def test_noise_is_the_same_in_the_engine_and_as_torch(name, noise):
    cell = randomised(CELLS[name](3, 6))
    layer, x = Recurrent(cell, **{noise: 0.4}), torch.randn(4, 5, 3, dtype=torch.float64)
    lengths, state = torch.tensor([5, 0, 2, 4]), random_state(cell, 4)
    for training in (True, False):
        layer.train(training)
        torch.manual_seed(3)
        outputs, last = layer(x, state, lengths=lengths)
        torch.manual_seed(3)
        states, _, plain_last = run_steps(layer.passes(x)[0], x, state, lengths)
        torch.testing.assert_close(outputs, states.h)
        ours = torch.autograd.grad(outputs.square().sum() + last.h.sum(), [*cell.parameters(), *state])
        theirs = torch.autograd.grad(states.h.square().sum() + plain_last.h.sum(), [*cell.parameters(), *state])
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)


class HalfBlind(Cell):
    """No gradient goes through the old state."""

    blocks = 1

    def step(self, x_proj, state):
        u = torch.tanh(x_proj + self.recur(state.h.detach())) * state.h.detach()
        return HiddenState(u), HiddenState(u)


def test_detach_in_a_step_is_respected():
    compare(randomised(HalfBlind(3, 5)), make_x(4, 5, 3, False))


def test_no_noise_leaves_no_trace():
    assert Recurrent(LSTMCell(3, 4)).passes(torch.zeros(1, 1, 3))[0].noise == StepMasks()
    with pytest.raises(WeftError, match="zoneout is 1"):
        Recurrent(LSTMCell(3, 4), zoneout=1.0)


WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset
from weft.cells import LSTMCell
from weft.nn import Recurrent

class Rows(Dataset):
    def __init__(self):
        torch.manual_seed(0)
        self.layer = Recurrent(LSTMCell(3, 70))
        self.x = torch.randn(8, 5, 3)
    def __len__(self):
        return 8
    def __getitem__(self, n):
        torch.set_num_threads(2)
        with torch.no_grad():
            return self.layer(self.x[n:n + 1].expand(4, 5, 3))[0][0]

if __name__ == "__main__":
    torch.set_num_threads(2)
    rows = Rows()
    expected = rows.layer(rows.x)[0]
    expected.sum().backward()
    for way in ("fork", "spawn"):
        found = torch.cat(list(DataLoader(rows, batch_size=4, num_workers=2, multiprocessing_context=way)))
        torch.testing.assert_close(found, expected.detach())
    print("same")
"""


def test_workers_by_fork_and_spawn(tmp_path):
    (tmp_path / "workers.py").write_text(WORKERS)
    done = subprocess.run(
        [sys.executable, tmp_path / "workers.py"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.strip() == "same", done.stderr


@pytest.mark.parametrize("variant", ["off", "baseline", "avx2"])
def test_variants_agree(variant, tmp_path):
    program = (
        "import torch\nfrom weft import engine\nfrom weft.nn import make_stack\n"
        "torch.manual_seed(0)\nstack = make_stack('gru', 5, 37, layers=2)\n"
        "outputs, _ = stack(torch.arange(20).view(4, 5) % 5)\noutputs.square().sum().backward()\n"
        "print(engine.description())\n"
        "print([round(float(p.grad.double().sum()), 2) for p in stack.parameters()])\n"
    )
    found = []
    for choice in ("on", variant):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, "WEFT_ENGINE": choice},
        )
        if "expected one of: on, off" in done.stderr:
            pytest.skip(f"this CPU cannot run {variant}")
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.splitlines())
    assert found[0][1] == found[1][1]
    assert found[1][0] == ("engine: switched off, plain torch" if variant == "off" else f"engine: {variant}")
