"""Gradients of gradients, forward-mode AD, torch.func and torch.jit.trace through the engine: never silently zero."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.functional import hessian

from weft import engine
from weft.cells import CELLS
from weft.engine import Dropout, Embedded, Part, linear_cross_entropy
from weft.nn import LSTM, Bidirectional, Recurrent, make_stack

LENGTHS = torch.tensor([3, 1, 2])
needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")


def test_the_hessian_is_that_of_torch():
    torch.manual_seed(0)
    theirs = nn.LSTM(2, 3, batch_first=True).double()
    ours = LSTM(2, 3, batch_first=True).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(1, 3, 2, dtype=torch.float64)
    expected = hessian(lambda v: theirs(v)[0].square().sum(), x)
    assert expected.norm() > 0.1
    torch.testing.assert_close(hessian(lambda v: ours(v)[0].square().sum(), x), expected)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_second_derivatives_of_every_cell(name, lengths):
    torch.manual_seed(1)
    layer = Bidirectional(CELLS[name](2, 2).double(), CELLS[name](2, 3).double())
    parameters = [p for p in layer.parameters() if p.requires_grad]
    x = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)

    def run(x, *weights):
        named = dict(zip([name for name, _ in layer.named_parameters()], weights, strict=True))
        return torch.func.functional_call(layer, named, (x,), {"lengths": lengths})[0]

    assert gradcheck(run, (x, *parameters))
    if name != "rnn-relu":  # whose second derivatives are zero but at 0
        assert gradgradcheck(run, (x, *parameters), atol=1e-4)


@needs_engine
@pytest.mark.parametrize("options", [{"dropout": 0.4}, {"recurrent_dropout": 0.4}, {}])
def test_a_gradient_penalty_through_a_stack(options):
    """The recorded gradient is the engine's own, to the last mask; and it can be differentiated."""
    torch.manual_seed(2)
    stack = make_stack("lstm", 3, 4, layers=2, bidirectional=True, **options).double()
    x = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for graph in (False, True):
        torch.manual_seed(3)
        outputs, _ = stack(x, lengths=torch.tensor([5, 2, 3]))
        results.append(torch.autograd.grad(outputs.square().sum(), [x, *stack.parameters()], create_graph=graph))
    for once, twice in zip(*results, strict=True):
        torch.testing.assert_close(twice, once)
    penalty = sum(gradient.square().sum() for gradient in results[1])
    gradients = torch.autograd.grad(penalty, list(stack.parameters()))
    assert all(gradient.norm() > 0 for gradient in gradients)


@needs_engine
def test_zoneout_and_ids():
    torch.manual_seed(4)
    layer = Recurrent(CELLS["gru"](7, 4).double(), zoneout=0.3)
    ids = torch.randint(7, (3, 5))
    results = []
    for graph in (False, True):
        torch.manual_seed(5)
        results.append(torch.autograd.grad(layer(ids)[0].square().sum(), list(layer.parameters()), create_graph=graph))
    for once, twice in zip(*results, strict=True):
        torch.testing.assert_close(twice, once)


@needs_engine
@pytest.mark.parametrize("dropout", [Dropout(), Dropout(0.5), Dropout(0.5, shared_over_time=True)])
def test_embeddings_and_losses(dropout):
    torch.manual_seed(6)
    table = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(5, dtype=torch.float64, requires_grad=True)
    layer = Recurrent(CELLS["lstm"](8, 3).double())
    ids, targets = torch.randint(6, (3, 4)), torch.randint(5, (3, 4))

    def loss(table, weight, bias):
        torch.manual_seed(7)
        read = Embedded([Part(ids, table), Part(ids.flip(0), table)], dropout)
        outputs, _ = layer(read, lengths=LENGTHS)
        return linear_cross_entropy(
            outputs, weight, bias, targets, lengths=LENGTHS, label_smoothing=0.1, dropout=dropout, reduction="sum"
        )

    given = (table, weight, bias)
    plain = torch.autograd.grad(loss(*given), given)
    recorded = torch.autograd.grad(loss(*given), given, create_graph=True)
    for one, other in zip(recorded, plain, strict=True):
        torch.testing.assert_close(one, other)
    assert gradgradcheck(loss, given, atol=1e-4)

    def embedded(table):
        torch.manual_seed(7)
        return Embedded([Part(ids, table), Part(ids.flip(0), table)], dropout).tensor().square()

    assert gradgradcheck(embedded, (table,))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["lstm", "gru-reset-before"])
def test_forward_mode(name):
    torch.manual_seed(8)
    layer = Recurrent(CELLS[name](2, 3).double())
    x, tangent = torch.randn(2, 2, 4, 2, dtype=torch.float64)
    with forward_ad.dual_level():
        _, found = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, tangent))[0])
    step = 1e-6
    expected = (layer(x + step * tangent)[0] - layer(x - step * tangent)[0]) / (2 * step)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_function_transforms():
    torch.manual_seed(9)
    layer = Recurrent(CELLS["gru"](2, 3).double())
    x = torch.randn(4, 5, 2, dtype=torch.float64)
    by_row = torch.func.vmap(lambda row: layer(row[None])[0][0])(x)
    torch.testing.assert_close(by_row, layer(x)[0])
    jacobian = torch.func.jacrev(lambda v: layer(v)[0])(x[:1])
    torch.testing.assert_close(jacobian, torch.autograd.functional.jacobian(lambda v: layer(v)[0], x[:1]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_traced_layer_computes_the_same():
    torch.manual_seed(10)
    layer = Recurrent(CELLS["gru-reset-before"](2, 3)).eval()
    x = torch.randn(4, 5, 2)
    traced = torch.jit.trace(layer, x)
    other = torch.randn(4, 5, 2)
    torch.testing.assert_close(traced(other)[0], layer(other)[0])
