"""int8 weights: exact integer sums, a quarter of the memory, results near those of float32, the same in a stream."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch

import weft
from weft import engine
from weft.cells import CELLS
from weft.engine import Stream
from weft.nn import GRUCell, LSTMCell, Recurrent, ReLURNNCell, make_stack

needs_engine = pytest.mark.skipif(engine.library() is None, reason="the engine is not built")


def whole_numbers(x):
    """q and scale of each row, as the core has them."""
    largest = x.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 0, 127 / largest, 0)
    return (x * inverse).round(), largest / 127


@needs_engine
@pytest.mark.parametrize(("rows", "inputs", "hidden"), [(1, 256, 256), (1, 7, 50), (3, 33, 13), (9, 70, 64)])
def test_products_are_exact_sums_of_whole_numbers(rows, inputs, hidden):
    torch.manual_seed(rows)
    cell = ReLURNNCell(inputs, hidden)
    torch.nn.init.zeros_(cell.weight_hh)
    layer, x = weft.quantize(Recurrent(cell)), torch.randn(rows, 1, inputs)
    x[0] *= 100
    found = layer(x)[0][:, 0]
    (q, scale), (w, w_scale) = whole_numbers(x[:, 0]), whole_numbers(cell.weight_ih.detach())
    sums = q.double() @ w.double().t()
    expected = sums * (scale * w_scale.t()) + (cell.bias_ih + cell.bias_hh).detach()
    torch.testing.assert_close(found, expected.relu().float(), rtol=1e-6, atol=1e-6)


@needs_engine
@pytest.mark.parametrize("name", [name for name in CELLS if name != "stateless"])
def test_every_cell_is_near_its_float32_and_the_same_in_a_stream(name):
    torch.manual_seed(1)
    layer, x = Recurrent(CELLS[name](20, 32)), torch.randn(5, 9, 20)
    quantized = weft.quantize(layer)
    with torch.no_grad():
        exact, found = layer(x)[0], quantized(x)[0]
    assert 0 < (found - exact).norm() <= 0.03 * exact.norm()
    assert torch.equal(quantized(x[2:3])[0], found[2:3])
    stream = Stream([quantized.cell], rows=5, ids=False)
    state = stream.start()
    for time in range(9):
        h, state = stream.step(x[:, time].contiguous(), state)
        assert torch.equal(h, found[:, time])


BITS = """
import hashlib, torch, weft
torch.manual_seed(0)
found = hashlib.sha256()
for inputs, hidden, rows in (64, 64, 9), (33, 52, 3), (7, 13, 1), (300, 40, 1):
    layer = weft.quantize(weft.Recurrent(weft.CELLS["lstm"](inputs, hidden)))
    x = torch.randn(rows, 4, inputs)
    x[0, 0] *= 1e-39
    found.update(layer(x)[0].contiguous().numpy().tobytes())
print(weft.engine.description(), found.hexdigest())
"""


@pytest.mark.skipif(engine.description() != "engine: avx512_bf16", reason="needs a CPU with AVX512_VNNI")
def test_the_instruction_and_its_emulation_give_the_same_results(capsys):
    exec(BITS, {})
    mine = capsys.readouterr().out.split()
    environment = {**os.environ, "WEFT_ENGINE": "avx512"}
    other = subprocess.run([sys.executable, "-c", BITS], env=environment, capture_output=True, text=True, check=True)
    assert mine[1:] == ["avx512_bf16", other.stdout.split()[2]]


@needs_engine
def test_a_row_that_is_not_finite_gives_nan_and_others_do_not():
    layer = weft.quantize(Recurrent(LSTMCell(20, 16)))
    x = torch.randn(3, 2, 20)
    x[1, 0, 3] = float("inf")
    found = layer(x)[0]
    assert found[1].isnan().all()
    assert found[[0, 2]].isfinite().all()
    assert torch.equal(found[0], layer(x[:1])[0][0])


def test_weights_take_a_quarter_of_the_memory_and_the_model_stays():
    stack = make_stack("lstm", 256, 256, layers=2)
    before = copy.deepcopy(stack.state_dict())
    quantized = weft.quantize(stack)
    sizes = [
        sum(value.nbytes for name, value in each.state_dict().items() if "bias" not in name)
        for each in (stack, quantized)
    ]
    assert 0.25 < sizes[1] / sizes[0] < 0.255
    assert all(torch.equal(value, before[name]) for name, value in stack.state_dict().items())
    with pytest.raises(weft.WeftError, match="no recurrent cells"):
        weft.quantize(quantized)
    with pytest.raises(weft.WeftError, match="no recurrent cells"):
        weft.quantize(torch.nn.Linear(2, 3))


@needs_engine
@pytest.mark.filterwarnings("error")
def test_a_first_run_in_inference_mode_is_the_engine_s():
    layer, x = Recurrent(GRUCell(24, 32)), torch.randn(2, 3, 24)
    quantized = weft.quantize(layer)
    with torch.inference_mode():
        found = layer(x)[0], quantized(x)[0]
    with torch.no_grad():
        assert torch.equal(found[0], layer(x)[0])
        assert torch.equal(found[1], quantized(x)[0])


def test_copies_pickles_and_gradients_of_the_input():
    torch.manual_seed(2)
    layer, x = weft.quantize(Recurrent(GRUCell(24, 32))), torch.randn(2, 3, 24)
    expected = layer(x)[0]
    assert torch.equal(copy.deepcopy(layer)(x)[0], expected)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x)[0], expected)
    x.requires_grad_()
    outputs = layer(x)[0]  # with gradients, in float32
    torch.testing.assert_close(outputs, expected, rtol=0.05, atol=0.05)
    outputs.sum().backward()
    assert x.grad.isfinite().all()


def test_a_quantized_language_model_scores_and_writes(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. the dog ran. " * 200)
    settings = {"train.epochs": 2, "batch.size": 8, "model.hidden_size": 48, "model.embedding_dim": 32}
    training = weft.start_lm(tmp_path / "text.txt", tmp_path / "run", settings)
    for _ in training.steps():
        pass
    model = weft.load(tmp_path / "run")
    quantized = weft.quantize(model)
    tokens = torch.tensor(model.text_field.encode("the dog sat on the mat. the cat ran. ") * 5)
    exact, found = model.model.evaluate(tokens).cross_entropy, quantized.model.evaluate(tokens).cross_entropy
    assert abs(found / exact - 1) < 0.02
    assert quantized.generate("the ", tokens=30, sampler=weft.greedy) == model.generate(
        "the ", tokens=30, sampler=weft.greedy
    )
