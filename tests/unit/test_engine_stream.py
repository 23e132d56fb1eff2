"""Streams: one step at a time gives what the layers give at once, and samples as weft.decode does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from weft import engine
from weft.cells import CELLS, LSTM
from weft.decode import Sample
from weft.engine import Stream
from weft.errors import WeftError
from weft.recurrent import make_stack

pytestmark = pytest.mark.skipif(engine.library() is None, reason="the engine is not built")
VOCABULARY = 11


@pytest.fixture(params=["gru", "gru-reset-before", "lstm", "stateless"])
def model(request):
    torch.manual_seed(0)
    stack, output = make_stack(request.param, VOCABULARY, 21, layers=2), nn.Linear(21, VOCABULARY)
    nn.init.normal_(output.weight)
    return stack, output


@pytest.mark.parametrize("rows", [1, 3])
def test_steps_are_the_whole(model, rows):
    stack, output = model
    stream = Stream([layer.cell for layer in stack.layers], output.weight, output.bias, rows=rows)
    ids = torch.randint(0, VOCABULARY, (rows, 6))
    expected = output(stack(ids)[0])
    state = stream.start()
    for t in range(6):
        before = [part.clone() for each in state for part in each]
        logits, after = stream.step(ids[:, t], state)
        torch.testing.assert_close(logits, expected[:, t])
        assert all(torch.equal(a, b) for a, b in zip(before, (p for s in state for p in s), strict=True))
        state = after


@pytest.mark.parametrize("name", CELLS)
def test_numbers_in_and_no_output_layer(name):
    cell = CELLS[name](4, 9).double()
    stream, x = Stream([cell], rows=2, ids=False), torch.randn(2, 4, dtype=torch.float64)
    outputs, (state,) = stream.step(x, stream.start())
    expected = cell.step(cell.project(x), cell.start(2))[0]
    for ours, theirs in zip((outputs, *state), (expected.h, *expected), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("how", [{}, {"top_k": 4}, {"top_p": 0.6}, {"temperature": 0.5, "top_k": 6, "top_p": 0.8}])
def test_sampling_is_that_of_decode(model, how):
    stack, output = model
    stream = Stream([layer.cell for layer in stack.layers], output.weight, output.bias, rows=3)
    first, uniforms, banned = torch.tensor([1, 5, 2]), torch.rand(3, 40, dtype=torch.float64), [3, 7]
    chosen, state = stream.sample(first, stream.start(), uniforms, banned=banned, **how)
    ids, before, expected = first, None, []
    with torch.no_grad():
        for n in range(40):
            outputs, before = stack(ids[:, None], before)
            log_probs = torch.log_softmax(output(outputs[:, 0]), -1)
            log_probs[:, banned] = -torch.inf
            ids = Sample(**how)(log_probs, uniforms[:, n])
            expected.append(ids)
    assert torch.equal(chosen, torch.stack(expected, 1))
    for ours, theirs in zip((p for s in state for p in s), (p for s in before for p in s), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_row_ends_where_it_ends(model):
    stack, output = model
    stream = Stream([layer.cell for layer in stack.layers], output.weight, output.bias, rows=4)
    chosen, _ = stream.sample(torch.zeros(4, dtype=torch.long), stream.start(), torch.rand(4, 50), end=4)
    free, _ = stream.sample(torch.zeros(4, dtype=torch.long), stream.start(), torch.zeros(4, 1))
    assert free.shape == (4, 1)
    for row in chosen.tolist():
        assert 4 not in row
        assert row == [*(i for i in row if i >= 0), *(i for i in row if i < 0)]


def test_mistakes_are_named():
    stream = Stream([LSTM(5, 6)], torch.randn(5, 6))
    with pytest.raises(WeftError, match="outside the vocabulary"):
        stream.step(torch.tensor([5]), stream.start())
    with pytest.raises(WeftError, match="whole numbers"):
        stream.step(torch.tensor([1.0]), stream.start())
    with pytest.raises(WeftError, match="a state is"):
        stream.step(torch.tensor([1]), (LSTM(5, 6).start(2),))
    with pytest.raises(WeftError, match="needs token ids and an output layer"):
        Stream([LSTM(5, 6)]).sample(torch.tensor([1]), stream.start(), torch.rand(1, 3))
