"""What kind of input a file is: by its extension, then by its content; other kinds than the task reads are refused."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import weft
from tests.program import fails, succeeds
from weft.data.inputs import input_kind
from weft.errors import WeftError
from weft.tasks import get_task

TEXT = "It was the best of times, it was the worst of times.\n" * 40
NUMBERS = "speed,load\n1.5,2\n-3e2,\n4,5\n"
SMALL = {"model.hidden_size": 4, "train.epochs": 1, "batch.size": 4, "batch.seq_length": 8}


@pytest.mark.parametrize(
    ("name", "content", "kind", "reason"),
    [
        ("a.txt", b"RIFF", "text", "by the extension .txt"),
        ("a.WAV", b"x", "audio", "by the extension .wav"),
        ("a.npy", b"x", "series", "by the extension .npy"),
        ("a.txt.gz", b"x", "text", "by the extension .txt"),
        ("a", b"fLaC\0\0", "audio", "by the content"),
        ("a.data", b"\x93NUMPY\x01\0", "series", "by the content"),
        ("a.csv", NUMBERS.encode(), "series", "by the content"),
        ("a", NUMBERS.encode(), "series", "by the content"),
        ("a.csv", b"date,x\n2020-01-01 10:00,1\n2020-01-02,2.5\n", "series", "by the content"),
        ("a.tsv", b"1\tone\n2\ttwo\n3\tthree\n", "text", "by the content"),
        ("a.csv", b"text,label\nfine,1\nbad,0\n", "text", "by the content"),
        ("a.csv", b"x\n1\n2\n", "series", "by the content"),
        ("a", b"1\n2\n3\n4\n", "text", "by the content"),
        ("a", TEXT.encode(), "text", "by the content"),
        ("a", b"", "text", "by the content"),
    ],
)
def test_the_rule(tmp_path, name, content, kind, reason):
    (tmp_path / name).write_bytes(content)
    assert input_kind(tmp_path / name) == (kind, reason)


def test_packed_files_folders_and_what_is_no_file(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(NUMBERS.encode()))
    assert input_kind(tmp_path / "a.csv.gz") == ("series", "by the content")
    (tmp_path / "b.gz").write_bytes(b"no gzip")
    assert input_kind(tmp_path / "b.gz") is None
    (tmp_path / "clips").mkdir()
    assert input_kind(tmp_path / "clips") is None
    (tmp_path / "clips" / "one.flac").touch()
    assert input_kind(str(tmp_path / "clips")) == ("audio", "by the extension .flac of one.flac")
    for source in ("grammar", "-", ["a text"], weft.Corpus.from_texts("t", ["a"])):
        assert input_kind(source) is None


@pytest.mark.parametrize("task", ["lm", "fill", "ngram", "hmm", "translate"])
def test_tasks_on_text_refuse_series_and_audio(task, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    message = rf"x\.npy looks like series \(by the extension \.npy\), and the task '{task}' reads text"
    with pytest.raises(WeftError, match=message):
        get_task(task).start(tmp_path / "x.npy", tmp_path / "run")
    (tmp_path / "dev").write_bytes(b"RIFF1234WAVEfmt ")
    with pytest.raises(WeftError, match=r"dev looks like audio \(by the content\).*Try: `input=text`"):
        get_task(task).start("grammar", tmp_path / "run", dev=str(tmp_path / "dev"))
    assert not (tmp_path / "run").exists()


def test_the_line_and_the_option(tmp_path, capsys):
    (tmp_path / "t.txt").write_text(TEXT)
    (tmp_path / "n.csv").write_text("a,b\n" + "1,2\n" * 200)
    weft.train("lm", str(tmp_path / "t.txt"), tmp_path / "one", SMALL)
    assert "t.txt contains text (by the extension .txt)\n" in capsys.readouterr().err
    with pytest.warns(weft.WeftWarning, match="looks like a table"):
        weft.train("ngram", str(tmp_path / "n.csv"), tmp_path / "two", input="text")
    assert "n.csv contains text (as given)\n" in capsys.readouterr().err
    with pytest.raises(WeftError, match=r"input 'txt' is not known.*text"):
        weft.train("ngram", str(tmp_path / "n.csv"), tmp_path / "three", input="txt")
    error = fails("train", "ngram", "--data", tmp_path / "n.csv", "--out", tmp_path / "three")
    assert "n.csv looks like series (by the content), and the task 'ngram' reads text" in error
    assert "--input text" in error
    done = succeeds("train", "ngram", "--data", tmp_path / "n.csv", "--out", tmp_path / "three", "--input", "text")
    assert "n.csv contains text (as given)" in done.stderr


def test_a_table_with_names_of_series_is_no_text_to_a_forecaster(tmp_path, capsys):
    rows = [f"{name},{day},{place}" for name in ("north", "south") for place, day in enumerate(range(1900, 1940))]
    (tmp_path / "sales.csv").write_text("\n".join(["unique_id,ds,y", *rows]))
    weft.train("forecast", str(tmp_path / "sales.csv"), tmp_path / "run", {"model.kind": "linear"})
    assert "sales.csv contains series (as the task reads it)\n" in capsys.readouterr().err
    (tmp_path / "x.wav").write_bytes(b"RIFF1234WAVEfmt ")
    with pytest.raises(WeftError, match=r"x\.wav looks like audio .*'forecast' reads series"):
        weft.train("forecast", str(tmp_path / "x.wav"), tmp_path / "none")
