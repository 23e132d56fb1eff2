"""Ensembles: `--members k` for every trained task."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

import weft
from weft.config import load_config
from weft.data.buckets import pad
from weft.errors import WeftError
from weft.tasks import get_task
from weft.tasks.members import trained_members
from weft.tasks.mixture import EQUAL, first_member
from weft.tasks.runs import summarize_run
from weft.tasks.translate import recipe
from weft.training.run import WEIGHTS, load_tensors, open_run

TEXT = weft.Corpus.from_texts("text", ["the cat sat on the mat and the dog sat on the cat. " * 40])
LABELLED = [("a fine film", "good"), ("a dull film", "bad"), ("fine fun", "good"), ("dull and long", "bad")] * 12
TAGGED = [(["a", "Rome", "b"], ["O", "B-X", "O"]), (["c", "d"], ["O", "O"]), (["Rome", "a"], ["B-X", "O"])] * 12
PAIRS = weft.Pairs(
    "pairs", ["a cat", "a dog", "the cat", "the dog"] * 12, ["un chat", "un chien", "le chat", "le chien"] * 12
)
SOURCES = {"lm": TEXT, "fill": TEXT, "classify": LABELLED, "tag": TAGGED, "translate": PAIRS}
SMALL = {
    "model.hidden_size": 8,
    "model.embedding_dim": 8,
    "model.char_dim": 4,
    "model.wide": True,
    "batch.size": 8,
    "batch.seq_length": 10,
    "text.max_vocab_size": 40,
    "train.epochs": 2,
    "train.save_seconds": 0,
    "train.evaluate_every": 5,
}


def settings(task, **more):
    """Small settings of a task, without those that it does not have."""
    found = {}
    for key, value in {**SMALL, **{f"train.{name}": value for name, value in more.items()}}.items():
        try:
            load_config(get_task(task).config_class, sets={key: value})
            found[key] = value
        except WeftError:
            continue
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    for task, source in SOURCES.items():
        weft.train(task, source, folder / task, settings(task, members=2, seed=5), progress=False)
    return folder


def output(predictor):
    """What a model of any task predicts, as numbers."""
    if isinstance(predictor, weft.LmPredictor):
        return predictor.model.token_log_probs(np.asarray(predictor.text_field.encode("the cat sat on a mat"))).tolist()
    if isinstance(predictor, weft.FillPredictor):
        return [answer.probability for answer in predictor.fill("the ___at sat", 3)]
    if isinstance(predictor, weft.ClassifyPredictor):
        return list(predictor.classify(["a fine dull film"])[0].probabilities.values())
    if isinstance(predictor, weft.TagPredictor):
        found = predictor.tag([["a", "Rome", "d"]])[0]
        return [*found.confidence, found.probability]
    found = predictor.n_best(["a cat", "the dog"], 2, attention=True)
    return [value for row in found for one in row for value in (one.log_prob, *one.attention[0])]


@pytest.mark.parametrize("task", SOURCES)
def test_members_have_different_weights_and_the_run_averages_them(folder, task):
    run = open_run(folder / task)
    members = [get_task(task).load(one) for one in trained_members(run)]
    assert len(members) == 2
    first, second = (load_tensors(run.path / name).tensors for name in (WEIGHTS, "weights-2.safetensors"))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    model = weft.load(run.path)
    assert output(model) != output(members[0])
    assert first_member(model).model is model.model.members[0]
    records = run.metrics()
    assert [record["step"] for record in records] == sorted(record["step"] for record in records)
    last = records[-1]
    assert last["members"] == 2
    assert last["evaluation"] == pytest.approx(model.held_out_metrics())
    assert type(model.evaluate_held_out())


@pytest.mark.parametrize("task", SOURCES)
def test_an_ensemble_of_equal_members_is_one_model(folder, task, tmp_path):
    shutil.copytree(folder / task, tmp_path / "run")
    shutil.copyfile(tmp_path / "run" / WEIGHTS, tmp_path / "run" / "weights-2.safetensors")
    run = open_run(tmp_path / "run")
    one = get_task(task).load(run)
    np.testing.assert_allclose(output(weft.load(run.path)), output(one), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("task", ["lm", "classify"])
def test_a_member_is_the_run_of_its_seed(folder, task, tmp_path):
    weft.train(task, SOURCES[task], tmp_path / "run", settings(task, seed=6), progress=False)
    alone, member = (
        load_tensors(path).tensors for path in (tmp_path / "run" / WEIGHTS, folder / task / "weights-2.safetensors")
    )
    for name in alone:
        assert torch.equal(alone[name], member[name]), name


@pytest.mark.parametrize("stop", [3, 13, 22])
def test_an_ensemble_resumes_bit_for_bit(folder, stop, tmp_path):
    task = get_task("lm")
    training = task.start(TEXT, tmp_path / "run", settings("lm", members=2, seed=5))
    steps = training.steps()
    for step in steps:
        if step.number == stop:
            training.trainer.stop()
    assert summarize_run(tmp_path / "run").state == "stopped"
    resumed = task.resume(tmp_path / "run")
    assert 0 < resumed.trainer.progress.all_steps < 40
    numbers = [step.number for step in resumed.steps()]
    last = resumed.trainer.progress.all_steps
    assert numbers == list(range(last - len(numbers) + 1, last + 1))
    for name in (WEIGHTS, "weights-2.safetensors"):
        one, other = (load_tensors(path / name) for path in (tmp_path / "run", folder / "lm"))
        assert one.metadata == other.metadata
        assert all(torch.equal(value, other.tensors[key]) for key, value in one.tensors.items())
    first, second = ((path / "metrics.jsonl").read_text().splitlines() for path in (tmp_path / "run", folder / "lm"))
    assert [json.loads(line).get("evaluation") for line in first] == [
        json.loads(line).get("evaluation") for line in second
    ]
    assert summarize_run(tmp_path / "run").state == "done"
    again = task.resume(tmp_path / "run")
    assert [*again.steps()] == []
    assert again.trainer.end_reason() == "finished"
    assert again.trainer.progress.best_metrics == resumed.trainer.progress.best_metrics


def test_the_time_limit_is_divided(tmp_path):
    training = weft.start_lm(TEXT, tmp_path / "run", settings("lm", members=4, minutes=8.0))
    assert training.trainer.phase.minutes == 2.0
    assert "4 members" in training.summary


def test_settings_are_chosen_for_the_time_of_a_member(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "passes_within", lambda seconds, work, model: seconds / 60)  # as for many more pairs
    known = {key: value for key, value in settings("translate").items() if key != "train.epochs"}
    limited = {**known, "train.members": 4, "train.minutes": 8.0}
    training = weft.start_translate(PAIRS, tmp_path / "four", limited)
    one = weft.start_translate(PAIRS, tmp_path / "one", {**known, "train.minutes": 2.0})
    whole = weft.start_translate(PAIRS, tmp_path / "whole", {**known, "train.minutes": 8.0})
    assert training.model.dropout == one.model.dropout < whole.model.dropout
    assert training.run.config["train"]["minutes"] == 8.0


def test_without_held_out_data_every_member_is_stored(tmp_path):
    config = {**settings("lm", members=2, epochs=1, ema_decay=0.5), "text.holdout": 0.0}
    model = weft.train_lm(TEXT, tmp_path / "run", config, progress=False)
    assert len(model.model.members) == 2


def test_members_of_a_fine_tuned_run_start_from_its_weights(folder, tmp_path):
    config = {"train.members": 2, "train.epochs": 0}
    training = weft.start_lm(TEXT, tmp_path / "run", config, from_run=folder / "lm")
    assert [*training.steps()] == []
    start = load_tensors(folder / "lm" / WEIGHTS).tensors
    for member in trained_members(open_run(tmp_path / "run")):
        assert all(torch.equal(value, start[name]) for name, value in member.weights().items())


def test_settings_of_an_ensemble_do_not_change(folder):
    with pytest.raises(WeftError, match="same settings for all members"):
        weft.resume_lm(folder / "lm", {"train.epochs": 3})


def test_probes_adaptation_and_mixing_take_an_ensemble(folder, tmp_path):
    model = weft.load(folder / "lm", weft.LmPredictor)
    assert len(weft.probes.surprisal(model, "the cat").steps) == 7
    assert np.isfinite(model.adapt("both").evaluate_held_out().nats)
    assert model.adapt("dynamic").generate("the", tokens=3).startswith("the")
    weft.train_ngram(TEXT, tmp_path / "ngram", {"model.order": 2}, progress=False)
    mixed = weft.mix([folder / "lm", tmp_path / "ngram"], tmp_path / "mixed")
    assert mixed.parts[0].likelihood.nats == pytest.approx(model.evaluate_held_out().nats)


def test_the_loss_of_padding_is_0(folder):
    from weft.tasks.translate.model import TranslationBatch

    model = weft.load(folder / "translate").model
    losses = model.token_losses(TranslationBatch(pad([[5, 6, 3], [5, 3]]), pad([[5, 6, 3], [3]])))
    assert losses[1, 1:].tolist() == [0.0, 0.0]
    assert (losses[0] > 0).all()


def test_members_are_joined_by_the_mean_of_their_probabilities():
    parts = [torch.rand(4, 5).softmax(-1) for _ in range(3)]
    found = EQUAL.join([one.log() for one in parts])
    torch.testing.assert_close(found.exp(), torch.stack(parts).mean(0))


def test_the_command_reports_the_whole_ensemble(tmp_path):
    from typer.testing import CliRunner

    from weft.cli import app

    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog sat on the cat. " * 40)
    sets = [one for key, value in settings("lm").items() for one in ("--set", f"{key}={value}")]
    arguments = ["train", "lm", "--data", str(tmp_path / "text.txt"), "--out", str(tmp_path / "run"), "--members", "2"]
    found = CliRunner().invoke(app, [*arguments, *sets, "--json"])
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout.splitlines()[-1])
    assert result["end"] == "finished"
    model = weft.load(tmp_path / "run", weft.LmPredictor)
    assert result["held_out_perplexity"] == pytest.approx(model.evaluate_held_out().perplexity)
    again = CliRunner().invoke(app, [*arguments, "--resume"])
    assert again.exit_code == 0, again.output
    assert "has ended already" in again.output
    shown = CliRunner().invoke(app, ["runs", str(tmp_path), "--json"])
    assert json.loads(shown.stdout)["state"] == "done"
    assert CliRunner().invoke(app, ["compare", str(tmp_path / "run"), str(tmp_path / "run")]).exit_code == 0
