"""Networks interpolated with an n-gram model of their training text."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import weft
from weft.errors import WeftError
from weft.tasks.kneser_ney import modified_kneser_ney
from weft.tasks.lm.config import LmModelConfig
from weft.tasks.lm.interpolation import NGRAM, NGRAM_WEIGHT, WEIGHT_WITHOUT_DEV, Interpolation, interpolate
from weft.tasks.lm.model import make_language_model
from weft.tasks.lm.task import TASK
from weft.tasks.text_task import held_out_tokens, stored_tokens

TEXT = weft.Corpus.from_texts("tale", ["It was the best of times, it was the worst of times.\n" * 20 + "Wisdom!\n" * 9])
SETTINGS = {"batch.size": 4, "batch.seq_length": 16, "model.hidden_size": 32, "train.epochs": 4,
            "train.learning_rate": 0.02, "train.precision": "float32", "model.ngram_order": 2}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return weft.train_lm(TEXT, tmp_path_factory.mktemp("mixture") / "run", SETTINGS, progress=False)


def test_probabilities_are_the_weighted_sum(trained):
    assert isinstance(trained.model, Interpolation)
    (network,), (_, ngram), (own, weight) = trained.model.members, trained.model.models, trained.model.weights
    assert 0 < weight < 1
    assert own == pytest.approx(1 - weight)
    tokens = np.array([5, 6, 7, 5, 6])
    expected = np.log(own * np.exp(network.token_log_probs(tokens)) + weight * np.exp(ngram.token_log_probs(tokens)))
    assert np.allclose(trained.model.token_log_probs(tokens), expected)
    log_probs, _ = trained.model.step(torch.tensor([5]), trained.model.initial_state(1))
    assert float(log_probs.exp().sum()) == pytest.approx(1)
    assert len(trained.generate("It", tokens=9)) == 11


def predict_stepwise(model, tokens):
    """Predicts each token but the first from those before it, step by step."""
    state, nats, correct = model.initial_state(1), 0.0, 0
    for token, following in pairwise(tokens.tolist()):
        log_probs, state = model.step(torch.tensor([token]), state)
        nats -= float(log_probs[0, following])
        correct += int(log_probs[0].argmax() == following)
    return nats, correct


@pytest.mark.parametrize("elements", [1, 300, 1 << 20])
def test_most_probable_tokens_are_those_of_its_steps(trained, monkeypatch, elements):
    monkeypatch.setattr("weft.tasks.lm.model.TABLE_ELEMENTS", elements)
    monkeypatch.setattr("weft.tasks.kneser_ney.TOKENS_AT_ONCE", elements)
    dev = held_out_tokens(trained.run, trained.text_field)
    both = interpolate([*trained.model.members] * 2, trained.model.models[-1], 0.4)
    for model in (trained.model, both):
        found, (nats, correct) = model.predict_tokens(dev), predict_stepwise(model, dev)
        assert found.correct == correct > 0
        assert found.likelihood.nats == pytest.approx(nats, rel=1e-5)


def test_the_loaded_run_has_the_best_evaluation_and_its_weight(trained):
    evaluations = [line["evaluation"] for line in trained.run.metrics() if "evaluation" in line]
    best = min(evaluations, key=lambda one: one["cross_entropy"])
    assert trained.evaluate_held_out().cross_entropy == pytest.approx(best["cross_entropy"])
    assert trained.model.weights[1] == best[NGRAM_WEIGHT]
    dev = held_out_tokens(trained.run, trained.text_field)
    for part in trained.model.models:  # the fitted interpolation is at least as good as either part
        assert trained.evaluate_held_out().nats <= part.evaluate(dev).nats + 1e-3


def test_a_resumed_run_keeps_its_ngrams_and_ends_with_the_same_weights(trained, tmp_path):
    training = weft.start_lm(TEXT, tmp_path / "run", SETTINGS)
    for step in training.steps():
        if step.number == 40:
            training.trainer.stop()
    assert (tmp_path / "run" / NGRAM).exists()
    list(weft.resume_lm(tmp_path / "run").steps())
    assert weft.load(tmp_path / "run").model.weights == trained.model.weights


def test_counting_is_a_step_before_those_of_the_network(trained, tmp_path):
    training = weft.start_lm(TEXT, tmp_path / "run", SETTINGS)
    assert not training.run.has(NGRAM)
    steps = training.steps()
    counted, first = next(steps), next(steps)
    assert (counted.note, counted.total) == ("2-grams of the text", 1)
    assert (first.note, first.number) == ("", 1)
    assert training.run.has(NGRAM)
    assert training.trainer.progress.prepared == 1
    steps.close()
    assert {step.note for step in weft.resume_lm(tmp_path / "run").steps()} == {""}  # they are not counted again
    assert weft.load(tmp_path / "run").model.weights == trained.model.weights


def test_without_held_out_text_the_weight_is_fixed(tmp_path):
    short = {**SETTINGS, "train.epochs": 1, "text.holdout": 0.0}
    assert weft.train_lm(TEXT, tmp_path / "run", short, progress=False).model.weights[1] == WEIGHT_WITHOUT_DEV


def test_an_ensemble_has_one_ngram_model(tmp_path):
    both = weft.train_lm(TEXT, tmp_path / "run", {**SETTINGS, "train.epochs": 1, "train.members": 2}, progress=False)
    assert isinstance(both.model, Interpolation)
    assert len(both.model.members) == 2
    assert sum(both.model.weights) == pytest.approx(1)


def test_it_adapts_and_is_a_part_of_a_mixture(trained, tmp_path):
    adapted = trained.adapt("dynamic", dynamic=weft.DynamicConfig(learning_rate=0.001))
    assert adapted.model.weights == trained.model.weights
    assert adapted.evaluate_held_out().count == trained.evaluate_held_out().count
    assert len(adapted.generate("It", tokens=3)) == 5
    weft.train_ngram(TEXT, tmp_path / "ngram", {"model.order": 1}, progress=False)
    mixed = weft.mix([trained.run.path, tmp_path / "ngram"], tmp_path / "mixed")
    assert (tmp_path / "mixed" / "parts" / "1" / NGRAM).exists()
    assert mixed.likelihood.nats <= trained.evaluate_held_out().nats + 1e-3


def test_a_run_whose_settings_are_not_chosen_is_refused(trained):
    model = {name: value for name, value in trained.run.config["model"].items() if name != "ngram_order"}
    unchosen = replace(trained.run, config={**trained.run.config, "model": model})
    with pytest.raises(WeftError, match="ngram_order is auto"):
        TASK.load(unchosen)


def test_rows_have_the_likelihood_of_evaluate():
    model = make_language_model(9, LmModelConfig(hidden_size=8)).eval()
    tokens = np.arange(1001) * 7 % 9
    for row_tokens in (100, 333, 5000):
        found = model.token_log_probs(tokens, row_tokens=row_tokens)
        assert found.shape == (1000,)
        assert np.allclose(found[:90], model.token_log_probs(tokens)[:90], atol=1e-5)  # the first row
    assert -found.sum() == pytest.approx(model.evaluate(tokens).nats, rel=1e-5)


def test_ngrams_are_those_of_the_training_text(trained):
    ngram = trained.model.models[-1]
    size = ngram.size
    counted = modified_kneser_ney(stored_tokens(trained.run, size), size, 2)
    assert len(ngram) == len(counted)


def test_surprisal_is_that_of_the_mixture(trained):
    text = "It was the best of worst times"
    found, ids = weft.probes.surprisal(trained, text), np.array(trained.text_field.encode(text))
    assert np.allclose(found.nats[1:], -trained.model.token_log_probs(ids), atol=1e-5)
    assert not np.allclose(found.nats[1:], -trained.model.members[0].token_log_probs(ids), atol=1e-2)
