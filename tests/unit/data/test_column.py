"""Stored columns: any type, rows of any length, mapped into memory, refused when they are damaged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.data.column import Column, JoinedValues, ends_file, open_column, open_values, write_column, write_values
from weft.data.field import fields_content
from weft.errors import WeftError
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, data_folder, is_stored, store, stored, write_data_record
from weft.training.run import DATA_RECORD, open_run, read_json, staged, write_json, write_run


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=9), st.sampled_from(["int32", "uint16", "float32", "?"])
)
def test_a_stored_column_is_read_unchanged(tmp_path_factory, rows, dtype):
    file = tmp_path_factory.mktemp("columns") / "x.npy"
    expected = Column.from_rows(rows, dtype)
    for given_rows in (expected, iter(rows)):
        write_column(file, given_rows, dtype)
        column = open_column(file)
        assert column.values.dtype == np.dtype(dtype)
        assert len(column) == len(rows)
        assert [column[row].tolist() for row in range(len(rows))] == [
            expected[row].tolist() for row in range(len(rows))
        ]
        assert column.lengths.tolist() == [len(row) for row in rows]
        ends_file(file).unlink(missing_ok=True)


def test_vectors_are_mapped_and_not_read(tmp_path):
    rows = [np.random.default_rng(length).normal(size=(length, 3)).astype(np.float32) for length in (4, 0, 2)]
    write_column(tmp_path / "features.npy", rows, np.float32)
    column = open_column(tmp_path / "features.npy")
    assert isinstance(column.values, np.memmap)
    assert column.values.shape == (6, 3)
    assert all(np.array_equal(column[place], row) for place, row in enumerate(rows))


def test_rows_of_one_value_need_no_ends(tmp_path):
    write_column(tmp_path / "labels.npy", [[3], [1], [2]])
    assert [path.name for path in tmp_path.iterdir()] == ["labels.npy"]
    column = open_column(tmp_path / "labels.npy")
    assert [column[row].tolist() for row in range(3)] == [[3], [1], [2]]


def test_a_stream_is_complete_or_not_there(tmp_path):
    blocks = [np.arange(3), np.arange(10**6)]
    assert write_values(tmp_path / "x.npy", iter(blocks), np.uint32) == 3 + 10**6
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.concatenate(blocks))

    def broken():
        yield np.arange(4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_values(tmp_path / "y.npy", broken(), np.uint32)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_texts(tmp_path):
    texts = ["one", "", "中文 é", "a\nb"]
    write_column(tmp_path / "t.npy", Column.from_texts(texts))
    assert open_column(tmp_path / "t.npy").texts() == texts


@pytest.mark.parametrize("content", [b"", b"abc", b"PK\x03\x04" + bytes(40), b"\x93NUMPY\x01\x00\xff\xff"])
def test_what_is_no_array_is_named(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(WeftError, match=r"x\.npy cannot be read"):
        open_values(tmp_path / "x.npy")


def test_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}, []], dtype=object))
    with pytest.raises(WeftError, match="cannot be read"):
        open_values(tmp_path / "x.npy")


@pytest.mark.parametrize("ends", [[1, 2], [2, 1, 3], [-1, 3], [[3]], [3.0]])
def test_ends_that_do_not_fit(tmp_path, ends):
    write_column(tmp_path / "x.npy", [[1, 2], [3]])
    np.save(ends_file(tmp_path / "x.npy"), np.array(ends))
    with pytest.raises(WeftError, match=r"x\.ends\.npy does not fit x\.npy"):
        open_column(tmp_path / "x.npy")


def test_joined_values_are_one_array():
    whole = np.arange(100)
    values = JoinedValues(np.split(whole, [7, 7, 40, 99])).part(3, 98)
    part = whole[3:98]
    assert len(values) == len(part)
    for begin, end in np.random.default_rng(0).integers(0, 110, (200, 2)).tolist():
        assert values[begin:end].tolist() == part[begin:end].tolist()


def test_the_columns_of_a_run(tmp_path):
    with staged(tmp_path / "run") as folder:
        store(data_folder(folder), TRAIN_PART, {"x": [[1, 2], [3]], "y": Column(np.ones((2, 4), np.float32))})
        write_data_record(folder, "source", None)
        write_run(folder, "lm", {}, fields_content({}))
    run = open_run(tmp_path / "run")
    columns = stored(run, TRAIN_PART)
    assert sorted(columns) == ["x", "y"]
    assert columns["x"][0].tolist() == [1, 2]
    assert columns["y"].values.shape == (2, 4)
    assert not is_stored(run, DEV_PART)
    with pytest.raises(WeftError, match="no held-out data"):
        stored(run, DEV_PART)
    ends = run.path / "data" / "train.x.ends.npy"
    content = ends.read_bytes()
    ends.unlink()  # the rows would be read as single values
    with pytest.raises(WeftError, match=r"train\.x\.ends\.npy is missing"):
        stored(run, TRAIN_PART)
    ends.write_bytes(content[:-1] + b"\7")
    with pytest.raises(WeftError, match=r"train\.x\.ends\.npy is damaged"):
        stored(run, TRAIN_PART)
    record = read_json(run.path / DATA_RECORD)
    write_json(run.path / DATA_RECORD, {**record, "files": {"train./../../../outside.npy": "0"}})
    with pytest.raises(WeftError):
        stored(run, TRAIN_PART)
