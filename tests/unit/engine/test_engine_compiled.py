"""Compiled models give what they give uncompiled, values and gradients; the engine is one operator in their graph."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from examples.own_cell import OWN_CELLS
from weft import engine
from weft.cells import CELLS, Cell, GRUCell, HiddenState, LSTMCell
from weft.data.windows import Window
from weft.engine import Embedded
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError
from weft.nn import Bidirectional, Recurrent, make_stack
from weft.tasks.config import ModelConfig
from weft.tasks.lm.model import LanguageModel

pytestmark = [
    pytest.mark.skipif(engine.library() is None, reason="the engine is not built"),
    pytest.mark.filterwarnings("ignore"),  # of torch's own compiler
]
B, T, V, H = 3, 6, 4, 5
LENGTHS = torch.tensor([6, 0, 3])
OPERATOR = "weft.run_layer.default"


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch.compiler.reset()


def tensors(nest):
    return [nest] if isinstance(nest, torch.Tensor) else [tensor for part in nest for tensor in tensors(part)]


def graph_of(model, *given, **named):
    """The operators that a compiled call puts into its one graph."""
    found = []

    def backend(graph, inputs):
        found.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch.compile(model, backend=backend, fullgraph=True)(*given, **named)
    return found


def agree(model, *given, dynamic=None, leaves=(), **named):
    """One graph, compiled to train, without gradients and to evaluate: the same as plain calls, seeds included."""
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    leaves = [*model.parameters(), *leaves]
    for training, mode in (
        (True, nullcontext),
        (True, torch.no_grad),
        (False, torch.inference_mode),
        (False, nullcontext),
    ):
        model.train(training)
        found, gradients = [], []
        for run in (compiled, model):
            torch.manual_seed(1)
            with mode():
                found.append(tensors(run(*given, **named)))
            if mode is nullcontext:
                loss = sum((n + 1) * part.square().sum() for n, part in enumerate(found[-1]))
                gradients.append(torch.autograd.grad(loss, leaves))
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)
        for ours, theirs in zip(*gradients, strict=True) if gradients else ():
            torch.testing.assert_close(ours, theirs)


def test_it_is_one_operator_in_one_graph():
    layer, x = Recurrent(LSTMCell(V, H)), torch.randn(B, T, V)
    assert OPERATOR in graph_of(layer, x)
    assert OPERATOR in graph_of(Bidirectional(LSTMCell(V, H), GRUCell(V, H)), x, lengths=LENGTHS)


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("ids", [False, True], ids=["numbers", "ids"])
def test_a_layer_with_a_state(ids, lengths):
    x = torch.randint(0, V, (B, T)) if ids else torch.randn(B, T, V, requires_grad=True)
    layer = Recurrent(LSTMCell(V, H), reverse=ids)
    state = layer.cell.state_type(torch.randn(B, H, requires_grad=True), torch.randn(B, H, requires_grad=True))
    agree(layer, x, state, lengths=lengths, leaves=[*state, *([] if ids else [x])])


@pytest.mark.parametrize("name", ["gru", "gru-reset-before", "layer-norm-lstm"])
def test_other_cells_in_double(name):
    agree(Recurrent({**CELLS, **OWN_CELLS}[name](V, H)).double(), torch.randn(B, T, V, dtype=torch.float64))


def test_noise():
    agree(Recurrent(GRUCell(V, H), recurrent_dropout=0.3, zoneout=0.2), torch.randn(B, T, V), lengths=LENGTHS)


def test_a_stack_in_both_directions():
    stack = make_stack("lstm", V, H, layers=2, bidirectional=True, residual=True)
    agree(stack, torch.randint(0, V, (B, T)), lengths=LENGTHS)
    agree(stack, torch.randn(B, T, V), stack.initial_state(B))


def test_dropout_between_layers():
    stack = make_stack("gru", V, H, layers=2, dropout=0.5)
    outputs, _ = torch.compile(stack, backend="aot_eager", fullgraph=True)(torch.randn(B, T, V))
    assert outputs.isfinite().all()


def test_a_stack_that_reads_tables():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.stack = nn.Embedding(9, V), make_stack("gru", V + 2, H, bidirectional=True)

        def forward(self, ids, joined):
            return self.stack(Embedded.of(ids, self.table.weight).join(joined), lengths=LENGTHS)

    agree(Reader(), torch.randint(0, 9, (B, T)), torch.randn(B, 2))


def test_a_language_model():
    agree(LanguageModel(7, ModelConfig(hidden_size=H, embedding_dim=3, dropout=0.0)), torch.randint(0, 7, (B, T)))


def test_one_graph_for_all_shapes():
    layer = Recurrent(GRUCell(V, H))
    counter = []

    def backend(graph, inputs):
        counter.append(graph)
        return graph.forward

    compiled = torch.compile(layer, backend=backend, fullgraph=True, dynamic=True)
    for rows, steps in ((3, 6), (5, 4), (2, 9)):
        x, lengths = torch.randn(rows, steps, V), torch.randint(0, steps + 1, (rows,))
        torch.testing.assert_close(compiled(x, lengths=lengths)[0], layer(x, lengths=lengths)[0])
    assert len(counter) == 1
    agree(layer, torch.randn(B, T, V), lengths=LENGTHS, dynamic=True)


def test_torchs_own_code_around_it():
    model, x = nn.Sequential(nn.Linear(3, V), Recurrent(LSTMCell(V, H))), torch.randn(B, T, 3)
    ours, theirs = torch.compile(model, fullgraph=True)(x)[0], model(x)[0]
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(each.square().sum(), list(model.parameters())) for each in (ours, theirs)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other)


def test_the_operators_keep_torchs_rules():
    found = []

    def backend(graph, inputs):
        def run(*given):
            class Watch(torch.fx.Interpreter):
                def call_function(self, target, args, kwargs):
                    if str(target) == OPERATOR:
                        found.append(args)
                    return super().call_function(target, args, kwargs)

            return Watch(graph).run(*given)

        return run

    layers = [Recurrent(LSTMCell(V, H)), Bidirectional(LSTMCell(V, H), LSTMCell(V, 3), recurrent_dropout=0.5)]
    for layer in layers:
        torch.compile(layer, backend=backend, fullgraph=True)(torch.randn(B, T, V), lengths=LENGTHS)
    for args in found:
        torch.library.opcheck(torch.ops.weft.run_layer.default, args)
    assert len(found) == 2


def test_programs_are_known_by_what_is_in_them():
    from weft.engine.cells import plan_of

    number = plan_of(LSTMCell(V, H)).content_hash
    assert number == plan_of(LSTMCell(V, H)).content_hash < 2**63
    others = [GRUCell(V, H), LSTMCell(V, H + 1), LSTMCell(V + 1, H), CELLS["gru-reset-before"](V, H)]
    assert len({number, *(plan_of(cell).content_hash for cell in others)}) == 5


def test_mistakes_are_named():
    layer, x = Recurrent(LSTMCell(V, H)), torch.randn(B, T, V)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with pytest.raises(WeftError, match="lengths run from 1 to 7"):
        compiled(x, lengths=torch.tensor([7, 1, 1]))
    with pytest.raises(WeftError, match="outside the vocabulary"):
        compiled(torch.full((B, T), V))
    with pytest.raises(WeftError, match=r"x is torch\.float64"):
        compiled(x.double())
    with pytest.raises(WeftError, match="because input_size=4"):
        torch.compile(layer, backend="aot_eager")(torch.randn(B, T, 9))


class Summed(Cell):
    """A step that the engine has no words for."""

    blocks = 1

    def step(self, x_proj, state):
        h = torch.tanh(torch.cumsum(x_proj + self.recur(state.h), -1))
        return HiddenState(h), HiddenState(h)


def test_what_the_engine_cannot_run_compiles_as_torch(capsys):
    layer, x = Recurrent(Summed(V, H)), torch.randn(B, 2, V)
    assert OPERATOR not in graph_of(layer, x)
    agree(layer, x, lengths=torch.tensor([2, 0, 1]))


OFF = """
import torch
from weft.data.windows import Window
from weft.cells import LSTMCell
from weft.nn import Recurrent
layer, x = Recurrent(LSTMCell(3, 4)), torch.randn(2, 3, 3)
outputs, _ = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
torch.testing.assert_close(outputs, layer(x)[0])
outputs.sum().backward()
print("same")
"""


def test_without_the_engine():
    found = subprocess.run(
        [sys.executable, "-c", OFF],
        env={**os.environ, "WEFT_ENGINE": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == "same\n", found.stderr


def test_weft_does_not_load_the_compiler():
    code = "import sys, weft.nn, weft.tasks.lm.model; print('torch._dynamo' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_the_loss_of_a_language_model():
    """Embeddings, output layer and cost are torch's own where they are compiled."""
    model = LanguageModel(7, ModelConfig(hidden_size=H, embedding_dim=3, dropout=0.0))
    ids = torch.randint(0, 7, (B, T + 1))
    window = Window(ids[:, :-1], ids[:, 1:].clone(), True)
    window.targets[0, -1] = IGNORE_INDEX
    losses = [loss(window).total for loss in (torch.compile(model.loss, backend="eager"), model.loss)]
    torch.testing.assert_close(*losses)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    torch.testing.assert_close(*(torch.autograd.grad(loss, parameters) for loss in losses))
