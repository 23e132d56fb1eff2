"""Frozen weights: packed once, the same bits, a write is refused by name; kept weights: a write packs anew."""

import copy
import os
import pickle

import pytest
import torch
from torch import nn

import weft
from weft import engine
from weft.cells import CELLS
from weft.engine import Stream
from weft.errors import WeftError
from weft.nn import Bidirectional, GRUCell, LSTMCell, Recurrent, make_stack, to_torch
from weft.nn.freezing import keep_packed, packed_memory

pytestmark = pytest.mark.skipif(engine.library() is None, reason="the engine is not built")
PRECISIONS = ("float32", "bf16", "int8")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def module_of(kind, precision="float32"):
    """A module, and an input for it."""
    x = torch.randn(5, 7, 24)
    if kind == "ids":
        module, x = Recurrent(LSTMCell(40, 32)), torch.randint(0, 40, (5, 7))
    elif kind == "stack":
        module = make_stack("gru", 24, 32, layers=2, bidirectional=True)
    elif kind == "torch":
        module = nn.LSTM(24, 32, num_layers=2, bidirectional=True, batch_first=True)
        weft.accelerate(module)
    else:
        module = Recurrent(CELLS[kind](24, 32))
    return (weft.quantize(module) if precision == "int8" else module.eval()), x


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else [leaf for part in result for leaf in flat(part)]


def run(module, x, precision="float32", **options):
    with torch.no_grad(), weft.precision("float32" if precision == "int8" else precision):
        return flat(module(x, **options))


def equal(first, second):
    return len(first) == len(second) and all(map(torch.equal, first, second))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", ["lstm", "gru-reset-before", "multi-head-lstm", "rg-lru", "ids", "stack", "torch"])
def test_results_are_those_of_the_unfrozen_module(kind, precision):
    if kind == "torch" and precision == "int8":
        pytest.skip("torch's layers have no int8 weights")
    module, x = module_of(kind, precision)
    fresh = copy.deepcopy(module)
    expected = run(fresh, x, precision)
    weft.freeze(module)
    for _ in range(3):
        assert equal(run(module, x, precision), expected)
    assert packed_memory(module) > 0
    assert packed_memory(fresh) == 0
    for rows in (x[:1], x[:, :1], x[:1, :1], torch.cat([x] * 9)):
        assert equal(run(module, rows, precision), run(fresh, rows, precision))
    if kind != "torch":
        lengths = torch.tensor([7, 0, 3, 1, 7])
        assert equal(run(module, x, precision, lengths=lengths), run(fresh, x, precision, lengths=lengths))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_goes_in_and_comes_out(dtype):
    for module in (Recurrent(LSTMCell(6, 8, dtype=dtype)), weft.nn.LSTM(6, 8, batch_first=True, dtype=dtype)):
        x = torch.randn(3, 9, 6, dtype=dtype)
        whole, last = module(x)
        for freeze in (False, True):
            if freeze:
                weft.freeze(module)
            with torch.no_grad():
                state, outputs = None, []
                for t in range(9):
                    h, state = module(x[:, t : t + 1], state)
                    outputs.append(h)
            assert torch.equal(torch.cat(outputs, 1), whole)
            assert equal(flat(state), flat(last))


def test_the_report_says_what_is_frozen_and_its_memory():
    model = nn.ModuleDict({"embed": nn.Embedding(9, 24), "encoder": make_stack("lstm", 24, 64), "old": nn.GRU(24, 64)})
    weft.accelerate(model)
    report = weft.freeze(model)
    assert report.layers == ("encoder.layers.0.cell", "old")
    assert report.bytes == 4 * (4 + 3) * 64 * (24 + 64)
    assert str(report) == "frozen: 2 recurrent layers; packed weights take about 0.2 MB beside the weights"
    run(model["encoder"], torch.randn(1, 2, 24))
    run(model["old"], torch.randn(2, 1, 24))
    assert report.bytes <= packed_memory(model) < 1.2 * report.bytes


@pytest.mark.parametrize("kind", ["lstm", "stack", "torch"])
def test_a_write_is_refused_by_name(kind):
    module, x = module_of(kind)
    weft.freeze(module)
    expected = run(module, x)
    name, weight = list(module.named_parameters())[1]
    with torch.no_grad():
        weight.add_(1)
    for _ in range(2):
        with pytest.raises(WeftError, match=rf"{name.replace('.', '[.]')} was written after weft.freeze.*unfreeze"):
            run(module, x)
    with pytest.raises(WeftError, match="was written"):
        module(x)  # with gradients, too
    weft.unfreeze(module)
    changed = run(module, x)
    assert not equal(changed, expected)
    assert equal(changed, run(copy.deepcopy(module), x))


def test_other_writes():
    module, x = module_of("lstm")

    def refused():
        with pytest.raises(WeftError, match="weight_hh was written"):
            run(module, x)
        weft.unfreeze(module)
        run(module, x)
        weft.freeze(module)

    weft.freeze(module)
    module.load_state_dict(
        {name: value + 1 for name, value in module.state_dict().items() if "bias" not in name}, strict=False
    )
    with pytest.raises(WeftError, match="weight_ih was written"):
        run(module, x)
    weft.unfreeze(module)
    weft.freeze(module)
    module.cell.weight_hh = nn.Parameter(module.cell.weight_hh + 1)
    refused()
    nn.init.zeros_(module.cell.weight_hh)
    refused()
    optimizer = torch.optim.SGD([module.cell.weight_hh], 0.1)
    module(x)[0].sum().backward()
    optimizer.step()
    refused()
    before = run(module, x)
    with torch.no_grad():
        module.cell.weight_hh.data.add_(1)  # not seen: torch does not count it
        module.cell.weight_hh.detach().numpy()[:] = 3
    assert equal(run(module, x), before)


def test_streams_of_frozen_cells_share_their_packed_weights():
    stack = make_stack("gru", 40, 32, layers=2).eval()
    cells, output = [layer.cell for layer in stack.layers], nn.Linear(32, 40)
    ids = torch.tensor([3])
    plain = Stream(cells, output.weight, output.bias)
    expected = plain.step(ids, plain.start())
    weft.freeze(stack)
    first = Stream(cells, output.weight, output.bias)
    memory = packed_memory(stack)
    stream = Stream(cells, output.weight, output.bias)
    assert packed_memory(stack) == memory > 0
    del first
    assert equal(flat(stream.step(ids, stream.start())), flat(expected))
    with torch.no_grad():
        cells[1].bias_ih.add_(1)
    with pytest.raises(WeftError, match=r"layers\.1\.cell\.bias_ih was written"):
        Stream(cells, output.weight, output.bias)


@pytest.mark.parametrize("kind", ["lstm", "stack", "torch"])
def test_copies_are_not_frozen(kind):
    module, x = module_of(kind)
    weft.freeze(module)
    expected = run(module, x)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    if kind != "torch":
        copies.append(weft.quantize(module))
    for copied in copies:
        precision = "int8" if len(copies) == 3 and copied is copies[2] else "float32"
        assert precision == "int8" or equal(run(copied, x), expected)
        weft.unfreeze(copied)  # changes nothing
        before = run(copied, x, precision)
        with torch.no_grad():
            for tensor in (*copied.parameters(), *copied.buffers()):
                if tensor.is_floating_point():
                    tensor.mul_(0.5)
        assert not equal(run(copied, x, precision), before)
    assert equal(run(module, x), expected)


def test_a_frozen_module_converts_and_moves():
    module, x = module_of("stack")
    weft.freeze(module)
    expected = run(module, x)
    with torch.no_grad():
        torch.testing.assert_close(to_torch(module)(x)[0], expected[0], rtol=1e-5, atol=1e-5)
    module.double()
    torch.testing.assert_close(run(module, x.double())[0].float(), expected[0], rtol=1e-5, atol=1e-5)
    assert equal(run(module.float(), x), expected)
    quantized, _ = module_of("gru", "int8")
    weft.freeze(quantized)
    before = run(quantized, x)
    for name, buffer in list(quantized.cell.named_buffers()):
        setattr(quantized.cell, name, buffer.clone())  # as a trip to another device does
    assert equal(run(quantized, x), before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_frozen_module_forks():
    module, x = module_of("lstm")
    weft.freeze(module)
    expected = run(module, x)
    child = os.fork()
    if child == 0:
        os._exit(0 if equal(run(module, x), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_frozen_module_trains_what_is_below_it():
    """Gradients of the input are those of the unfrozen module."""
    module, x = module_of("lstm")
    found = []
    for _ in range(2):
        own = x.clone().requires_grad_()
        module(own)[0].square().sum().backward()
        found.append(own.grad)
        weft.freeze(module.requires_grad_(False))
        run(module, x)
    assert torch.equal(*found)


def test_kept_weights_are_packed_anew_after_a_write():
    module, x = module_of("stack")
    keep_packed(module)
    fresh = copy.deepcopy(module)
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    states = [{name: value.clone() for name, value in module.state_dict().items()}]
    for _ in range(3):
        assert equal(run(module, x), run(fresh, x))
        assert packed_memory(module) > 0
        module(x)[0].sum().backward()
        optimizer.step()
        fresh.load_state_dict(module.state_dict())
    assert equal(run(module, x), run(fresh, x))
    module.load_state_dict(states[0])
    fresh.load_state_dict(states[0])
    assert equal(run(module, x), run(fresh, x))
    weft.freeze(module)
    run(module, x)
    weft.unfreeze(module)
    nn.init.zeros_(module.layers[0].forward_layer.cell.weight_hh)  # kept again, as before
    run(module, x)
    assert packed_memory(module) > 0


def test_weights_whose_writes_torch_does_not_count():
    with torch.inference_mode():
        module, x = module_of("lstm")
        keep_packed(module)
        before = run(module, x)
        module.cell.weight_hh.add_(1)
        assert not equal(run(module, x), before)
        assert equal(run(module, x), run(copy.deepcopy(module), x))


def test_calls_that_differ_in_precision_do_not_disturb_each_other():
    module, x = module_of("lstm", "int8")
    expected = run(module, x)
    for _ in range(2):
        assert equal(flat(module(x)), expected)
        own = x.clone().requires_grad_()
        module(own)[0].sum().backward()  # in float32: int8 has no backward pass
    module, x = module_of("lstm")
    x.requires_grad_()

    def gradient(backward_later=False, **options):
        with weft.precision("float32", **options):
            outputs, _ = module(x)
        if backward_later:
            with weft.precision("float32", kept="bf16"):
                module(x)
        return torch.autograd.grad(outputs.sum(), x)[0]

    exact = gradient()
    assert torch.equal(gradient(backward_later=True), exact)
    half = gradient(kept="bf16")
    assert 0 < (half - exact).norm() < 0.05 * exact.norm()
    assert torch.equal(gradient(kept="bf16"), half)
    assert torch.equal(gradient(), exact)


def test_dropout_is_not_forgotten():
    stack, x = make_stack("gru", 24, 32, layers=2), torch.randn(2, 3, 24)
    before = run(stack, x)
    assert equal(run(stack, x), before)
    stack.dropout = 0.5
    assert not equal(run(stack, x), before)
    assert equal(run(stack.eval(), x), before)


def test_a_mistake_is_named():
    with pytest.raises(WeftError, match=r"Linear has no recurrent layers.*accelerate"):
        weft.freeze(nn.Linear(2, 2))
    with pytest.raises(WeftError, match="unfreeze: str"):
        weft.unfreeze("model")
    with torch.inference_mode():
        module = Recurrent(GRUCell(3, 4))
    with pytest.raises(WeftError, match=r"cell\.weight_ih was made in torch\.inference_mode"):
        weft.freeze(module)


def test_both_directions_share_nothing():
    module = Bidirectional(LSTMCell(6, 16), LSTMCell(6, 24))
    x = torch.randn(2, 5, 6)
    expected = run(module, x)
    weft.freeze(module.backward_layer)
    assert equal(run(module, x), expected)
    with torch.no_grad():
        module.forward_layer.cell.weight_hh.add_(1)
    assert not equal(run(module, x)[:1], expected[:1])
