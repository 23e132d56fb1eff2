"""Windows of a token stream: coverage, order, offsets and resuming."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.data import windows as windows_module
from weft.data.column import open_column, write_values
from weft.data.windows import RandomWindows, SequentialWindows, evaluation_passages, evaluation_windows
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError

SIZES = st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(0, 200), st.integers(0, 3))


def tokens_for(rows, steps, extra):
    return np.arange(rows * steps + steps + extra)  # a token's id is its place


@given(SIZES)
def test_targets_are_the_next_tokens(size):
    rows, steps, extra, epoch = size
    for kind in (SequentialWindows, RandomWindows):
        stream = kind(tokens_for(rows, steps, extra), rows, steps, seed=4)
        windows = list(stream.epoch(epoch))
        assert len(windows) == stream.batches >= 1
        for window in windows:
            assert window.inputs.shape == window.targets.shape == (rows, steps)
            assert torch.equal(window.targets, window.inputs + 1)


@given(SIZES)
def test_adjacent_sequential_batches_continue_each_other(size):
    rows, steps, extra, epoch = size
    windows = list(SequentialWindows(tokens_for(rows, steps, extra), rows, steps, seed=1).epoch(epoch))
    assert [window.reset_state for window in windows] == [True] + [False] * (len(windows) - 1)
    for before, after in pairwise(windows):
        assert torch.equal(after.inputs[:, 0], before.targets[:, -1])


@given(SIZES)
def test_no_token_is_read_twice_in_an_epoch(size):
    rows, steps, extra, epoch = size
    for kind in (SequentialWindows, RandomWindows):
        inputs = torch.cat(
            [w.inputs.flatten() for w in kind(tokens_for(rows, steps, extra), rows, steps, seed=2).epoch(epoch)]
        )
        assert len(inputs) == len(inputs.unique())


@given(SIZES, st.integers(0, 5))
def test_an_epoch_can_be_resumed_at_any_batch(size, start):
    rows, steps, extra, epoch = size
    for kind in (SequentialWindows, RandomWindows):
        stream = kind(tokens_for(rows, steps, extra), rows, steps, seed=3)
        whole, part = list(stream.epoch(epoch)), list(stream.epoch(epoch, start))
        assert len(part) == max(0, len(whole) - start)
        assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(whole[start:], part, strict=True))


@pytest.mark.parametrize("kind", [SequentialWindows, RandomWindows])
def test_the_offset_differs_between_epochs_and_seeds(kind):
    def first(seed, epoch):
        return min(int(w.inputs.min()) for w in kind(np.arange(400), 3, 10, seed).epoch(epoch))

    offsets = {first(seed, epoch) for seed in range(4) for epoch in range(10)}
    assert offsets >= set(range(8))
    assert max(offsets) < 10 + 10 * (kind is RandomWindows)


def test_random_windows_are_reshuffled_each_epoch():
    stream = RandomWindows(np.arange(1000), 4, 10, seed=0)
    orders = [torch.cat([w.inputs[:, 0] for w in stream.epoch(epoch)]) // 10 for epoch in range(2)]
    assert not torch.equal(*orders)
    assert all(window.reset_state for window in stream.epoch(0))


@pytest.mark.parametrize("count", [1, 2, 3, 10, 64, 1000, 1025, 30_000])
def test_the_random_order_of_a_long_text_is_computed_and_a_permutation(monkeypatch, count):
    monkeypatch.setattr(windows_module, "MOST_STORED", 0)
    orders = [windows_module.random_order(np.random.default_rng(seed), count)(np.arange(count)) for seed in range(2)]
    assert all(np.array_equal(np.sort(order), np.arange(count)) for order in orders)
    if count >= 1000:
        assert not np.array_equal(*orders)
        for order in orders:
            limit = 4 / np.sqrt(count)  # four standard deviations of the correlation of random numbers
            assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < limit
            assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < limit
            assert np.mean(np.diff(order) == 1) < 0.01


def test_the_random_order_of_any_text_takes_little_memory():
    order = windows_module.random_order(np.random.default_rng(0), 10**12)
    found = order(np.arange(10**6, 10**6 + 1000))
    assert len(set(found.tolist())) == 1000
    assert 0 <= found.min() < 10**11 < 9 * 10**11 < found.max() < 10**12


def test_windows_in_a_computed_order_are_read_once_and_resumed(monkeypatch):
    monkeypatch.setattr(windows_module, "MOST_STORED", 0)
    stream = RandomWindows(np.arange(1000), 4, 10, seed=0)
    windows = list(stream.epoch(1))
    inputs = torch.cat([window.inputs.flatten() for window in windows])
    assert len(windows) == stream.batches
    assert len(inputs) == len(inputs.unique())
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(windows[5:], stream.epoch(1, 5), strict=True))


@given(st.integers(2, 400), st.integers(1, 40), st.integers(5, 100))
def test_evaluation_counts_every_target_once(count, steps, row_tokens):
    windows = list(evaluation_windows(np.arange(count), seq_length=steps, row_tokens=row_tokens))
    targets = torch.cat([window.targets.flatten() for window in windows])
    inputs = torch.cat([window.inputs.flatten() for window in windows])
    counted = targets != IGNORE_INDEX
    assert sorted(targets[counted].tolist()) == list(range(1, count))
    assert torch.equal(inputs[counted] + 1, targets[counted])


def test_a_memory_mapped_file_is_read_only_where_windows_are(tmp_path):
    file = tmp_path / "tokens.npy"
    write_values(file, [np.arange(5000)], np.uint16)
    mapped = open_column(file).values
    window = next(iter(SequentialWindows(mapped, 2, 8, seed=0).epoch(0)))
    assert window.inputs.dtype == torch.int64
    assert torch.equal(window.targets, window.inputs + 1)


@pytest.mark.parametrize("kind", [SequentialWindows, RandomWindows])
def test_windows_of_vectors_are_those_of_ids(kind):
    """A stream of vectors is cut where one of ids is; past its end a target is not a number."""
    ids, vectors = np.arange(500), np.stack([np.arange(500), -np.arange(500)], 1).astype(np.float32)
    windows = [list(kind(values, 3, 7, seed=1).epoch(2)) for values in (ids, vectors)]
    for of_ids, of_vectors in zip(*windows, strict=True):
        assert of_vectors.inputs.dtype == torch.float32
        assert torch.equal(of_vectors.inputs[..., 0].long(), of_ids.inputs)
        assert torch.equal(-of_vectors.targets[..., 1].long(), of_ids.targets)
    evaluated = [list(evaluation_windows(values, seq_length=64, row_tokens=100)) for values in (ids, vectors)]
    for of_ids, of_vectors in zip(*evaluated, strict=True):
        assert torch.equal(of_vectors.targets[..., 0].isnan(), of_ids.targets == IGNORE_INDEX)


@pytest.mark.parametrize(("count", "size", "length"), [(6, 32, 35), (6, 32, 1), (6, 1, 35), (50, 32, 12), (2, 9, 9)])
def test_the_advice_for_a_short_text_works_when_followed(count, size, length):
    with pytest.raises(WeftError) as caught:
        SequentialWindows(np.arange(count), size, length, 0)
    more_text, *ways = caught.value.hint.split(", or ")
    assert more_text == "more text"
    assert ways
    for way in ways:
        chosen = {"size": size, "seq_length": length}
        chosen |= {name: int(value) for name, value in re.findall(r"`batch\.(\w+)=(\d+)`", way)}
        SequentialWindows(np.arange(count), chosen["size"], chosen["seq_length"], 0)


def test_the_error_for_a_short_text_states_the_required_length():
    with pytest.raises(
        WeftError, match=r"50 tokens; expected at least 396 for one batch of 32 rows of 12 steps.*batch"
    ):
        SequentialWindows(np.arange(50), 32, 12, 0)
    with pytest.raises(WeftError, match=r"rows of 1 step\. Try: more text$"):
        SequentialWindows(np.arange(1), 32, 1, 0)
    with pytest.raises(WeftError, match="at least 2"):
        next(iter(evaluation_windows(np.arange(1))))


@pytest.mark.parametrize(
    ("count", "steps", "margin", "rows"), [(1000, 64, 16, 3), (64, 64, 200, 2), (2, 5, 3, 1), (97, 8, 3, 4)]
)
def test_evaluation_passages_have_every_token_once_as_target_with_full_context(count, steps, margin, rows):
    tokens = np.arange(count)  # a token is its own place
    asked = []
    for passage in evaluation_passages(tokens, seq_length=steps, margin=margin, batch_size=rows):
        assert len(passage.ids) <= rows
        for ids, targets in zip(passage.ids, passage.targets, strict=True):
            wanted = targets != IGNORE_INDEX
            assert ids[wanted].tolist() == targets[wanted].tolist()
            first, last = int(targets[wanted][0]), int(targets[wanted][-1])
            assert ids.tolist() == list(range(max(0, first - margin), min(count, last + 1 + margin)))
            asked += targets[wanted].tolist()
    assert asked == list(range(1, count))


def test_one_token_is_too_little_to_evaluate_on():
    with pytest.raises(WeftError, match="1 tokens to evaluate on"):
        next(evaluation_passages(np.zeros(1, dtype=np.int64)))
