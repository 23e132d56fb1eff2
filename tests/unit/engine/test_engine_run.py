"""What stands between a layer and the core: parameters as they are at each call, one memory for all layers, and
gradients that come in any form or not at all."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import weft
from weft import engine
from weft.cells import GRUCell, LSTMCell, RNNCell
from weft.errors import WeftError
from weft.nn import Bidirectional, Recurrent, Stack
from weft.nn.steps import run_steps

pytestmark = pytest.mark.skipif(engine.library() is None, reason="the engine is not built")


def plain(layer: Recurrent, x: torch.Tensor) -> torch.Tensor:
    return run_steps(engine.Pass(layer.cell, False), x, layer.cell.initial_state(x.shape[0]), None)[0].h


def odd_stack(dtype=torch.float64) -> Stack:
    """Layers of different cells and of widths that fill no vector."""
    layers = [
        Bidirectional(LSTMCell(3, 5), GRUCell(3, 2)),
        Recurrent(RNNCell(7, 11)),
        Bidirectional(GRUCell(11, 1), LSTMCell(11, 4)),
    ]
    return Stack(layers).to(dtype)


def one_by_one(stack: Stack, x, state, lengths):
    last = []
    for layer, before in zip(stack.layers, state, strict=True):
        x, after = layer(x, before, lengths=lengths)
        last.append(after)
    return x, tuple(last)


def tensors(nest):
    return [nest] if isinstance(nest, torch.Tensor) else [each for part in nest for each in tensors(part)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_lengths", [False, True], ids=["full", "lengths"])
@pytest.mark.parametrize("wanted", ["everything", "outputs", "states", "one state"])
def test_all_layers_at_once_are_one_after_the_other(dtype, with_lengths, wanted):
    torch.manual_seed(0)
    stack, x = odd_stack(dtype), torch.randn(6, 5, 3, dtype=dtype, requires_grad=True)
    lengths = torch.tensor([5, 0, 2, 5, 1, 3]) if with_lengths else None
    start = stack.initial_state(6)
    for part in tensors(start):
        part.normal_().requires_grad_()

    def results(run):
        outputs, last = run(x, start, lengths=lengths)
        chosen = {
            "everything": [outputs, *tensors(last)],
            "outputs": [outputs],
            "states": tensors(last),
            "one state": tensors(last)[1:2],
        }[wanted]
        loss = sum((each * torch.linspace(-1, 2, each.numel(), dtype=dtype).view_as(each)).sum() for each in chosen)
        leaves = [x, *tensors(start), *stack.parameters()]
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        zeros = [torch.zeros_like(a) if b is None else b for a, b in zip(leaves, gradients, strict=True)]
        return [outputs, *tensors(last), *zeros]

    def apart(x, state, *, lengths):
        return one_by_one(stack, x, state, lengths)

    for ours, theirs in zip(results(stack), results(apart), strict=True):
        assert torch.equal(ours, theirs)


def test_parameters_are_those_of_the_call():
    layer, x = Recurrent(GRUCell(3, 5)).double(), torch.randn(2, 4, 3, dtype=torch.float64)
    layer(x)
    layer.cell.weight_hh = nn.Parameter(torch.randn(15, 5, dtype=torch.float64))
    torch.testing.assert_close(layer(x)[0], plain(layer, x))
    with torch.no_grad():
        layer.cell.bias_ih += 1
    torch.testing.assert_close(layer(x)[0], plain(layer, x))
    layer.cell = LSTMCell(3, 2).double()
    torch.testing.assert_close(layer(x)[0], plain(layer, x))
    layer.float()
    torch.testing.assert_close(layer(x.float())[0], plain(layer, x.float()))
    layer(x.float())[0].sum().backward()
    assert all(p.grad.shape == p.shape and p.grad.dtype == torch.float32 for p in layer.parameters())


def test_a_type_that_the_core_cannot_read_and_back():
    layer, x = Recurrent(GRUCell(3, 5)), torch.randn(2, 4, 3)
    expected = layer(x)[0]
    assert layer.bfloat16()(x.bfloat16())[0].dtype == torch.bfloat16
    torch.testing.assert_close(layer.float()(x)[0], expected, rtol=0.1, atol=0.1)
    assert engine.run_layers([layer.passes(x)], x, [[None]], None)


def test_copies_and_pickles_run():
    stack, x = odd_stack(), torch.randn(2, 4, 3, dtype=torch.float64)
    expected = stack(x)[0]
    for other in (copy.deepcopy(stack), pickle.loads(pickle.dumps(stack))):
        assert torch.equal(other(x)[0], expected)
        with torch.no_grad():
            other.layers[0].forward_layer.cell.weight_ih.zero_()
        assert not torch.equal(other(x)[0], expected)
    assert torch.equal(stack(x)[0], expected)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias_hh"])
def test_parametrized_weights(name):
    layer, x = Recurrent(LSTMCell(3, 5)).double(), torch.randn(2, 4, 3, dtype=torch.float64)
    layer(x)
    parametrize.register_parametrization(layer.cell, name, Doubled())
    ours, theirs = layer(x)[0], plain(layer, x)
    torch.testing.assert_close(ours, theirs)
    leaves = list(layer.parameters())
    gradients = [torch.autograd.grad(each.square().sum(), leaves) for each in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_gradients_are_ordinary_tensors():
    stack, x = odd_stack(), torch.randn(2, 4, 3, dtype=torch.float64)
    for _ in range(2):  # the second time they are added to what is there
        stack(x)[0].sum().backward()
    places = {parameter.grad.untyped_storage().data_ptr() for parameter in stack.parameters()}
    assert len(places) == len(list(stack.parameters()))
    for parameter in stack.parameters():
        assert parameter.grad.is_contiguous()
        assert parameter.grad.untyped_storage().nbytes() == parameter.nbytes
    once = copy.deepcopy(stack)
    once.zero_grad()
    once(x)[0].sum().backward()
    for a, b in zip(stack.parameters(), once.parameters(), strict=True):
        torch.testing.assert_close(a.grad, 2 * b.grad)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cell: setattr(cell, "weight_hh", nn.Parameter(torch.randn(12, 4))), r"GRUCell: weight_hh is \(12, 4\)"),
        (lambda cell: setattr(cell, "bias_ih", nn.Parameter(torch.randn(3))), r"GRUCell: bias_ih is \(3,\)"),
        (lambda cell: setattr(cell, "weight_ih", nn.Parameter(torch.randn(15))), r"GRUCell: weight_ih is \(15,\)"),
        (lambda cell: setattr(cell, "weight_ih", nn.Parameter(torch.randn(15, 8))), "GRUCell: x has 3 features"),
        (lambda cell: setattr(cell, "weight_ih", nn.Parameter(torch.randn(9, 3))), r"GRUCell: weight_ih is \(9, 3\)"),
    ],
)
def test_a_parameter_of_another_size_is_refused(change, message):
    layer, x = Recurrent(GRUCell(3, 5)), torch.randn(2, 4, 3)
    layer(x)
    change(layer.cell)
    with pytest.raises(WeftError, match=message):
        layer(x)


def test_a_cell_of_another_size_is_refused():
    stack, x = Stack([Recurrent(GRUCell(3, 5)), Recurrent(GRUCell(5, 4))]), torch.randn(2, 4, 3)
    stack.layers[0].cell = GRUCell(3, 6)
    with pytest.raises(WeftError, match="GRUCell: x has 6 features"):
        stack(x)


def test_a_larger_vocabulary_may_come_later():
    layer = Recurrent(GRUCell(3, 5)).double()
    layer(torch.tensor([[0, 2]]))
    layer.cell.weight_ih = nn.Parameter(torch.randn(15, 9, dtype=torch.float64))
    layer.cell.input_size = layer.input_size = 9
    ids = torch.tensor([[8, 1]])
    torch.testing.assert_close(layer(ids)[0], plain(layer, ids))


def test_dropout_between_layers_is_the_layers_own():
    """The same seed drops the same numbers at once and one after the other, forward and back."""
    torch.manual_seed(3)
    stack = Stack([Recurrent(GRUCell(3, 40)), Recurrent(LSTMCell(40, 6))], dropout=0.4).double()
    x = torch.randn(5, 9, 3, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(7)
    ours = stack(x)[0]
    torch.manual_seed(7)
    between = stack.layers[0](x)[0]
    theirs = stack.layers[1](engine.dropout(between, 0.4))[0]
    assert torch.equal(ours, theirs)
    leaves = [x, *stack.parameters()]
    for a, b in zip(*(torch.autograd.grad(each.square().sum(), leaves) for each in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("cell", "rows", "hidden"), [(LSTMCell, 5, 128), (GRUCell, 16, 200), (LSTMCell, 70, 144)])
def test_inference_projects_some_steps_at_a_time(cell, rows, hidden, threads, precision):
    """With large weights the loop projects its input itself, which in training is one product: the same bits."""
    torch.manual_seed(0)
    inputs = 1_100
    layer = Bidirectional(cell(inputs, hidden), cell(inputs, hidden))
    x = torch.randn(rows, 23, inputs)
    lengths = torch.randint(0, 24, (rows,))
    lengths[0] = 23
    x[torch.arange(23) >= lengths[:, None]] = float("nan")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with weft.precision(precision):
            trained, state = layer(x, lengths=lengths)
            with torch.no_grad():
                outputs, last = layer(x, lengths=lengths)
    finally:
        torch.set_num_threads(before)
    assert trained.requires_grad
    assert torch.equal(outputs, trained)
    for ours, theirs in zip(last, state, strict=True):
        assert torch.equal(ours.h, theirs.h)


def test_int8_projects_some_steps_at_a_time():
    torch.manual_seed(0)
    layer = weft.quantize(Recurrent(LSTMCell(1_500, 192)))
    x, lengths = torch.randn(9, 13, 1_500), torch.tensor([13, 0, 5, 12, 13, 1, 7, 9, 13])
    with torch.no_grad():
        outputs, last = layer(x, lengths=lengths)
        for row in range(9):
            alone, state = layer(x[row : row + 1], lengths=lengths[row : row + 1])
            assert torch.equal(alone[0], outputs[row])
            assert torch.equal(state.h[0], last.h[row])
