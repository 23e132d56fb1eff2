"""Encoded text in shards: the same tokens as in one file, encoding that resumes, training without a copy."""

from __future__ import annotations

import pytest

import weft
from tests.program import succeeds
from weft.text import shards as shards_module
from weft.text.config import CorpusConfig
from weft.text.corpus import Corpus
from weft.text.shards import open_shards, write_shards

LINES = [f"line {number} of a text, the end of it\n" for number in range(4000)]
TEXT = Corpus.from_texts("text", ["".join(LINES[:1500]), "".join(LINES[1500:])])


def test_an_interrupted_encoding_continues_to_the_same_shards(tmp_path, monkeypatch):
    straight = write_shards(TEXT, CorpusConfig(), tmp_path / "straight", shard_tokens=9000)
    assert len(straight.index["shards"]) > 5
    add, left = shards_module.add_shard, [3]

    def interrupted(*arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        add(*arguments)

    monkeypatch.setattr(shards_module, "add_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_shards(TEXT, CorpusConfig(), tmp_path / "again", shard_tokens=9000)
    with pytest.raises(weft.WeftError, match="not encoded completely"):
        open_shards(tmp_path / "again")
    written = sorted((tmp_path / "again").glob("shard-*.npy"))
    times = [file.stat().st_mtime_ns for file in written]
    monkeypatch.setattr(shards_module, "add_shard", add)
    again = write_shards(TEXT, CorpusConfig(), tmp_path / "again", shard_tokens=9000)
    assert again.digest == straight.digest
    assert [file.stat().st_mtime_ns for file in written] == times  # finished shards were not written again
    text_field = straight.text_field
    assert text_field.decode(straight.tokens()[:200]) == "".join(LINES)[:200]
    with pytest.raises(weft.WeftError, match="other text or settings"):
        write_shards(TEXT, CorpusConfig(lower=True), tmp_path / "again", shard_tokens=9000)


def test_training_on_shards_is_training_on_the_text(tmp_path):
    write_shards(TEXT, CorpusConfig(), tmp_path / "shards", shard_tokens=9000)
    settings = {"model.hidden_size": 8, "model.embedding_dim": 8, "text.holdout": 0.0, "train.epochs": 1}
    runs = [tmp_path / "from-text", tmp_path / "from-shards"]
    predictors = [
        weft.train("lm", source, out, settings, progress=False)
        for source, out in zip((TEXT, str(tmp_path / "shards")), runs, strict=True)
    ]
    assert not (runs[1] / "data" / "train.tokens.npy").exists()
    one, other = (predictor.model.state_dict() for predictor in predictors)
    vocabularies = [predictor.text_field.vocabulary for predictor in predictors]
    assert list(vocabularies[0]) == list(vocabularies[1])
    assert all(one[name].equal(other[name]) for name in one)
    with pytest.raises(weft.WeftError, match=r"encoded with 'char', False, 1.*`text\.lower=false` `text\.min_count=1`"):
        weft.train("fill", str(tmp_path / "shards"), tmp_path / "fill")
    (tmp_path / "shards" / "shard-00001.npy").write_bytes(b"")
    with pytest.raises(weft.WeftError, match="missing or cut short"):
        weft.resume_lm(runs[1])


def test_the_command(tmp_path):
    (tmp_path / "text.txt").write_text("".join(LINES), encoding="utf-8")
    done = succeeds(
        "data", "encode", tmp_path / "text.txt", "--out", tmp_path / "shards", "--set", "text.tokenizer=word"
    )
    assert "word tokens in 1 shards" in done.stdout
