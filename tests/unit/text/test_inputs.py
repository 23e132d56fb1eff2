"""What a user gives in Python and on the command line: settings as a dict, empty input, packed files, hyphens."""

from __future__ import annotations

import csv
import errno
import gzip
import logging
import os
import random
import threading
import time
import zipfile

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import weft
from weft.config import as_config
from weft.nn.states import check_input
from weft.tasks.predictor import read_lines
from weft.tasks.tag.config import TagDataConfig
from weft.tasks.tag.lexicon import WordLexicon
from weft.tasks.tag.word_split import make_split
from weft.text import corpus as corpora
from weft.text import tables
from weft.text.conll import TaggedSentence

TEXT = "It was the best of times, it was the worst of times.\n" * 40
TINY = {"model": {"hidden_size": 8}, "model.embedding_dim": 8, "train.epochs": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "lm"
    weft.train_lm(weft.Corpus.from_texts("times", [TEXT]), out, TINY)
    return out


def test_a_dict_is_a_config(trained):
    config = as_config(weft.LmConfig, TINY)
    assert (config.model.hidden_size, config.model.embedding_dim, config.train.epochs) == (8, 8, 1)
    assert as_config(weft.LmConfig, None) == weft.LmConfig()
    assert as_config(weft.LmConfig, config) is config
    with pytest.raises(weft.WeftError, match="a TagConfig; expected a LmConfig, or a dict"):
        as_config(weft.LmConfig, weft.TagConfig())
    with pytest.raises(weft.WeftError, match="hiden_size"):
        as_config(weft.LmConfig, {"model.hiden_size": 3})
    more = weft.resume_lm(trained, {"train.epochs": 2})
    assert more.run.config["train"]["epochs"] == 2
    assert more.run.config["model"]["hidden_size"] == 8
    more.lock.release()


def test_repr_of_a_predictor_is_one_short_line(trained):
    shown = repr(weft.load(trained))
    assert shown.startswith(f"LmPredictor('{trained}', ")
    assert shown.endswith(" weights)")
    assert "\n" not in shown
    assert len(repr(weft.load(trained).run)) < 200


def test_load_checks_the_kind_that_is_expected(trained):
    assert isinstance(weft.load(trained, weft.LmPredictor), weft.LmPredictor)
    with pytest.raises(weft.WeftError, match="task 'lm'; expected one that loads as TagPredictor"):
        weft.load(trained, weft.TagPredictor)


@pytest.mark.parametrize("layer", [weft.Recurrent(weft.CELLS["gru"](3, 4)), weft.make_stack("lstm", 3, 4)])
def test_a_packed_sequence_is_refused_by_name(layer):
    packed = pack_padded_sequence(torch.randn(2, 5, 3), torch.tensor([5, 2]), batch_first=True)
    with pytest.raises(weft.WeftError, match=r"x is a PackedSequence; expected a padded tensor .* and `lengths`"):
        layer(packed)
    with pytest.raises(weft.WeftError, match="x is a list"):
        check_input("Recurrent", [1.0], 3, None)


def test_empty_input_has_no_texts(tmp_path):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_text("\n\n", encoding="utf-8")
    assert read_lines(str(tmp_path / "empty.txt")) == []
    assert read_lines(str(tmp_path / "blank.txt")) == ["", ""]


def test_a_file_that_expands_like_no_text_is_refused(tmp_path):
    bomb = b"a" * (20 << 20)
    with gzip.open(tmp_path / "bomb.txt.gz", "wb") as file:
        file.write(bomb)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.txt", bomb)
    for name in ("bomb.txt.gz", "bomb.zip", "bomb.zip:bomb.txt"):
        with pytest.raises(weft.WeftError, match=r"expand to .* expected text or numbers, which expand less than"):
            read_lines(str(tmp_path / name))


def test_expansion_is_checked_while_reading(tmp_path):
    """And not by the size of the whole file, of which the rest may be anything."""
    with gzip.open(tmp_path / "bomb.txt.gz", "wb", compresslevel=1) as file:
        file.write(b"a" * (20 << 20))
        file.write(random.Random(0).randbytes(1 << 20).hex().encode())
    assert (tmp_path / "bomb.txt.gz").stat().st_size > 1 << 20
    with pytest.raises(weft.WeftError, match="bytes expand to 16,"):
        weft.Corpus.open(tmp_path / "bomb.txt.gz")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null"])
def test_devices_are_refused(device):
    with pytest.raises(weft.WeftError, match="is a device; expected a file, a folder, or a pipe"):
        weft.Corpus.open(device)


def test_a_pipe_is_read_twice(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=(tmp_path / "pipe").write_text, args=("one line\nanother\n",), daemon=True).start()
    corpus = weft.Corpus.open(tmp_path / "pipe")
    for _ in range(2):
        assert [list(document.lines()) for document in corpus.documents()] == [["one line\n", "another\n"]]


def test_lines_and_cells_have_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LONGEST_FIELD", 100)
    limit = csv.field_size_limit(100)
    path = tmp_path / "long.csv"
    try:
        path.write_text("text,label\n" + "a good film,pos\n" * 20 + "a" * 101 + ",neg\n")
        with pytest.raises(weft.WeftError, match=r"long\.csv:22 has more than 100 characters; expected shorter lines"):
            weft.start_classify(path, tmp_path / "run")
        path.write_text("text,label\n" + "a good film,pos\n" * 20 + '"' + "a\n" * 51 + '",neg\n')
        with pytest.raises(weft.WeftError, match="field larger than field limit"):
            weft.start_classify(path, tmp_path / "run")
    finally:
        csv.field_size_limit(limit)
    monkeypatch.setattr(corpora, "LONGEST_UNBROKEN", 10)
    monkeypatch.setattr(corpora, "LONGEST_UNSPLIT", 30)
    path.write_text("one word and " * 10 + "a" * 20 + "\n" + "a" * 50)
    with pytest.raises(weft.WeftError, match="more than 30 characters without a space or a line end"):
        list(next(weft.Corpus.open(path).documents()).lines())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"text": "a", "label": ' + "[" * 100_000 + "]" * 100_000 + "}\n", "h.jsonl:1 is not valid JSON"),
        ('{"text": "a \\ud800 b", "label": "x"}\n', "h.jsonl:1 is not valid JSON .*surrogates not allowed"),
        ("".join(f'{{"text": "a", "label": "b", "k{at}": 1}}\n' for at in range(2000)), "2,002 different keys"),
    ],
)
def test_hostile_json_lines(tmp_path, lines, message):
    (tmp_path / "h.jsonl").write_text(lines)
    with pytest.raises(weft.WeftError, match=message):
        weft.train_classify(tmp_path / "h.jsonl", tmp_path / "run", progress=False)


def test_the_names_of_many_columns_take_linear_time(tmp_path):
    names = ",".join(f"c{at}" for at in range(100_000))
    (tmp_path / "h.csv").write_text(f"text,label,{names}\n" + ("a,b" + "," * 100_000 + "\n") * 3)
    begin = time.process_time()
    with pytest.raises(weft.WeftError, match="all 3 examples have the label 'b'"):
        weft.train_classify(tmp_path / "h.csv", tmp_path / "run", progress=False)
    assert time.process_time() - begin < 30, "it was minutes"


def test_a_long_reading_is_reported(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(corpora, "QUIET_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="weft"):
        document, *_ = weft.Corpus.from_texts("long", ["line\n" * 1000]).documents()
        list(document.lines())
    assert "reading long 1: line 256" in caplog.text
    assert len(caplog.records) == 1, "the next report comes after a pause"


def test_a_full_disk_is_reported_by_the_name_of_the_run(trained, monkeypatch):
    training = weft.resume_lm(trained, {"train.epochs": 3})

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(weft.WeftError) as refused:
        list(training.steps())
    assert f"{trained} cannot be written: No space left on device" in str(refused.value)
    with pytest.raises(weft.WeftError, match=f"{trained} cannot be written"):
        weft.resume_lm(trained)


def lexicon(*sentences):
    tagged = [TaggedSentence(tuple(one.split()), ("X",) * len(one.split()), "here", ()) for one in sentences]
    return WordLexicon.build(tagged, TagDataConfig())


def test_hyphenated_words_are_split_as_the_training_data_has_them():
    text = "a brand-new e-mail, 3-2 (state-of-the-art)!"
    whole = lexicon("a well-known man , a part-time job !")
    assert whole.whole_hyphens
    split = make_split("word", whole.count, whole_hyphens=whole.whole_hyphens)
    assert split(text) == ["a", "brand-new", "e-mail", ",", "3-2", "(", "state-of-the-art", ")", "!"]
    assert split("mother-in-law's - no") == ["mother-in-law's", "-", "no"]
    parts = lexicon("a well - known man , a part - time job !")
    assert not parts.whole_hyphens
    split = make_split("word", parts.count, whole_hyphens=parts.whole_hyphens)
    assert split("a brand-new job") == ["a", "brand", "-", "new", "job"]
    assert lexicon("no such word").whole_hyphens, "a hyphen that training lacks is no word"
