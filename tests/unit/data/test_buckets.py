"""Batches of examples of similar length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.data.buckets import Buckets, hold_out, in_batches, pad, take
from weft.data.column import Column
from weft.errors import WeftError

sizes = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40)), min_size=1, max_size=60)


def buckets(lengths: list[tuple[int, int]], tokens: int = 64, rows: int = 5, seed: int = 3) -> Buckets[np.ndarray]:
    return Buckets(np.array(lengths), tokens, rows, seed, lambda chosen: chosen)


@given(sizes, st.integers(1, 100), st.integers(1, 8), st.integers(0, 3))
def test_an_epoch_has_every_example_once_in_batches_within_their_limits(
    lengths: list[tuple[int, int]], tokens: int, rows: int, epoch: int
) -> None:
    data = buckets(lengths, tokens, rows)
    batches = list(data.epoch(epoch))
    assert len(batches) == data.batches
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        longest = max(max(lengths[row]) for row in batch)
        assert len(batch) <= rows
        assert len(batch) == 1 or longest * len(batch) <= tokens


def test_an_epoch_is_reproducible_and_can_be_resumed_at_any_batch() -> None:
    data = buckets([(length % 7, 3) for length in range(50)])
    whole = [batch.tolist() for batch in data.epoch(4)]
    assert [batch.tolist() for batch in data.epoch(4, start=6)] == whole[6:]
    assert [batch.tolist() for batch in data.epoch(5)] != whole
    assert len(list(data.epoch(5))) == len(whole)


def test_rows_of_a_batch_are_alike_in_length() -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 60, (2000, 1))
    data: Buckets[np.ndarray] = Buckets(lengths, 4096, 32, 1, lambda chosen: chosen)
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in data.epoch(0))
    assert padded < 1.03 * lengths.sum()  # by chance it would be nearly twice as much


def test_rows_of_a_batch_are_alike_in_all_columns() -> None:
    """Sources of one length with translations of many: the second column is in order too."""
    generator = np.random.default_rng(0)
    lengths = np.stack([generator.integers(8, 11, 2000), generator.integers(1, 60, 2000)], 1)
    data: Buckets[np.ndarray] = Buckets(lengths, 4096, 32, 1, lambda chosen: chosen)
    for column in (0, 1):
        padded = sum(int(lengths[batch, column].max()) * len(batch) for batch in data.epoch(0))
        assert padded < 1.1 * lengths[:, column].sum()


def test_no_examples_are_refused() -> None:
    with pytest.raises(WeftError, match="no examples"):
        buckets([])  # type: ignore[arg-type]


@given(sizes, st.integers(1, 100), st.integers(1, 8))
def test_results_come_back_in_the_order_of_the_examples(lengths: list[tuple[int, int]], tokens: int, rows: int) -> None:
    found = in_batches(np.array(lengths), lambda chosen: [2 * int(row) for row in chosen], max_tokens=tokens, size=rows)
    assert found == [2 * row for row in range(len(lengths))]


def test_no_examples_give_no_results() -> None:
    assert in_batches(np.zeros(0, dtype=int), lambda chosen: 1 / 0) == []  # type: ignore[arg-type, return-value]


def test_take_appends_an_end_to_every_row() -> None:
    rows = Column.from_rows([[3, 1], [], [4]])
    found = take(rows, np.array([2, 1, 0]), end=9)
    assert found.ids.tolist() == [[4, 9, 0], [9, 0, 0], [3, 1, 9]]
    assert found.lengths.tolist() == [2, 1, 3]


def test_take_keeps_the_type_of_values() -> None:
    """Feature vectors and masks are padded as ids are, in the same order."""
    features = Column.from_rows([np.full((length, 2), length + 0.5) for length in (2, 0, 3)], np.float32)
    found = take(features, np.array([2, 1, 0]))
    assert found.ids.dtype == torch.float32
    assert found.ids[..., 1].tolist() == [[3.5, 3.5, 3.5], [0, 0, 0], [2.5, 2.5, 0]]
    assert found.lengths.tolist() == [3, 0, 2]
    mask = take(Column.from_rows([[True], [True, False]], bool), np.array([0, 1]))
    assert mask.ids.tolist() == [[True, False], [True, False]]


def test_padding() -> None:
    padded = pad([[4, 5, 6], [], [7]])
    assert padded.ids.tolist() == [[4, 5, 6], [0, 0, 0], [7, 0, 0]]
    assert padded.lengths.tolist() == [3, 0, 1]
    assert pad([[]]).ids.shape == (1, 1)


def test_equal_keys_are_held_out_together() -> None:
    keys = [number // 3 for number in range(300)]
    train, held = hold_out(keys, 0.1, seed=1)
    assert sorted(train + held) == list(range(300))
    assert len(held) == 30
    assert not {keys[row] for row in train} & {keys[row] for row in held}
    assert hold_out(keys, 0.1, seed=1) == (train, held) != hold_out(keys, 0.1, seed=2)
    assert hold_out(keys, 0, seed=1) == (list(range(300)), [])
    assert hold_out(["same"] * 4, 0.5, seed=1) == ([0, 1, 2, 3], [])
