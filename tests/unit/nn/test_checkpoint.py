"""weft.nn.checkpointed: the same results and gradients with less memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from weft.cells import GRUCell, LSTMCell, LSTMState
from weft.engine import Embedded
from weft.errors import WeftError
from weft.nn import Bidirectional, Recurrent, checkpointed, make_stack

T = 23
LENGTHS = torch.tensor([23, 0, 9, 11])
LAYERS = {
    "forward": lambda: Recurrent(LSTMCell(3, 5)),
    "backward": lambda: Recurrent(LSTMCell(3, 5), reverse=True),
    "bidirectional": lambda: Bidirectional(LSTMCell(3, 5), GRUCell(3, 4)),
    "stack": lambda: make_stack("gru", 3, 5, layers=3),
    "deep": lambda: make_stack("lstm", 3, 5, layers=2, bidirectional=True, residual=True),
}


def flat(nest):
    return [nest] if isinstance(nest, torch.Tensor) else [tensor for part in nest for tensor in flat(part)]


def everything(run, layer, x, **options):
    torch.manual_seed(2)
    found = flat(run(layer, x, **options))
    loss = sum((n + 1) * part.square().sum() for n, part in enumerate(found))
    return [*found, *torch.autograd.grad(loss, [x, *layer.parameters()])]


@pytest.mark.parametrize("steps", [1, 4, None, 30], ids=str)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("name", LAYERS)
def test_results_and_gradients_are_those_of_the_layer(name, lengths, steps):
    torch.manual_seed(0)
    layer, x = LAYERS[name]().double(), torch.randn(4, T, 3, dtype=torch.float64, requires_grad=True)
    expected = everything(lambda layer, x, **options: layer(x, **options), layer, x, lengths=lengths)
    found = everything(checkpointed, layer, x, lengths=lengths, steps=steps)
    for ours, other in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-12, atol=1e-13)


def test_a_state_and_its_gradient():
    layer, x = Recurrent(LSTMCell(3, 5)).double(), torch.randn(2, T, 3, dtype=torch.float64)
    state = LSTMState(*(torch.randn(2, 5, dtype=torch.float64, requires_grad=True) for _ in range(2)))
    results = []
    for run in (layer, lambda *given: checkpointed(layer, *given, steps=5)):
        outputs, last = run(x, state)
        results.append([last.c, *torch.autograd.grad(outputs.square().sum() + last.c.sum(), [*state])])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-13)


def test_the_second_pass_draws_the_dropout_of_the_first():
    """The gradient is that of the outputs: a step along it changes them as it says."""
    stack, ids = make_stack("gru", 7, 5, layers=2, dropout=0.5).double(), torch.randint(7, (3, T))

    def loss():
        torch.manual_seed(4)
        return checkpointed(stack, ids, steps=6)[0].square().sum()

    gradient = torch.autograd.grad(loss(), [stack.layers[1].cell.weight_ih])[0]
    before, size = loss().detach(), 1e-6 / gradient.norm()
    with torch.no_grad():
        stack.layers[1].cell.weight_ih.add_(gradient, alpha=size.item())
    torch.testing.assert_close(loss().detach() - before, size * gradient.square().sum(), rtol=1e-4, atol=0)


def test_embedding_lookups():
    """The same gradients of the table and of the features that are joined to each step."""
    stack, table = make_stack("lstm", 5, 4, layers=2).double(), torch.randn(7, 3, dtype=torch.float64)
    ids, beside = torch.randint(7, (4, T)), torch.randn(4, 2, dtype=torch.float64)
    tensors = [table.requires_grad_(), beside.requires_grad_(), *stack.parameters()]
    results = []
    for run in (lambda layer, x: layer(x), lambda layer, x: checkpointed(layer, x, steps=5)):
        outputs, last = run(stack, Embedded.of(ids, table).join(beside))
        loss = outputs.square().sum() + last[0].c.sum()
        results.append([outputs, *torch.autograd.grad(loss, tensors)])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-13)


def test_gradients_of_gradients():
    layer, x = Recurrent(GRUCell(3, 4)).double(), torch.randn(2, T, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for run in (lambda layer, x: layer(x), lambda layer, x: checkpointed(layer, x, steps=6)):
        (first,) = torch.autograd.grad(run(layer, x)[0].square().sum(), [x], create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()], allow_unused=True))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def test_what_cannot_be_checkpointed():
    x = torch.randn(2, T, 3)
    with pytest.raises(WeftError, match=r"recurrent_dropout=0\.3; expected none"):
        checkpointed(Recurrent(GRUCell(3, 4), recurrent_dropout=0.3), x)
    with pytest.raises(WeftError, match="steps is 0"):
        checkpointed(Recurrent(GRUCell(3, 4)), x, steps=0)
    with pytest.raises(WeftError, match=r"checkpointed: x is \(2, 23, 3\)"):
        checkpointed(Recurrent(GRUCell(4, 4)), x)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_memory_grows_with_the_square_root():
    """Megabytes of the backward pass beyond the outputs, at T 4,096: five values a unit and step for the layer."""
    script = """
import torch
from weft.nn import LSTMCell, Recurrent, checkpointed
def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1000
layer, x = Recurrent(LSTMCell(16, 128)), torch.randn(8, 4096, 16)
for run in (checkpointed, Recurrent.__call__):  # the peak only grows
    run(layer, x[:, :20])[0].sum().backward()
    before = status("VmRSS")
    outputs, _ = run(layer, x)
    outputs.sum().backward()
    print(status("VmHWM") - before - outputs.nbytes / 1e6)
    del outputs
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    segmented, plain = map(float, done.stdout.split())
    assert plain > 75
    assert segmented < plain / 4
