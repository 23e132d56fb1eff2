"""Matrix products in bfloat16: to the bit as defined, the same on every CPU, and only where they were asked for."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import weft
from weft import engine
from weft.cells import CELLS
from weft.engine import Stream, linear, linear_cross_entropy, precision
from weft.nn import LSTMCell, Recurrent, ReLURNNCell

pytestmark = pytest.mark.skipif(engine.library() is None, reason="the engine is not built")


def rounded(x):
    """float32 to bfloat16, to nearest even; subnormal numbers become zero."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    found = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), found)


def product(start, a, b):
    """start + a b^T as the instruction has it: pair after pair, the upper element first, each sum rounded once.

    float64 holds each product and, for values of similar size, each sum exactly.
    """
    sums = np.broadcast_to(start, (len(a), len(b))).astype(np.float32)
    a, b = (rounded(np.pad(each, ((0, 0), (0, each.shape[1] % 2)))).astype(np.float64) for each in (a, b))
    for k in range(0, a.shape[1], 2):
        for upper in (k + 1, k):
            sums = (sums + a[:, upper, None] * b[:, upper]).astype(np.float32)
    return sums


@pytest.mark.parametrize("inputs", [1, 2, 7, 64, 130])
@pytest.mark.parametrize("rows", [1, 5])
def test_products_are_those_of_the_instruction_to_the_bit(inputs, rows):
    torch.manual_seed(inputs)
    cell = ReLURNNCell(inputs, 48)
    torch.nn.init.zeros_(cell.weight_hh)
    x = torch.randn(rows, 1, inputs)
    with precision("bf16"), torch.no_grad():
        found = Recurrent(cell)(x)[0]
    bias = (cell.bias_ih + cell.bias_hh).detach().numpy()
    expected = np.maximum(product(bias, x[:, 0].numpy(), cell.weight_ih.detach().numpy()), 0)
    assert np.array_equal(found[:, 0].numpy(), expected)


BITS = """
import hashlib, torch, weft
from weft.nn import Bidirectional, LSTMCell, GRUResetBeforeCell
torch.manual_seed(0)
found = hashlib.sha256()
def keep(*tensors):
    for tensor in tensors:
        found.update(torch.nan_to_num(tensor.detach(), nan=7.0).contiguous().numpy().tobytes())
for inputs, hidden, rows in (64, 64, 9), (33, 52, 3), (7, 13, 1):
    for cell in LSTMCell, GRUResetBeforeCell:
        layer = Bidirectional(cell(inputs, hidden), cell(inputs, hidden))
        x = torch.randn(rows, 5, inputs)
        x[0, 0, ::3] *= 1e-39
        x[-1, 2, 1::2] *= 1e38
        x.requires_grad_()
        with weft.precision("bf16"):
            outputs, _ = layer(x)
            (outputs * torch.linspace(-1, 1, outputs.numel()).view_as(outputs)).sum().backward()
        keep(outputs, x.grad, *(parameter.grad for parameter in layer.parameters()))
x, weight, targets = torch.randn(2, 9, 31), torch.randn(70, 31, requires_grad=True), torch.randint(70, (2, 9))
with weft.precision("bf16"):
    loss = weft.engine.linear_cross_entropy(x, weight, None, targets, reduction="sum")
loss.backward()
keep(loss, weight.grad)
for scale in 1e-20, 3e-23, 1e18:  # products of these sizes are subnormal or overflow
    layer = weft.Recurrent(weft.nn.ReLURNNCell(40, 16))
    with torch.no_grad(), weft.precision("bf16"):
        for parameter in layer.parameters():
            parameter.mul_(scale)
        keep(layer(torch.randn(4, 3, 40) * scale)[0])
print(weft.engine.description(), found.hexdigest())
"""


@pytest.mark.skipif(engine.description() != "engine: avx512_bf16", reason="needs a CPU with AVX512_BF16")
def test_the_instruction_and_its_emulation_give_the_same_bits(capsys):
    exec(BITS, {})
    mine = capsys.readouterr().out.split()
    environment = {**os.environ, "WEFT_ENGINE": "avx512"}
    other = subprocess.run([sys.executable, "-c", BITS], env=environment, capture_output=True, text=True, check=True)
    assert (mine[1], other.stdout.split()[1]) == ("avx512_bf16", "avx512")
    assert mine[2] == other.stdout.split()[2]


def gradients(layer, x):
    layer.zero_grad()
    outputs, _ = layer(x)
    (outputs * torch.linspace(-1, 1, outputs.numel(), dtype=x.dtype).view_as(outputs)).sum().backward()
    return [
        outputs.detach(),
        *(parameter.grad.clone() for parameter in layer.parameters() if parameter.grad is not None),
    ]


@pytest.mark.parametrize("name", [name for name in CELLS if name != "stateless"])
def test_every_cell_is_near_its_float32(name):
    torch.manual_seed(1)
    layer, x = Recurrent(CELLS[name](20, 24)), torch.randn(5, 9, 20)
    exact = gradients(layer, x)
    with precision("bf16"):
        found = gradients(layer, x)
    assert not torch.equal(found[0], exact[0])
    for ours, expected in zip(found, exact, strict=True):
        assert (ours - expected).norm() <= 0.02 * expected.norm()
    assert all(torch.equal(a, b) for a, b in zip(gradients(layer, x), exact, strict=True))  # float32 again
    layer, x = layer.double(), x.double()
    plain = gradients(layer, x)
    with precision("bf16"):
        assert all(torch.equal(a, b) for a, b in zip(gradients(layer, x), plain, strict=True))


def test_autocast_selects_it_and_precision_takes_precedence():
    torch.manual_seed(2)
    layer, x = Recurrent(LSTMCell(6, 8)), torch.randn(3, 5, 6)
    plain = layer(x)[0]
    with precision("bf16"):
        expected = layer(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x)[0], expected)
        assert torch.equal(layer(x.bfloat16())[0], layer(x.bfloat16().float())[0])
        with precision("float32"):
            assert torch.equal(layer(x)[0], plain)
    with torch.autocast("cpu", torch.float16):
        assert torch.equal(layer(x)[0], plain)


def test_rows_and_parts_of_a_run_give_the_same_bits():
    torch.manual_seed(3)
    layer, x = Recurrent(LSTMCell(6, 32)), torch.randn(9, 8, 6)
    with precision("bf16"), torch.no_grad():
        whole, last = layer(x)
        assert torch.equal(layer(x[4:5])[0], whole[4:5])
        first, state = layer(x[:, :3])
        second, end = layer(x[:, 3:], state)
        assert torch.equal(torch.cat([first, second], 1), whole)
        assert torch.equal(end.c, last.c)
        stream = Stream([layer.cell], ids=False, rows=9)
        state = stream.start()
        for time in range(8):
            h, state = stream.step(x[:, time].contiguous(), state)
            assert torch.equal(h, whole[:, time])


def test_cross_entropy_is_near_its_float32():
    torch.manual_seed(4)
    x, weight, bias = (
        torch.randn(3, 7, 33),
        torch.randn(50, 33, requires_grad=True),
        torch.randn(50, requires_grad=True),
    )
    targets = torch.randint(0, 50, (3, 7))

    def run():
        weight.grad = bias.grad = None
        loss = linear_cross_entropy(x, weight, bias, targets, reduction="sum")
        loss.backward()
        return [loss.detach(), weight.grad, bias.grad]

    exact = run()
    with precision("bf16"):
        found = run()
    assert found[0] != exact[0]
    for ours, expected in zip(found, exact, strict=True):
        assert (ours - expected).norm() <= 0.02 * expected.norm()


def test_a_linear_layer_follows_the_precision():
    torch.manual_seed(6)
    x, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((3, 7, 33), (50, 33), (50,)))

    def run(*inputs):
        outputs = linear(*inputs)
        return [outputs.detach(), *torch.autograd.grad(outputs.square().sum(), inputs)]

    exact = run(x, weight, bias)
    assert torch.equal(exact[0], torch.nn.functional.linear(x, weight, bias))
    with precision("bf16"):
        found, doubled = run(x, weight, bias), run(*(each.double() for each in (x, weight, bias)))
    for ours, expected, exact_double in zip(found, exact, doubled, strict=True):
        assert ours.dtype == torch.float32
        assert not torch.equal(ours, expected)
        assert (ours - expected).norm() <= 0.02 * expected.norm()
        assert torch.allclose(exact_double.float(), expected, rtol=1e-4, atol=1e-4)


def test_a_backward_pass_has_the_precision_of_its_forward_pass():
    torch.manual_seed(5)
    layer, x = Recurrent(LSTMCell(6, 8)), torch.randn(3, 5, 6)
    with precision("bf16"):
        outputs, _ = layer(x)
        (inside,) = torch.autograd.grad(outputs.sum(), [layer.cell.weight_hh], retain_graph=True)
    (outside,) = torch.autograd.grad(outputs.sum(), [layer.cell.weight_hh])
    assert torch.equal(inside, outside)


def test_an_unknown_precision_is_refused():
    with pytest.raises(weft.WeftError, match=r"'fp8'.*float32, bf16"), precision("fp8"):
        pass


def test_training_in_bf16_goes_nearly_as_in_float32(tmp_path):
    settings = {"train.epochs": 1, "train.seed": 3, "batch.size": 8, "model.hidden_size": 32}
    text = "the cat sat on the mat. the dog ran. " * 200
    corpus = tmp_path / "text.txt"
    corpus.write_text(text)
    found = {}
    for name in ("float32", "bf16"):
        training = weft.start_lm(corpus, tmp_path / name, {**settings, "train.precision": name})
        found[name] = [step.loss.value for step in training.steps()]
    assert found["bf16"] != found["float32"]
    assert np.allclose(found["bf16"], found["float32"], rtol=0.02)


def test_a_compiled_layer_follows_the_precision():
    layer, x = Recurrent(LSTMCell(6, 8)), torch.randn(3, 5, 6)
    compiled = torch.compile(lambda x: layer(x)[0], fullgraph=True, backend="aot_eager")
    plain = compiled(x)
    with precision("bf16"):
        expected = layer(x)[0]
        assert torch.equal(compiled(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(x), expected)
    assert torch.equal(compiled(x), plain)
    assert not torch.equal(plain, expected)


def gradients_of(layer, x, lengths, *, name="float32", kept="float32"):
    """Outputs, the gradients of the parameters and of x, and the bytes that the forward pass keeps beside x."""
    layer.zero_grad()
    x = x.detach().requires_grad_()
    saved = {}

    def pack(tensor):
        saved[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with precision(name, kept=kept), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs, _ = layer(x, lengths=lengths)
    (outputs * torch.linspace(-1, 1, outputs.numel()).view_as(outputs)).sum().backward()
    own = {x.data_ptr(), lengths.data_ptr(), *(parameter.data_ptr() for parameter in layer.parameters())}
    size = sum(size for place, size in saved.items() if place not in own)
    return outputs.detach(), [x.grad, *(parameter.grad.clone() for parameter in layer.parameters())], size


@pytest.mark.parametrize("name", ["float32", "bf16"])
@pytest.mark.parametrize("hidden", [64, 37, 600])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn", "gru-reset-before", "slstm"])
def test_kept_values_in_bf16_take_half_of_the_memory_and_change_gradients_a_little(cell, hidden, name):
    torch.manual_seed(0)
    layer, x = Recurrent(CELLS[cell](16, hidden)), torch.randn(6, 9, 16)
    lengths = torch.tensor([9, 1, 4, 9, 0, 7])
    outputs, exact, size = gradients_of(layer, x, lengths, name=name)
    same, found, half = gradients_of(layer, x, lengths, name=name, kept="bf16")
    assert torch.equal(same, outputs)
    assert half == pytest.approx(size / 2, abs=4)
    errors = [float((a - b).norm() / a.norm()) for a, b in zip(exact, found, strict=True)]
    assert 1e-4 < max(errors) < 0.03
    assert gradients_of(layer, x, lengths, name=name)[1][1].equal(exact[1])  # only inside of the block


def test_a_kept_precision_that_is_none():
    with pytest.raises(weft.WeftError, match="float16"), precision("float32", kept="float16"):
        pass
