"""Layers inside torch.func's transforms and with several gradients at once: on the engine, and equal to one by one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.autograd.functional import hvp, jacobian
from torch.func import functional_call, grad, jacrev, vjp, vmap
from torch.utils._pytree import tree_leaves

import weft
from weft import engine
from weft.cells import CELLS
from weft.chains import log_partition
from weft.engine import Dropout, Embedded, Part, functions, linear_cross_entropy
from weft.engine import layers as core
from weft.nn import Recurrent, make_stack

SAMPLES, B, T, I, H = 5, 2, 3, 3, 4  # noqa: E741
LAYERS = {
    "LSTM": lambda: weft.nn.LSTM(I, H, 2, batch_first=True, bidirectional=True),
    "GRU": lambda: weft.nn.GRU(I, H, batch_first=True, bias=False),
    "accelerated": lambda: accelerated(nn.RNN(I, H, batch_first=True)),
    "recurrent": lambda: Recurrent(CELLS["gru-reset-before"](I, H), reverse=True),
    "stack": lambda: make_stack("slstm", I, H, layers=2, bidirectional=True, residual=True),
    "heads": lambda: Recurrent(CELLS["multi-head-lstm"](I, H)),
}
needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of torch.jit in forward mode


def accelerated(layer):
    weft.accelerate(layer)
    return layer


@pytest.fixture(params=LAYERS)
def layer(request):
    torch.manual_seed(0)
    return LAYERS[request.param]().double()


@pytest.fixture
def passes(monkeypatch):
    """The rows of each pass of the engine, forward and backward."""
    rows = {"forward": [], "backward": []}
    for name in rows:

        def run(layers, x, *given, name=name):
            rows[name].append(len(x))
            return getattr(core, name)(layers, x, *given)

        monkeypatch.setattr(functions, name, run)
    return rows


def inputs(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape, T, I, dtype=torch.float64)


def outputs_of(layer, x, **options):
    return layer(x, **options)[0]


def weights_of(layer):
    return {name: parameter.detach() for name, parameter in layer.named_parameters()}


def loss_of(layer):
    return lambda weights, x, **options: functional_call(layer, weights, (x,), options)[0].square().sum()


def gradients(layer, x, **options):
    """Of the parameters, as autograd has them."""
    return torch.autograd.grad(outputs_of(layer, x, **options).square().sum(), list(layer.parameters()))


def stacked(results):
    return [torch.stack(parts) for parts in zip(*results, strict=True)]


def assert_equal(found, expected):
    torch.testing.assert_close(tree_leaves(found), tree_leaves(expected))


def test_vmap_runs_all_samples_at_once(layer, passes):
    x = inputs(SAMPLES, B)
    found = vmap(lambda one: outputs_of(layer, one), 2, 1)(x.movedim(0, 2))
    assert set(passes["forward"]) <= {SAMPLES * B}
    assert_equal(found, torch.stack([outputs_of(layer, one) for one in x], 1))


def test_gradients_of_each_sample(layer, passes):
    x, weights = inputs(SAMPLES, B), weights_of(layer)
    found = vmap(grad(loss_of(layer)), (None, 0))(weights, x)
    if engine.library() is not None:
        assert set(passes["forward"]) == {SAMPLES * B}
        assert passes["backward"]
    assert_equal(found, stacked([gradients(layer, one) for one in x]))
    passes["backward"].clear()
    found = vmap(grad(loss_of(layer), 1), (None, 0))(weights, x)  # of the inputs: all at once
    assert set(passes["backward"]) <= {SAMPLES * B}
    assert_equal(found, grad(lambda x: outputs_of(layer, x.flatten(0, 1)).square().sum())(x))


def test_the_first_run_may_be_inside_a_transform(layer):
    x = inputs(B)
    fresh = copy.deepcopy(layer)
    found = grad(loss_of(fresh))(weights_of(fresh), x)
    assert_equal(found, gradients(layer, x))


def test_states_and_transforms_of_transforms(layer):
    x, weights = inputs(SAMPLES, B), weights_of(layer)
    state = layer(x[0])[1]
    expected = torch.stack([layer(one, state)[0] for one in x])
    assert_equal(vmap(lambda one: layer(one, state)[0])(x), expected)
    states = [layer(one)[1] for one in x]
    stacked_states = torch.utils._pytree.tree_map(lambda *parts: torch.stack(parts), *states)
    expected = torch.stack([layer(x[0], one)[0] for one in states])
    assert_equal(vmap(lambda one: layer(x[0], one)[0])(stacked_states), expected)
    nested = vmap(vmap(lambda row: outputs_of(layer, row[None])[0]))(x)
    assert_equal(nested, torch.stack([outputs_of(layer, one) for one in x]))
    summed = grad(lambda weights: vmap(lambda one: loss_of(layer)(weights, one))(x).sum())(weights)
    assert_equal(summed, [parts.sum(0) for parts in stacked([gradients(layer, one) for one in x])])


def test_models_of_an_ensemble(layer):
    x, weights = inputs(B), weights_of(layer)
    all_weights = {name: torch.stack([part, part * 0.5, -part]) for name, part in weights.items()}
    each = [{name: parts[n] for name, parts in all_weights.items()} for n in range(3)]
    found = vmap(grad(loss_of(layer)), (0, None))(all_weights, x)
    assert_equal(found, stacked([list(grad(loss_of(layer))(one, x).values()) for one in each]))


@pytest.mark.parametrize("name", ["recurrent", "stack", "heads"])
def test_lengths(name):
    layer = LAYERS[name]().double()
    x, weights = inputs(SAMPLES, B), weights_of(layer)
    own = torch.tensor([[1, 2], [3, 3], [0, 2], [2, 2], [3, 0]])  # of each sample
    for lengths, dim in ((own, 0), (own[0], None)):
        each = own if dim == 0 else [lengths] * SAMPLES

        def loss(weights, x, lengths):
            return loss_of(layer)(weights, x, lengths=lengths)

        found = vmap(grad(loss), (None, 0, dim))(weights, x, lengths)
        assert_equal(found, stacked([gradients(layer, a, lengths=b) for a, b in zip(x, each, strict=True)]))
    with pytest.raises(weft.WeftError, match="a length is outside of the batch"):
        vmap(lambda x, lengths: layer(x, lengths=lengths)[0])(x, own + 1)


def test_jacobians(layer):
    x = inputs(B)
    expected = jacobian(lambda x: outputs_of(layer, x), x)
    assert_equal(jacrev(lambda x: outputs_of(layer, x))(x), expected)
    assert_equal(jacobian(lambda x: outputs_of(layer, x), x, vectorize=True), expected)
    primals, tangents = (x,), (torch.randn_like(x),)
    expected = torch.autograd.functional.jvp(lambda x: outputs_of(layer, x), primals, tangents)[1]
    assert_equal(torch.func.jvp(lambda x: outputs_of(layer, x), primals, tangents)[1], expected)


def test_second_derivatives(layer):
    x = inputs(1)
    direction = torch.randn_like(x)
    expected = hvp(lambda x: outputs_of(layer, x).square().sum(), x, direction)[1]

    def slope(weights, x):
        """The derivative of the loss in a direction of x."""
        return (grad(loss_of(layer), 1)(weights, x) * direction).sum()

    weights = weights_of(layer)
    assert_equal(grad(slope, 1)(weights, x), expected)
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(outputs_of(layer, x).square().sum(), x, create_graph=True)
    expected = torch.autograd.grad((first * direction).sum(), list(layer.parameters()), materialize_grads=True)
    assert_equal(grad(slope)(weights, x.detach()), expected)  # x is no input of the outer transform


def test_several_gradients_at_once(layer):
    x = inputs(B).requires_grad_()
    wanted = [x, *layer.parameters()]
    outputs, last = layer(x)
    results = [outputs, *tree_leaves(last)]
    several = [torch.randn(3, *one.shape, dtype=one.dtype) for one in results]
    expected = stacked(
        [torch.autograd.grad(results, wanted, [one[n] for one in several], retain_graph=True) for n in range(3)]
    )

    def pull(*some):
        return torch.autograd.grad(results, wanted, some, retain_graph=True)

    assert_equal(vmap(pull)(*several), expected)
    assert_equal(vmap(vjp(lambda x: outputs_of(layer, x), x)[1])(several[0])[0].shape, (3, *x.shape))
    for graph in (False, True):
        found = torch.autograd.grad(
            results, wanted, several, retain_graph=True, create_graph=graph, is_grads_batched=True
        )
        assert_equal(found, expected)


@pytest.mark.parametrize("dropout", [Dropout(), Dropout(0.5)])
def test_batched_gradients_of_all_operations(dropout):
    """gradcheck's batched mode: of embeddings, dropout, a stack with dropout, a loss, and a CRF's sum."""
    torch.manual_seed(6)
    table, weight = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((6, 2), (5, H)))
    stack = make_stack("gru", 4, H, layers=2, dropout=dropout.rate).double()
    ids, targets, lengths = torch.randint(6, (2, 3)), torch.randint(5, (2, 3)), torch.tensor([3, 2])

    def losses(table, weight):
        torch.manual_seed(7)
        x = Embedded([Part(ids, table), Part(ids.flip(0), table)], dropout)
        outputs, _ = stack(engine.dropout(x.tensor(), dropout.rate), lengths=lengths)
        by_row = linear_cross_entropy(outputs, weight, None, targets, lengths=lengths, dropout=dropout)
        return by_row, stack(x, lengths=lengths)[0]

    assert gradcheck(losses, (table, weight), check_batched_grad=True)
    scores = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((3,), (3, 3), (3,), (2, 4, 3))]
    assert gradcheck(lambda *scores: log_partition(*scores, None), scores, check_batched_grad=True, atol=1e-4)


@needs_engine
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
@pytest.mark.parametrize("kind", ["LSTM", "Recurrent"])
def test_compiled_layers(kind):
    """vmap of a compiled layer, and inside one, is the engine's operator, also for several gradients at once."""
    torch.compiler.reset()
    torch.manual_seed(0)
    layer = weft.nn.LSTM(I, H, batch_first=True) if kind == "LSTM" else Recurrent(CELLS["gru"](I, H))
    layer, operators, x = layer.double(), [], inputs(SAMPLES, B)

    def backend(graph, given):
        operators.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    def compiled(function):
        return torch.compile(function, backend="aot_eager")

    def by_sample(x):
        return vmap(lambda one: outputs_of(layer, one))(x)

    expected = torch.stack([outputs_of(layer, one) for one in x])
    assert_equal(torch.compile(by_sample, backend=backend, fullgraph=True)(x), expected)
    assert "weft.run_layer.default" in operators
    if kind == "LSTM":
        found = compiled(vmap(grad(loss_of(layer)), (None, 0)))(weights_of(layer), x)
        assert_equal(found, stacked([gradients(layer, one) for one in x]))
        return
    found = torch.autograd.grad(compiled(by_sample)(x).square().sum(), list(layer.parameters()))
    assert_equal(found, [parts.sum(0) for parts in stacked([gradients(layer, one) for one in x])])
    one, lengths = compiled(layer), torch.tensor([3, 1])
    assert_equal(vmap(lambda x: outputs_of(one, x))(x), expected)
    found = jacobian(lambda x: outputs_of(one, x), x[0], vectorize=True)
    assert_equal(found, jacobian(lambda x: outputs_of(layer, x), x[0]))
    found = torch.compile(lambda x: vmap(lambda one: layer(one, lengths=lengths)[0])(x), backend=backend)(x)
    assert_equal(found, torch.stack([layer(one, lengths=lengths)[0] for one in x]))
