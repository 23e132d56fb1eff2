"""The run directory: whole or not there, and damage found by name."""

from __future__ import annotations

import json

import pytest
import torch

from weft.errors import TensorError, WeftError
from weft.training.run import (
    CHECKPOINT,
    CONFIG,
    FIELDS,
    FORMAT,
    check_file,
    decoding,
    file_hash,
    open_run,
    staged,
    write_run,
)

TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "b": torch.tensor(7),
    "empty": torch.zeros(0, 3),
    "half": torch.ones(2).half(),
}


@pytest.fixture
def run(tmp_path):
    with staged(tmp_path / "one") as folder:
        write_run(folder, "lm", {"x": {"y": 1}}, {"fields": {"words": ["é", "中"]}, "reading": {}})
    made = open_run(tmp_path / "one")
    made.save(CHECKPOINT, TENSORS, {"step": 3})
    return made


def test_what_was_written_is_read(run):
    again = open_run(run.path)
    assert (again.task, again.config, again.fields["words"]) == ("lm", {"x": {"y": 1}}, ["é", "中"])
    saved = again.load(CHECKPOINT)
    assert saved.metadata == {"step": 3}
    assert saved.tensors.keys() == TENSORS.keys()
    assert all(torch.equal(saved.tensors[name], tensor) for name, tensor in TENSORS.items())


def test_nothing_is_left_beside(run):
    assert sorted(path.name for path in run.path.parent.iterdir()) == ["one"]
    assert sorted(path.name for path in run.path.iterdir()) == sorted([CONFIG, CHECKPOINT, FIELDS])


@pytest.mark.parametrize("name", ["two", "new/folders/two"])
def test_a_failure_leaves_nothing(tmp_path, name):
    def fail():
        with staged(tmp_path / name) as folder:
            (folder / "half").write_text("x")
            raise WeftError("no")

    with pytest.raises(WeftError, match="no"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_path_is_never_overwritten(run):
    with pytest.raises(WeftError, match=r"one exists already.*`resume`"), staged(run.path):
        pass
    assert open_run(run.path).config == {"x": {"y": 1}}


@pytest.mark.parametrize("name", [CONFIG, FIELDS, CHECKPOINT])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "missing"])
def test_damage_is_found_by_name(run, name, damage):
    file = run.path / name
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[:-9])
    elif damage == "flipped":
        place = content.rindex(b"3") if name == CHECKPOINT else content.index(b"1" if name == CONFIG else b"words", 20)
        content[place] ^= 1
        file.write_bytes(content)
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
    with pytest.raises(WeftError, match=name):
        open_run(run.path).load(CHECKPOINT)


def test_every_flipped_bit_of_the_weights_is_found(run):
    file = run.path / CHECKPOINT
    content = file.read_bytes()
    for place in range(0, len(content), 7):
        file.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        with pytest.raises(WeftError, match=CHECKPOINT):
            run.load(CHECKPOINT)


def test_a_newer_format_says_so(run):
    body = json.loads((run.path / CONFIG).read_text())
    (run.path / CONFIG).write_text(json.dumps({**body, "format": FORMAT + 1}))
    with pytest.raises(WeftError, match=rf"{CONFIG} has format {FORMAT + 1}, written by a newer weft.*upgrade"):
        open_run(run.path)


def test_an_older_format_is_refused(run):
    body = json.loads((run.path / CONFIG).read_text())
    (run.path / CONFIG).write_text(json.dumps({**body, "format": FORMAT - 1}))
    with pytest.raises(WeftError, match=rf"{CONFIG} has format {FORMAT - 1}, written by an older weft.*train again"):
        open_run(run.path)


def test_not_a_run(tmp_path):
    with pytest.raises(WeftError, match="not a run directory"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(WeftError, match=r"no config\.json"):
        open_run(tmp_path)


def test_metrics_survive_a_cut_last_line_and_can_be_taken_back(run):
    for step in (1, 2, 3):
        run.report({"step": step})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "tra')
    assert [record["step"] for record in run.metrics()] == [1, 2, 3]
    run.drop_metrics_after(2)
    assert [record["step"] for record in run.metrics()] == [1, 2]


def test_data_files_are_checked(tmp_path):
    file = tmp_path / "train.bin"
    file.write_bytes(b"abc")
    digest = file_hash(file)
    check_file(file, digest)
    file.write_bytes(b"abd")
    with pytest.raises(WeftError, match=r"train\.bin is damaged"):
        check_file(file, digest)
    file.unlink()
    with pytest.raises(WeftError, match=r"train\.bin is missing"):
        check_file(file, digest)


def test_the_messages_of_weft_pass_and_others_name_the_file(run):
    with pytest.raises(TensorError, match=r"^x is wrong$"), decoding(run.path / "config.json"):
        raise TensorError("x is wrong")
    with (
        pytest.raises(WeftError, match=r"config\.json is damaged: .* \(ValueError: x\)"),
        decoding(run.path / "config.json"),
    ):
        raise ValueError("x")
    with pytest.raises(WeftError, match=r"fields\.json is damaged: .* \(KeyError: 'labels'\)"):
        run.decode(lambda content: content["labels"])
