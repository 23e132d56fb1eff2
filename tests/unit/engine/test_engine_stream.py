"""Streams: one step at a time gives what the layers give at once, and samples as weft.decoding does."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import weft
from weft import engine
from weft.cells import CELLS, LSTMCell
from weft.decoding import Sample, count_token
from weft.engine import Stream
from weft.errors import WeftError
from weft.nn import make_stack

pytestmark = pytest.mark.skipif(engine.library() is None, reason="the engine is not built")
VOCABULARY = 11


@pytest.fixture(params=["gru", "gru-reset-before", "lstm", "stateless"])
def model(request):
    torch.manual_seed(0)
    stack, output = make_stack(request.param, VOCABULARY, 21, layers=2), nn.Linear(21, VOCABULARY)
    nn.init.normal_(output.weight)
    return stack, output


@pytest.mark.parametrize("rows", [1, 3, 150])
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
    expected = cell.step(cell.project(x), cell.initial_state(2))[0]
    for ours, theirs in zip((outputs, *state), (expected.h, *expected), strict=True):
        torch.testing.assert_close(ours, theirs)


PENALTIES = {"repetition_penalty": 1.6, "presence_penalty": 0.4, "frequency_penalty": 0.2}
WAYS = [
    {},
    {"top_k": 4},
    {"top_p": 0.6},
    {"temperature": 0.5, "top_k": 6, "top_p": 0.8},
    {"min_p": 0.3},
    {"typical_p": 0.5},
    {"repetition_penalty": 1.6},
    {"repetition_penalty": 0.7},
    {"presence_penalty": 1.5},
    {"frequency_penalty": -0.5},
    {"top_k": 9, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.8, "temperature": 1.5, **PENALTIES},
    {"top_k": 1, **PENALTIES},
]


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_sampling_is_that_of_decode(model, how):
    stack, output = model
    stream = Stream([layer.cell for layer in stack.layers], output.weight, output.bias, rows=3)
    first, uniforms, sample = torch.tensor([1, 5, 2]), torch.rand(3, 40, dtype=torch.float64), Sample(**how)
    bias = {3: -math.inf, 7: -math.inf, 4: 1.5, 9: -2.0}
    seen = [{1: 0}, {5: 0, 2: 3}, {2: 0, 4: 1, 6: 0}]
    given = seen if sample.penalizes else []
    chosen, state = stream.sample(first, stream.start(), uniforms, sample, bias=bias, seen=given)
    assert seen[0] == {1: 0}, "what was given is not changed"
    ids, before, expected = first, None, []
    with torch.no_grad():
        for n in range(40):
            outputs, before = stack(ids[:, None], before)
            log_probs = torch.log_softmax(output(outputs[:, 0]), -1)
            log_probs[:, list(bias)] += torch.tensor(list(bias.values()))
            ids = sample(log_probs, uniforms[:, n], seen)
            for counts, token in zip(seen, ids.tolist(), strict=True):
                count_token(counts, token)
            expected.append(ids)
    assert torch.equal(chosen, torch.stack(expected, 1))
    for ours, theirs in zip((p for s in state for p in s), (p for s in before for p in s), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"top_k": 1},
        {"top_k": 700},
        {"top_p": 0.9},
        {"top_k": 900, "top_p": 0.5},
        {"min_p": 0.2},
        {"typical_p": 0.6},
        {"top_k": 900, "typical_p": 0.9, "min_p": 0.001},
    ],
)
def test_a_large_vocabulary(how):
    torch.manual_seed(0)
    cell, output = LSTMCell(2000, 8), nn.Linear(8, 2000)
    nn.init.normal_(output.weight)
    output.weight.data[5] = output.weight.data[900]  # of equals the first comes first
    output.bias.data[[5, 900]] = 4.0
    stream, uniforms = Stream([cell], output.weight, output.bias), torch.rand(1, 30, dtype=torch.float64)
    chosen, _ = stream.sample(torch.tensor([1]), stream.start(), uniforms, Sample(**how))
    ids, state = torch.tensor([1]), cell.initial_state(1)
    for n in range(30):
        state, _ = cell.step(cell.project(ids), state)
        ids = Sample(**how)(torch.log_softmax(output(state.h), -1).detach(), uniforms[:, n])
        assert ids.item() == chosen[0, n]


def test_what_is_no_number_has_no_chance():
    stream = Stream([LSTMCell(70, 8)], torch.full((70, 8), torch.nan))
    for how in ({}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.5}, {"typical_p": 0.5}):
        assert (stream.sample(torch.tensor([1]), stream.start(), torch.rand(1, 9), Sample(**how))[0] == 0).all()


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", ["lstm", "gru-reset-before"])
def test_threads_change_nothing(name, rows, threads):
    torch.manual_seed(0)
    stack, output = make_stack(name, 300, 200, layers=2), nn.Linear(200, 300)
    first, uniforms, found = torch.arange(rows), torch.rand(rows, 40), []
    for count in (1, 2, 3):
        threads(count)
        stream = Stream([layer.cell for layer in stack.layers], output.weight, output.bias, rows=rows)
        chosen, state = stream.sample(first, stream.start(), uniforms, Sample())
        logits = []
        for n in range(80):  # long enough that both ways of taking a step are tried
            result, state = stream.step(chosen[:, n % 40], state)
            logits.append(result)
        found.append((chosen, torch.stack(logits), *(part for each in state for part in each)))
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("count", [1, 3])
def test_many_rows_are_rows_alone(precision, count, threads):
    """Many rows are divided into blocks: every row is, bit for bit, what it is in a stream of its own."""
    torch.manual_seed(0)
    rows = 150
    stack, output = make_stack("gru", VOCABULARY, 21, layers=2), nn.Linear(21, VOCABULARY)
    cells, ids, uniforms = [layer.cell for layer in stack.layers], torch.arange(rows) % VOCABULARY, torch.rand(rows, 5)
    threads(count)
    with weft.precision(precision):
        many = Stream(cells, output.weight, output.bias, rows=rows)
        one = Stream(cells, output.weight, output.bias)
    state = many.start()
    for _ in range(20):  # long enough that both ways of taking a step are tried
        logits, after = many.step(ids, state)
        chosen, last = many.sample(ids, state, uniforms, Sample())
        state = after
    for row in (0, 7, 72, 79, 80, 149):
        mine, first = slice(row, row + 1), one.start()
        for _ in range(20):
            expected, after = one.step(ids[mine], first)
            tokens, end = one.sample(ids[mine], first, uniforms[mine], Sample())
            first = after
        assert torch.equal(logits[mine], expected)
        assert torch.equal(chosen[mine], tokens)
        for batched, alone in ((state, after), (last, end)):
            parts = zip([p for s in batched for p in s], [p for s in alone for p in s], strict=True)
            assert all(torch.equal(a[mine], b) for a, b in parts)


def test_one_stream_in_many_threads():
    torch.manual_seed(0)
    stream = Stream([LSTMCell(9, 64)], torch.randn(9, 64))
    starts = [(LSTMCell(9, 64).state_type(torch.randn(1, 64), torch.randn(1, 64)),) for _ in range(4)]

    def run(state):
        found = []
        for n in range(200):
            logits, state = stream.step(torch.tensor([n % 9]), state)
            found.append(logits)
        return torch.stack(found)

    expected = [run(state) for state in starts]
    with ThreadPoolExecutor(4) as pool:
        for ours, theirs in zip(pool.map(run, starts), expected, strict=True):
            assert torch.equal(ours, theirs)


def test_results_of_earlier_steps_stay():
    stream, state, kept = Stream([LSTMCell(5, 6)]), None, []
    for n in range(6):
        h, state = stream.step(torch.tensor([n % 5]), state or stream.start())
        assert h is state[0].h
        kept.append((h, h.clone(), state[0].c, state[0].c.clone()))
    for h, h_then, c, c_then in kept:
        assert torch.equal(h, h_then)
        assert torch.equal(c, c_then)
    changed = state[0].h.mul_(2)  # a state may be changed between steps
    assert changed is state[0].h
    ours, _ = stream.step(torch.tensor([1]), state)
    expected = stream.cells[0].step(stream.cells[0].project(torch.tensor([1])), state[0])[0].h
    torch.testing.assert_close(ours, expected.detach())


def test_a_row_ends_where_it_ends(model):
    stack, output = model
    stream = Stream([layer.cell for layer in stack.layers], output.weight, output.bias, rows=4)
    chosen, _ = stream.sample(torch.zeros(4, dtype=torch.long), stream.start(), torch.rand(4, 50), Sample(), end=4)
    free, _ = stream.sample(torch.zeros(4, dtype=torch.long), stream.start(), torch.zeros(4, 1), Sample())
    assert free.shape == (4, 1)
    for row in chosen.tolist():
        assert 4 not in row
        assert row == [*(i for i in row if i >= 0), *(i for i in row if i < 0)]


def test_mistakes_are_named():
    stream = Stream([LSTMCell(5, 6)], torch.randn(5, 6))
    with pytest.raises(WeftError, match="outside the vocabulary"):
        stream.step(torch.tensor([5]), stream.start())
    with pytest.raises(WeftError, match="integers"):
        stream.step(torch.tensor([1.0]), stream.start())
    with pytest.raises(WeftError, match="a state is"):
        stream.step(torch.tensor([1]), (LSTMCell(5, 6).initial_state(2),))
    with pytest.raises(WeftError, match="a state is"):
        stream.step(torch.tensor([1]), (LSTMCell(5, 6).to("meta").initial_state(1),))
    with pytest.raises(WeftError, match="2 states of 4 parts"):
        stream.step(torch.tensor([1]), stream.start() * 2)
    with pytest.raises(WeftError, match="0 states of 0 parts"):
        stream.step(torch.tensor([1]), ())
    with pytest.raises(WeftError, match="float64"):
        Stream([LSTMCell(5, 6)], ids=False).step(torch.zeros(1, 5, dtype=torch.float64), stream.start())
    state, uniforms = stream.start(), torch.rand(1, 3)
    with pytest.raises(WeftError, match=r"bias of \[5\]; expected ids from 0 to 4"):
        stream.sample(torch.tensor([1]), state, uniforms, Sample(), bias={5: 1.0})
    with pytest.raises(WeftError, match=r"tokens of 2 rows; expected .* tokens of 1 rows or none"):
        stream.sample(torch.tensor([1]), state, uniforms, Sample(), seen=[{}, {}])
    with pytest.raises(WeftError, match="needs token ids and an output layer"):
        Stream([LSTMCell(5, 6)]).sample(torch.tensor([1]), stream.start(), torch.rand(1, 3), Sample())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stream([LSTMCell(5, 8), LSTMCell(9, 8)]), "a cell reads 9 features and the one below gives 8"),
        (lambda: Stream([LSTMCell(5, 8), LSTMCell(8, 8).double()]), "float64"),
        (lambda: Stream([LSTMCell(5, 8)], torch.zeros(10, 6)), r"weight is \(10, 6\)"),
        (lambda: Stream([LSTMCell(5, 8)], torch.zeros(10, 8), torch.zeros(3)), r"bias is \(3,\)"),
        (lambda: Stream([]), "cannot run these cells"),
    ],
)
def test_a_stream_of_parts_that_do_not_fit_is_refused(make, message):
    with pytest.raises(WeftError, match=message):
        make()
