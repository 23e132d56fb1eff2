"""Batches of examples of similar length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.data.buckets import Buckets, Ragged, hold_out, in_batches, load_columns, pad, save_columns, take
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


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=9))
def test_saved_columns_are_loaded_unchanged(tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]]) -> None:
    file = tmp_path_factory.mktemp("columns") / "train.npz"
    save_columns(file, {"ids": Ragged.from_rows(rows), "label.x": Ragged.from_rows([[7]])})
    back = load_columns(file)
    assert [row.tolist() for row in map(back["ids"].__getitem__, range(len(back["ids"])))] == rows
    assert back["ids"].lengths.tolist() == [len(row) for row in rows]
    assert back["label.x"][0].tolist() == [7]


def test_take_appends_an_end_to_every_row() -> None:
    rows = Ragged.from_rows([[3, 1], [], [4]])
    found = take(rows, np.array([2, 1, 0]), end=9)
    assert found.ids.tolist() == [[4, 9, 0], [9, 0, 0], [3, 1, 9]]
    assert found.lengths.tolist() == [2, 1, 3]


def test_loaded_columns_are_memory_mapped(tmp_path: Path) -> None:
    columns = {"text": Ragged.from_rows([[3, 1], [], [4]]), "empty": Ragged.from_rows([[], []])}
    save_columns(tmp_path / "columns.npz", columns)
    found = load_columns(tmp_path / "columns.npz")
    assert found.keys() == columns.keys()
    for name, column in columns.items():
        assert found[name].values.tolist() == column.values.tolist()
        assert found[name].ends.tolist() == column.ends.tolist()
    assert isinstance(found["text"].values, np.memmap)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "train.npz"
    file.write_bytes(b"PK nothing")
    with pytest.raises(WeftError, match=r"train\.npz"):
        load_columns(file)


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
