"""weft.nn.LSTM, GRU and RNN inside torch's graphs: compiled, exported, scripted, differentiated twice."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

import weft
from weft import engine

KINDS = {"LSTM": weft.nn.LSTM, "GRU": weft.nn.GRU, "RNN": weft.nn.RNN}
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's own compiler
needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")


@pytest.fixture(params=KINDS)
def layer(request):
    torch.compiler.reset()
    torch.manual_seed(0)
    return KINDS[request.param](4, 6, 2, bidirectional=True)


class Wrapped(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def operators(backend_of):
    found = []

    def backend(graph, inputs):
        found.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    backend_of(backend)
    return found


@needs_engine
@pytest.mark.parametrize("options", [{}, {"bias": False, "batch_first": True}, {"dropout": 0.5}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_layer_is_the_engine_s_operator(kind, options):
    torch.compiler.reset()
    torch.manual_seed(0)
    layer, x = KINDS[kind](4, 6, 2, bidirectional=True, **options), torch.randn(5, 3, 4, requires_grad=True)
    found = operators(lambda backend: torch.compile(layer, backend=backend, fullgraph=True)(x))
    assert found.count("weft.run_layer.default") == 2
    results = []
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(1)
        outputs, last = run(x)
        last = last[-1] if kind == "LSTM" else last
        loss = outputs.square().sum() + last.sum()
        results.append([outputs, last, *torch.autograd.grad(loss, [x, *layer.parameters()])])
    torch.testing.assert_close(*results)


@needs_engine
def test_a_compiled_layer_reads_the_weights_of_the_call(layer):
    x, compiled = torch.randn(5, 3, 4), torch.compile(layer, backend="aot_eager", fullgraph=True)
    compiled(x)
    layer.weight_hh_l0 = nn.Parameter(torch.randn_like(layer.weight_hh_l0))  # the old one is freed
    torch.testing.assert_close(compiled(x)[0], layer(x)[0])
    parametrizations.weight_norm(layer, "weight_hh_l0")
    with torch.no_grad():
        layer.parametrizations.weight_hh_l0.original0.mul_(3)
    torch.testing.assert_close(compiled(x)[0], layer(x)[0])


def test_packed_sequences_break_the_graph_and_run(layer):
    packed = pack_padded_sequence(torch.randn(6, 3, 4), torch.tensor([4, 6, 2]), enforce_sorted=False)
    with pytest.raises(Exception, match="the shape of a PackedSequence depends on its values"):
        torch.compile(layer, backend="eager", fullgraph=True)(packed)
    outputs, _ = torch.compile(layer, backend="eager")(packed)
    assert torch.equal(outputs.data, layer(packed)[0].data)


def test_an_exported_layer_needs_no_weft(layer):
    x = torch.randn(5, 3, 4)
    exported = torch.export.export(layer, (x,))
    assert not any("weft" in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(x)[0], layer(x)[0])
    assert set(exported.state_dict) == set(layer.state_dict())


def test_scripting_and_tracing_take_torch_s_layer(layer):
    x, model = torch.randn(5, 3, 4), Wrapped(layer)
    expected = model(x)
    for translate in (lambda: torch.jit.trace(model, x), lambda: torch.jit.script(model)):
        torch.testing.assert_close(translate()(x), expected)


def test_gradients_of_gradients(layer):
    layer.double()
    theirs = getattr(nn, type(layer).__name__)(4, 6, 2, bidirectional=True).double()
    theirs.load_state_dict(layer.state_dict())
    results = []
    for one in (layer, theirs):
        torch.manual_seed(3)
        x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
        weights = list(one.parameters())
        with torch.backends.mkldnn.flags(enabled=False):
            first = torch.autograd.grad(one(x)[0].square().sum(), [x, *weights], create_graph=True)
            penalty = sum(gradient.square().sum() for gradient in first)
            results.append(torch.autograd.grad(penalty, [x, *weights], allow_unused=True))
    for ours, other in zip(*results, strict=True):
        assert (ours is None) == (other is None)
        if ours is not None:
            assert ((ours - other).abs().max() / other.abs().max().clamp_min(1e-12)).item() < 1e-12


class Model(nn.Module):
    """A model with each kind of layer."""

    def __init__(self):
        super().__init__()
        self.embedding, self.first, self.second = nn.Embedding(9, 4), weft.nn.LSTM(4, 6), nn.GRU(6, 6)
        self.third, self.cell = weft.Recurrent(weft.CELLS["lstm"](6, 5)), weft.CELLS["lstm"](5, 3)
        self.fourth = weft.nn.make_stack("gru", 5, 5, layers=2, bidirectional=True)
        weft.accelerate(self)

    def forward(self, ids):
        x, _ = self.first(self.embedding(ids))
        x, h = self.second(x)
        x, state = self.third(x=x, state=None)
        h, c = self.cell(x[0], (x[0, :, :3], state.c[:, :3]))
        return self.fourth(x)[0].sum() + (h + c).sum()


def test_layers_and_cells_are_leaves_of_symbolic_trace():
    model, ids = Model(), torch.randint(9, (5, 5))
    traced = symbolic_trace(model)
    called = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert called == ["embedding", "first", "second", "third", "cell", "fourth"]
    assert torch.equal(traced(ids), model(ids))


def operations(model, x):
    with FlopCounterMode(display=False) as counter:
        model(x)[0].sum().backward()
    return counter.get_total_flops()


def test_floating_point_operations_are_counted():
    """As of torch's GRU, whose LSTM shows the counter none."""
    theirs, x = nn.GRU(4, 6, 2, bidirectional=True, batch_first=True), torch.randn(3, 5, 4)
    expected = operations(theirs, x)
    assert operations(weft.from_torch(theirs), x) == expected
    weft.accelerate(theirs)
    assert operations(theirs, x) == expected
    for layer in (weft.nn.LSTM(4, 6, batch_first=True), weft.Recurrent(weft.CELLS["lstm"](4, 6))):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            layer(x)
        assert counter.get_total_flops() == 2 * 3 * 5 * 4 * 6 * (4 + 6)


def test_operations_are_torch_s_where_a_mode_sees_them(layer):
    x = torch.randn(5, 3, 4)
    traced = make_fx(layer)(x)
    assert not any("weft" in str(node.target) for node in traced.graph.nodes)
    other = torch.randn(5, 3, 4)
    torch.testing.assert_close(traced(other)[0], layer(other)[0])
