"""Language models that adapt to the text they read: dynamic evaluation and the cache, and mixtures as runs."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

import weft
from tests.checks.steppers import check_stepper
from weft.cli import app
from weft.errors import WeftError
from weft.files import file_hash
from weft.tasks.lm.adapt import Adaptation, AdaptedModel, DynamicConfig, DynamicModel, read_static
from weft.tasks.text_task import held_out_tokens

SMALL = {"model.hidden_size": 12, "model.embedding_dim": 8, "batch.size": 4, "batch.seq_length": 10, "train.epochs": 2}
TEXT = weft.Corpus.from_texts("text", ["the cat sat on the mat and the dog sat on the cat. " * 40])
OTHER = weft.Corpus.from_texts("other", ["mat dog cat mat dog cat " * 30])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt")
    weft.train_lm(TEXT, folder / "lm", SMALL, progress=False)
    weft.train_ngram(TEXT, folder / "ngram", {"model.order": 3}, progress=False)
    weft.train_fill(TEXT, folder / "fill", {**SMALL, "model.embedding_dim": 12}, progress=False)
    return folder


@pytest.fixture
def model(folder):
    return weft.load(folder / "lm", weft.LmPredictor)


def weights_of(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("rule", ["rms", "sgd"])
def test_learning_rate_0_is_the_static_model(model, rule):
    tokens = np.asarray(held_out_tokens(model.run, model.text_field))
    config = DynamicConfig(learning_rate=0.0, decay=0.01, segment=16, rule=rule)
    adapted = model.adapt("dynamic", dynamic=config)
    static = torch.cat(
        [read.log_probs.gather(1, read.targets[:, None])[:, 0] for read in read_static(model.model, tokens, 16)]
    )
    np.testing.assert_array_equal(adapted.model.token_log_probs(tokens), static.double().numpy())
    assert adapted.evaluate_held_out().nats == pytest.approx(model.evaluate_held_out().nats, rel=1e-6)


@pytest.mark.parametrize("method", ["dynamic", "cache", "both"])
def test_adapting_helps_on_other_text_and_changes_nothing(model, folder, method):
    files = {file: file_hash(file) for file in (folder / "lm").rglob("*") if file.is_file()}
    before = weights_of(model.model)
    adapted = model.adapt(method)
    assert adapted.evaluate(OTHER).perplexity < model.evaluate(OTHER).perplexity
    first, second = adapted.evaluate(OTHER).nats, adapted.evaluate(OTHER).nats
    assert first == second  # no trace of the first evaluation
    adapted.generate("mat dog", tokens=5)
    for name, value in weights_of(model.model).items():
        assert torch.equal(value, before[name]), name
    assert {file: file_hash(file) for file in (folder / "lm").rglob("*") if file.is_file()} == files


def test_an_update_is_a_step_down_the_gradient_and_back_to_the_trained_weights(model):
    network = model.model
    adapted = DynamicModel(network, DynamicConfig(0.5, 0.25, 4, "sgd"))
    trained = [weight.detach().clone() for weight in adapted.weights]
    loss = adapted.model(torch.tensor([[1, 2, 3]]))[0].square().mean()
    grads = torch.autograd.grad(loss, adapted.weights, retain_graph=True, allow_unused=True)
    adapted.update(loss)
    for weight, start, grad in zip(adapted.weights, trained, grads, strict=True):
        moved = start - 0.5 * (0 if grad is None else grad)
        torch.testing.assert_close(weight, moved + 0.25 * (start - moved))


def test_a_token_is_never_predicted_by_weights_that_have_seen_it(model):
    """Other text after a segment does not change the probabilities inside it."""
    adapted = model.adapt("both", dynamic=DynamicConfig(0.003, 0.01, 8), cache=weft.CacheConfig(50, 0.5)).model
    one = np.asarray(model.text_field.encode("the cat sat on the mat and the dog sat"))
    two = np.concatenate([one[:-7], one[:7][::-1]])
    same = len(one) - 8
    np.testing.assert_array_equal(adapted.token_log_probs(one)[:same], adapted.token_log_probs(two)[:same])


@pytest.mark.parametrize("method", ["dynamic", "cache", "both"])
def test_predictions_and_steps_of_an_adapted_model(model, method):
    adapted = model.adapt(method).model
    tokens = np.asarray(held_out_tokens(model.run, model.text_field))[:80]
    found = adapted.predict_tokens(tokens)
    assert found.likelihood.nats == pytest.approx(adapted.evaluate(tokens).nats, rel=1e-6)
    check_stepper(adapted, vocabulary=len(model.text_field.vocabulary), steps=5)
    check_stepper(adapted.after(tokens), vocabulary=len(model.text_field.vocabulary), steps=5)


def test_generation_adapts_to_the_prompt_and_each_prompt_alone(model):
    adapted = model.adapt("dynamic", dynamic=DynamicConfig(0.02, 0.0, 8))
    prompt = "dog dog dog dog dog dog dog dog dog "
    many = adapted.generate_many([prompt, "the cat "], tokens=12, sampler=weft.greedy)
    assert many[0] == adapted.generate(prompt, tokens=12, sampler=weft.greedy)
    assert many[1] == adapted.generate("the cat ", tokens=12, sampler=weft.greedy)
    after = AdaptedModel(model.model, Adaptation(adapted.adaptation.dynamic), adapted.model.rms).after(
        model.text_field.encode(prompt)
    )
    assert (
        after.evaluate(np.asarray(model.text_field.encode(prompt))).nats
        < model.evaluate_tokens(np.asarray(model.text_field.encode(prompt))).nats
    )


def test_what_cannot_adapt_is_refused(folder, model, tmp_path):
    with pytest.raises(WeftError, match="dynamo"):
        model.adapt("dynamo")
    with pytest.raises(WeftError, match="task 'ngram', which cannot adapt"):
        weft.load(folder / "ngram").adapt("cache")
    with pytest.raises(WeftError, match="rms or sgd"):
        DynamicConfig(rule="adam")
    shutil.copytree(folder / "lm", tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "data")
    bare = weft.load(tmp_path / "bare")
    with pytest.raises(WeftError, match="has no stored text"):
        bare.adapt("dynamic")
    bare.adapt("dynamic", dynamic=DynamicConfig(0.01, rule="sgd"))
    assert bare.adapt("cache").adaptation.cache_weight == pytest.approx(0.1)


def run_program(*arguments):
    from typer.testing import CliRunner

    found = CliRunner().invoke(app, [str(one) for one in arguments])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_commands_report_the_static_figure_beside_the_adapted_one(folder, tmp_path):
    (tmp_path / "other.txt").write_text("mat dog cat mat dog cat " * 30)
    lm, other = folder / "lm", tmp_path / "other.txt"
    plain = json.loads(run_program("eval", lm, "--data", other, "--json"))
    found = json.loads(run_program("eval", lm, "--data", other, "--adapt", "cache", "--json"))
    assert found["perplexity"] == plain["perplexity"]
    assert found["adapted"]["perplexity"] < plain["perplexity"]
    assert found["adapted"]["cache_size"] == 2000
    assert "adapted" in run_program("eval", lm, "--data", other, "--adapt", "cache")
    table = run_program("eval", lm, "--data", other, "--adapt", "cache", "--against", folder / "ngram")
    assert "adapted (cache)" in table
    assert run_program("generate", lm, "--prompt", "the cat", "--adapt", "both", "--tokens", 3).startswith("the cat")


def test_a_mixture_is_a_run_like_any_other(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "runs")
    runs = tmp_path / "runs"
    found = weft.mix([runs / "lm", runs / "ngram"], tmp_path / "mixed")
    shutil.rmtree(runs)  # the mixture has copies
    assert sum(part.weight for part in found.parts) == pytest.approx(1)
    assert found.likelihood.nats <= min(part.likelihood.nats for part in found.parts) + 1e-6
    model = weft.load(tmp_path / "mixed", weft.LmPredictor)
    assert model.evaluate_held_out().nats == pytest.approx(found.likelihood.nats, rel=1e-9)
    assert model.generate("the", tokens=5, seed=1) == found.model.generate("the", tokens=5, seed=1)
    surprisal = weft.probes.surprisal(model, "the cat sat")
    assert len(surprisal.steps) == len("the cat sat")
    assert "mix" in run_program("runs", tmp_path)
    assert run_program("runs", tmp_path, "--json").count("\n") == 1  # its parts are not listed
    report = json.loads(run_program("eval", tmp_path / "mixed", "--json"))
    assert report["perplexity"] == pytest.approx(found.likelihood.perplexity)


def test_what_cannot_be_mixed_is_refused(folder, tmp_path):
    weft.train_ngram(OTHER, tmp_path / "other", {"model.order": 2}, progress=False)
    with pytest.raises(WeftError, match="has other tokens than"):
        weft.mix([folder / "lm", tmp_path / "other"], tmp_path / "mixed")
    with pytest.raises(WeftError, match="task 'fill'"):
        weft.mix([folder / "lm", folder / "fill"], tmp_path / "mixed")
    with pytest.raises(WeftError, match="exists already"):
        weft.mix([folder / "lm"], folder / "ngram")
    with pytest.raises(WeftError, match="no run to mix"):
        weft.mix([], tmp_path / "mixed")
    assert not (tmp_path / "mixed").exists()


def test_mix_command(folder, tmp_path):
    (tmp_path / "text.txt").write_text("the dog sat on the mat. " * 20)
    arguments = ("mix", folder / "lm", folder / "ngram", "--data", tmp_path / "text.txt", "--no-cache")
    found = json.loads(run_program(*arguments, "--out", tmp_path / "one", "--json"))
    assert [part["name"] for part in found["parts"]][:2] == [str(folder / "lm"), str(folder / "ngram")]
    assert "held-out perplexity" in run_program(*arguments, "--out", tmp_path / "two")


def test_a_filler_adapts_to_the_text_and_to_the_known_tokens(folder):
    model = weft.load(folder / "fill", weft.FillPredictor)
    before = weights_of(model.model)
    tokens = np.asarray(model.text_field.encode("mat dog cat mat dog cat " * 30))
    static = model.predict_tokens(tokens)
    still = model.adapt(dynamic=DynamicConfig(0.0, 0.0, 1000))
    assert still.predict_tokens(tokens[:200]).likelihood.nats == model.predict_tokens(tokens[:200]).likelihood.nats
    assert still.fill("the c___t", 2) == model.fill("the c___t", 2)
    adapted = model.adapt(dynamic=DynamicConfig(0.01, 0.0, 32))
    assert adapted.predict_tokens(tokens).likelihood.nats < static.likelihood.nats
    text = "zat zat zat zat z___t zat"
    assert adapted.fill(text, 1) != model.fill(text, 1)
    for name, value in weights_of(model.model).items():
        assert torch.equal(value, before[name]), name
    with pytest.raises(WeftError, match="expected dynamic"):
        model.adapt("cache")


def test_updates_of_a_filler_read_nothing_after_the_segment(folder):
    model = weft.load(folder / "fill", weft.FillPredictor).model
    from weft.data.windows import evaluation_passages
    from weft.tasks.fill.adapt import read_part

    tokens = np.arange(5, 25) % 12
    read = [read_part(passage) for passage in evaluation_passages(tokens, seq_length=6, margin=4, batch_size=1)]
    ends = [7, 13, 19, 20]
    assert [passage.ids[0, -1].item() for passage in read] == [int(tokens[end - 1]) for end in ends]
    assert model.blank == model.vocabulary_size


def test_fill_command_adapts(folder, tmp_path):
    (tmp_path / "other.txt").write_text("mat dog cat mat dog cat " * 10)
    assert "%" in run_program("fill", folder / "fill", "the c___t sat", "--adapt", "dynamic")
    table = run_program("eval", folder / "fill", "--data", tmp_path / "other.txt", "--adapt", "dynamic")
    assert "adapted (dynamic)" in table
