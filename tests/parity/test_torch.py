"""torch.nn and weft are the same numbers: weights both ways, values and gradients, deep, in two directions, packed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from weft.cells import GRUCell, GRUResetBeforeCell, LSTMCell, RNNCell
from weft.errors import WeftError
from weft.nn import Bidirectional, BothDirections, Recurrent, Stack, make_stack, map_state
from weft.nn.adaptive_softmax import AdaptiveSoftmax
from weft.nn.conversion import from_torch, to_torch

B, T, INPUT, HIDDEN = 4, 6, 3, 5
MODULES = {
    "rnn": lambda *sizes, **options: nn.RNN(*sizes, **options),
    "rnn-relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
    "gru": lambda *sizes, **options: nn.GRU(*sizes, **options),
    "lstm": lambda *sizes, **options: nn.LSTM(*sizes, **options),
}
SHAPES = [(1, False), (1, True), (3, False), (2, True)]  # layers, two directions


def make_module(cell, layers, bidirectional, dtype=torch.float64, **options):
    torch.manual_seed(5)
    module = MODULES[cell](INPUT, HIDDEN, layers, bidirectional=bidirectional, batch_first=True, **options).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-0.8, 0.8)
    return module


def theirs(state, stack):
    """Our nested state as torch's: (layers * directions, B, H), or a pair of them."""
    cells = [cell for layer in state for cell in (layer if isinstance(layer, BothDirections) else (layer,))]
    parts = [torch.stack(part) for part in zip(*cells, strict=True)]
    return tuple(parts) if len(parts) > 1 else parts[0]


def packed_run(module, x, state, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    outputs, last = module(packed, state)
    return pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])[0], last


def parts_of(state):
    return list(state) if isinstance(state, tuple) else [state]


def weighted(results):
    random = torch.Generator().manual_seed(2)
    return sum((r * torch.randn(r.shape, generator=random, dtype=torch.float64).to(r.dtype)).sum() for r in results)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("lengths", [None, [2, 6, 1, 5]])
@pytest.mark.parametrize(("layers", "bidirectional"), SHAPES)
@pytest.mark.parametrize("cell", MODULES)
@pytest.mark.parametrize("way", ["from torch", "to torch"])
def test_values_and_gradients(way, cell, layers, bidirectional, lengths, dtype):
    near = {"atol": 1e-5, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 1e-10, "rtol": 1e-9}
    module = make_module(cell, layers, bidirectional, dtype)
    stack = from_torch(module)
    if way == "to torch":
        module = to_torch(stack)
    x = torch.randn(B, T, INPUT, dtype=dtype, requires_grad=True)
    state = map_state(lambda part: torch.randn_like(part).requires_grad_(), stack.initial_state(B))
    outputs, last = stack(x, state, lengths=None if lengths is None else torch.tensor(lengths))
    their_state = theirs(state, stack)
    if lengths is None:
        expected, last_expected = module(x, their_state)
    else:
        expected, last_expected = packed_run(module, x, their_state, lengths)
    torch.testing.assert_close(outputs, expected, **near)
    last = parts_of(theirs(last, stack))
    for a, b in zip(last, parts_of(last_expected), strict=True):
        torch.testing.assert_close(a, b, **near)

    inputs = [x]
    map_state(lambda part: inputs.append(part) or part, state)
    ours = torch.autograd.grad(weighted([outputs, *last]), [*inputs, *stack.parameters()])
    expected = torch.autograd.grad(
        weighted([expected, *parts_of(last_expected)]), [*inputs, *module.parameters()], retain_graph=True
    )
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, **near)


@pytest.mark.parametrize(("layers", "bidirectional"), SHAPES)
@pytest.mark.parametrize("cell", MODULES)
def test_weights_cross_exactly(cell, layers, bidirectional):
    module = make_module(cell, layers, bidirectional, torch.float32, dropout=0.25 if layers > 1 else 0.0)
    stack = from_torch(module)
    assert stack.dropout == module.dropout
    back = to_torch(stack)
    assert type(back) is type(module)
    assert (back.mode, back.batch_first, back.dropout) == (module.mode, True, module.dropout)
    assert list(back.state_dict()) == list(module.state_dict())
    for name, value in module.state_dict().items():
        assert torch.equal(back.state_dict()[name], value), name
    for ours, their in zip(stack.parameters(), module.parameters(), strict=True):
        assert torch.equal(ours, their)
        assert ours.data_ptr() != their.data_ptr()  # a copy: training one leaves the other alone


def test_a_stack_of_ours_crosses_and_comes_back():
    for cell in MODULES:
        stack = make_stack(cell, INPUT, HIDDEN, layers=2, bidirectional=True, dropout=0.1)
        again = from_torch(to_torch(stack))
        assert again.dropout == 0.1
        for (name, a), (other, b) in zip(stack.named_parameters(), again.named_parameters(), strict=True):
            assert name == other
            assert torch.equal(a, b)


@pytest.mark.parametrize("cell", MODULES)
def test_without_biases(cell):
    module = make_module(cell, 2, True, bias=False)
    stack = from_torch(module)
    x = torch.randn(B, T, INPUT, dtype=torch.float64)
    torch.testing.assert_close(stack(x)[0], module(x)[0])
    assert not stack.layers[0].forward_layer.cell.bias_ih.any()
    assert not stack.layers[1].backward_layer.cell.bias_hh.any()


def test_mode_and_type_are_kept():
    module = make_module("gru", 1, False, torch.float64).eval()
    stack = from_torch(module)
    assert not stack.training
    assert next(stack.parameters()).dtype == torch.float64
    assert not to_torch(stack).training
    time_first = nn.GRU(INPUT, HIDDEN)
    x = torch.randn(B, T, INPUT)
    torch.testing.assert_close(from_torch(time_first)(x)[0], time_first(x.transpose(0, 1))[0].transpose(0, 1))


def test_dropout_of_one_layer_has_nowhere_to_fall():
    assert to_torch(make_stack("lstm", INPUT, HIDDEN, dropout=0.5)).dropout == 0  # torch would warn


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.LSTM(INPUT, HIDDEN, proj_size=2), "proj_size=2"),
        (nn.LSTMCell(INPUT, HIDDEN), r"LSTMCell; expected torch.nn.RNN, GRU or LSTM"),
        (nn.Linear(INPUT, HIDDEN), "Linear"),
    ],
)
def test_what_does_not_come_from_torch(module, message):
    with pytest.raises(WeftError, match=message):
        from_torch(module)


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        (make_stack("gru-reset-before", INPUT, HIDDEN), "torch.nn has no GRUResetBeforeCell"),
        (make_stack("additive", INPUT, HIDDEN, bidirectional=True), "torch.nn has no AdditiveCell"),
        (make_stack("gru", HIDDEN, HIDDEN, layers=2, residual=True), "residual"),
        (Stack([Bidirectional(GRUCell(3, 5), GRUCell(3, 4))]), "hidden sizes 5 and 4"),
        (Stack([Recurrent(GRUCell(3, 5)), Recurrent(GRUCell(5, 4))]), "hidden sizes 5 and 4"),
        (Stack([Recurrent(GRUCell(3, 5)), Recurrent(RNNCell(5, 5))]), "GRUCell and RNNCell"),
        (Stack([Recurrent(LSTMCell(3, 5)), Recurrent(GRUResetBeforeCell(5, 5))]), "no GRUResetBeforeCell"),
        (Stack([Recurrent(GRUCell(3, 5), reverse=True)]), "backward only"),
        (
            Stack([Recurrent(GRUCell(3, 5)), Bidirectional(GRUCell(5, 5), GRUCell(5, 5))]),
            "some layers are bidirectional",
        ),
    ],
)
def test_what_does_not_go_to_torch(stack, message):
    with pytest.raises(WeftError, match=message):
        to_torch(stack)


def test_adaptive_softmax_has_the_loss_and_gradients_of_torchs():
    """torch's layer with the same clusters: its tails are a projection and a table without biases."""
    torch.manual_seed(0)
    ours = AdaptiveSoftmax(60, 16, 16, (20, 40)).double()
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 60, [20, 40], div_value=4, head_bias=True).double()
    with torch.no_grad():
        for bias in ours.biases[1:]:
            bias.zero_()
        theirs.head.weight.copy_(torch.cat([ours.tables[0], ours.cluster_weight]))
        theirs.head.bias.copy_(torch.randn(22, dtype=torch.double))
        ours.biases[0].copy_(theirs.head.bias[:20])
        ours.cluster_bias.copy_(theirs.head.bias[20:])
        for tail, down, table in zip(theirs.tail, ours.down, ours.tables[1:], strict=True):
            tail[0].weight.copy_(down)
            tail[1].weight.copy_(table)
    x = torch.randn(3, 30, 16, dtype=torch.double, requires_grad=True)
    targets = torch.arange(90).reshape(3, 30) % 60
    total = ours.cross_entropy(x, targets)
    torch.testing.assert_close(total, 90 * theirs(x.reshape(-1, 16), targets.reshape(-1)).loss)
    (ours_gradient,) = torch.autograd.grad(total, x)
    (torchs_gradient,) = torch.autograd.grad(90 * theirs(x.reshape(-1, 16), targets.reshape(-1)).loss, x)
    torch.testing.assert_close(ours_gradient, torchs_gradient)
    torch.testing.assert_close(ours.log_probs(x[0]), theirs.log_prob(x[0]))
