"""The contract of a task."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import weft
from tools.describe_tasks import descriptions
from weft.config import load_config
from weft.errors import WeftError
from weft.tasks import DESCRIPTIONS, get_task
from weft.tasks.hmm import task as hmm_task
from weft.tasks.hmm.config import HmmConfig
from weft.training.run import CHECKPOINT, WEIGHTS
from weft.training.trainer import Trainer

TEXT = "It was the best of times, it was the worst of times.\n" * 30


def test_the_descriptions_are_current():
    assert DESCRIPTIONS.read_text(encoding="utf-8") == descriptions(), "python tools/describe_tasks.py"


def test_unknown_task():
    with pytest.raises(WeftError, match=r"task 'tags' is not known.*Try: tag"):
        get_task("tags")


def test_a_start_is_a_complete_run_at_step_0_and_its_resume(tmp_path, monkeypatch):
    resumed = []
    restore = Trainer.restore

    def note(self, *arguments):
        resumed.append(self)
        restore(self, *arguments)

    monkeypatch.setattr(Trainer, "restore", note)
    (tmp_path / "text.txt").write_text(TEXT)
    small = ["model.hidden_size=8", "batch.size=4", "batch.seq_length=8"]
    training = weft.start_lm(str(tmp_path / "text.txt"), tmp_path / "run", load_config(weft.LmConfig, sets=small))
    assert resumed == [training.trainer]
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert training.trainer.run_directory.path == tmp_path / "run"
    first = next(training.trainer.run())
    training.trainer.save()
    assert weft.resume_lm(tmp_path / "run").trainer.progress.step == 1
    step = next(weft.resume_lm(tmp_path / "copy").trainer.run())
    assert (step.number, step.loss) == (1, first.loss)


def hmm_config(*sets: str) -> HmmConfig:
    few = ["model.num_states=3", "train.iterations=9", "train.restarts=3", "train.tolerance=0", "train.seq_length=50"]
    return load_config(HmmConfig, sets=[*few, *sets])


def equal_files(one: Path, other: Path) -> bool:
    first, second = load_file(one), load_file(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("stop_at", [1, 4, 10, 17])
def test_hmm_training_resumes_bit_for_bit(stop_at, tmp_path, monkeypatch):
    monkeypatch.setattr(hmm_task.BaumWelch, "save_seconds", 0.0)
    (tmp_path / "text.txt").write_text(TEXT)
    source = str(tmp_path / "text.txt")
    steps = list(weft.start_hmm(source, tmp_path / "straight", hmm_config()).trainer.run())
    for step in weft.start_hmm(source, tmp_path / "broken", hmm_config()).trainer.run():
        if step.number == stop_at:
            break
    resumed = weft.resume_hmm(tmp_path / "broken", source=source)
    assert resumed.trainer.progress.step == stop_at
    rest = list(resumed.trainer.run())
    assert [step.number for step in rest] == list(range(stop_at + 1, steps[-1].number + 1))
    assert [step.loss for step in rest] == [step.loss for step in steps[stop_at:]]
    assert rest[-1].end == "finished"
    for name in (WEIGHTS, CHECKPOINT):
        assert equal_files(tmp_path / "straight" / name, tmp_path / "broken" / name), name
    lines = [weft.load(tmp_path / name).run.metrics() for name in ("straight", "broken")]
    assert [{**one, "seconds": 0} for one in lines[0]] == [{**one, "seconds": 0} for one in lines[1]]
    assert list(weft.resume_hmm(tmp_path / "broken").trainer.run()) == []


def test_hmm_training_stops_on_request_and_can_be_extended(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    training = weft.start_hmm(str(tmp_path / "text.txt"), tmp_path / "run", hmm_config("train.restarts=1"))
    for step in training.trainer.run():
        if step.number == 3:
            training.trainer.stop()
    assert (step.number, step.end) == (4, "interrupted")
    longer = weft.resume_hmm(tmp_path / "run", hmm_config("train.restarts=1", "train.iterations=20"))
    assert [step.number for step in longer.trainer.run()][-1] == 21
    with pytest.raises(WeftError, match=r"train\.seq_length=50 and cannot resume with 60"):
        weft.resume_hmm(tmp_path / "run", hmm_config("train.restarts=1", "train.iterations=20", "train.seq_length=60"))


def test_resuming_a_finished_ngram_run_does_nothing(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    model = weft.train_ngram(str(tmp_path / "text.txt"), tmp_path / "run")
    resumed = weft.resume_ngram(tmp_path / "run")
    assert resumed.trainer.progress.step == 1
    assert list(resumed.trainer.run()) == []
    assert weft.load(tmp_path / "run").evaluate_held_out() == model.evaluate_held_out()


PLAIN = [("a good film", "pos"), ("a bad film", "neg")]
TAGGED = [(["Ann", "saw", "Bob"], ["PER", "O", "PER"]), (["rain", "in", "May"], ["O", "O", "DATE"])]
NUMBERS = weft.Pairs("train", ["one", "two"] * 9, ["un", "deux"] * 9)
LINES = "the best\nwas it\n"


@pytest.mark.parametrize(
    ("task", "train", "dev", "expected"),
    [
        ("classify", PLAIN * 4, PLAIN, ["a good film", "a bad film"]),
        ("tag", TAGGED * 4, TAGGED, ["Ann saw Bob", "rain in May"]),
        ("translate", NUMBERS, weft.Pairs("dev", ["two"], ["deux"]), ["two"]),
        ("lm", weft.Corpus.from_texts("text", [TEXT]), weft.Corpus.from_texts("dev", [LINES]), [LINES]),
    ],
)
def test_held_out_texts_are_as_they_were_given(task, train, dev, expected, tmp_path):
    own = get_task(task)
    own.start(train, tmp_path / "run", load_config(own.config_class, None, ["model.hidden_size=4"]), dev=dev)
    assert list(weft.load(tmp_path / "run").held_out_texts()) == expected


def test_held_out_texts_of_a_segmenter(tmp_path):
    for name, lines in (("train", "我们 是 人\n人 是 我们\n" * 4), ("dev", "我们 是 人\n")):
        (tmp_path / f"{name}.txt").write_text(lines, encoding="utf-8")
    own = get_task("tag")
    config = load_config(own.config_class, None, ["data.task=segments", "model.hidden_size=4"])
    own.start(str(tmp_path / "train.txt"), tmp_path / "run", config, dev=str(tmp_path / "dev.txt"))
    assert list(weft.load(tmp_path / "run").held_out_texts()) == ["我们是人"]
