"""Fine-tuning: a new run starts from the weights and the vocabulary of another run of the same task."""

from __future__ import annotations

import json
import sys

import pytest
import torch

import weft
from weft.cli import main
from weft.tasks import get_task
from weft.tasks.origin import FINE_TUNING_FACTOR
from weft.training.run import CHECKPOINT, open_run, with_prefix

TINY = {"model.hidden_size": 8, "model.embedding_dim": 8, "train.epochs": 1, "batch.size": 4}

# Data of each task, and other data with a token that the first lack.
DATA = {
    "lm": (weft.Corpus.from_texts("a", ["one two\n" * 100]), weft.Corpus.from_texts("b", ["two one é\n" * 80])),
    "fill": (weft.Corpus.from_texts("a", ["one two\n" * 100]), weft.Corpus.from_texts("b", ["two one new\n" * 80])),
    "hmm": (weft.Corpus.from_texts("a", ["one two\n" * 100]), weft.Corpus.from_texts("b", ["two one é\n" * 80])),
    "classify": (
        [("good day", "a"), ("bad night", "b")] * 10,
        [("good night", "a"), ("bad surprise", "b")] * 8,
    ),
    "tag": (
        [(("a", "dog", "runs"), ("D", "N", "V")), (("the", "cat"), ("D", "N"))] * 8,
        [(("a", "zebra", "runs"), ("D", "N", "V")), (("the", "dog"), ("D", "N"))] * 6,
    ),
    "translate": (
        weft.Pairs("a", ["one two", "three", "four five"] * 8, ["un deux", "trois", "quatre cinq"] * 8),
        weft.Pairs("b", ["one six", "two", "five one"] * 6, ["un six", "deux", "cinq un"] * 6),
    ),
}


def config(task):
    if task == "hmm":
        return {"model.num_states": 3, "train.iterations": 2}
    return {**TINY, "text.tokenizer": "space"} if task == "translate" else {**TINY, "batch.seq_length": 16} if task in (
        "lm", "fill") else TINY  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    for name, (first, _) in DATA.items():
        get_task(name).train(first, folder / name, config(name))
    return folder


@pytest.mark.parametrize("name", DATA)
def test_every_trained_task_starts_from_the_source_run(name, sources, tmp_path):
    task, source = get_task(name), open_run(sources / name)
    with pytest.warns(weft.WeftWarning, match=r"1 new (tokens|words) .* read as <unk>|new tokens .* read as <unk>"):
        training = task.start(DATA[name][1], tmp_path / "new", from_run=sources / name)
    assert training.run.fields.keys() == source.fields.keys()
    kept = {key: value for key, value in training.run.fields.items() if key in ("text", "words", "source")}
    assert kept
    assert kept == {key: source.fields[key] for key in kept}
    started = with_prefix(training.run.load(CHECKPOINT).tensors, "model.")
    assert started.keys() == source.weights().keys()
    assert all(torch.equal(started[key], value) for key, value in source.weights().items())
    assert training.run.from_run["path"] == str(sources / name)
    assert open_run(tmp_path / "new").from_run == training.run.from_run
    if name != "hmm":
        expected = FINE_TUNING_FACTOR * source.config["train"]["learning_rate"]
        assert training.run.config["train"]["learning_rate"] == pytest.approx(expected, rel=1e-2)
    assert training.run.config["model"] == source.config["model"]
    steps = list(training.steps())
    assert steps
    task.load(training.run)
    again = task.resume(tmp_path / "new", {"train.minutes": 9.0})
    assert again.run.from_run == training.run.from_run, "a resume keeps the record"
    again.lock.release()


def test_settings_of_the_model_and_the_vocabulary_are_kept(sources, tmp_path):
    for change in ({"model.hidden_size": 9}, {"text.lower": True}):
        (key,) = change
        with pytest.raises(weft.WeftError, match=f"was trained with {key}=.* cannot be fine-tuned"):
            weft.start_lm(DATA["lm"][1], tmp_path / "new", change, from_run=sources / "lm")
    with pytest.warns(weft.WeftWarning):
        training = weft.start_lm(
            DATA["lm"][1],
            tmp_path / "new",
            {"train.learning_rate": 0.5, "model.dropout": 0.0},
            from_run=sources / "lm",
        )
    assert training.run.config["train"]["learning_rate"] == 0.5
    training.lock.release()


def test_another_task_new_labels_and_counted_models_are_refused(sources, tmp_path):
    with pytest.raises(weft.WeftError, match="run of the task 'lm'; expected a run of `weft train fill`"):
        weft.start_fill(DATA["fill"][1], tmp_path / "new", from_run=sources / "lm")
    with pytest.raises(weft.WeftError, match="'c'"):
        weft.start_classify([("good", "c"), ("bad", "b")] * 5, tmp_path / "new", from_run=sources / "classify")
    with pytest.raises(weft.WeftError, match="the tag 'X' is not among those trained on"):
        weft.start_tag([(("a", "dog"), ("D", "X"))] * 5, tmp_path / "new", from_run=sources / "tag")
    weft.train_ngram(DATA["lm"][0], tmp_path / "counts")
    with pytest.raises(weft.WeftError, match="counted, not fine-tuned"):
        weft.start_ngram(DATA["lm"][1], tmp_path / "new", from_run=tmp_path / "counts")
    assert not (tmp_path / "new").exists()


def test_the_command(sources, tmp_path, monkeypatch, capsys):
    text = tmp_path / "other.txt"
    text.write_text("two one é\n" * 80, encoding="utf-8")
    arguments = ["train", "lm", "--from", sources / "lm", "--data", text, "--out", tmp_path / "new", "--json"]
    monkeypatch.setattr(sys, "argv", ["weft", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["end"] == "finished"
    assert "1 new tokens (80 occurrences)" in shown.err
    assert open_run(tmp_path / "new").from_run["path"] == str(sources / "lm")
