"""The settings of a language model that are chosen from the amount of text and the time limit."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import weft
from weft.cells import CELLS
from weft.cli import main
from weft.config import auto_settings, load_config
from weft.tasks.lm.config import LmConfig
from weft.tasks.lm.model import make_language_model
from weft.tasks.lm.recipe import (
    MOST_COUNTED,
    NGRAM_ORDER,
    OPERATIONS,
    SIZES,
    SPEED,
    WEIGHTS_PER_TOKEN,
    WORD_NGRAM_ORDER,
    Workload,
    choose_recipe,
    choose_settings,
)
from weft.training.devices import fastest_precision
from weft.training.run import open_run

TEXT = weft.Corpus.from_texts("text", ["one two three\n" * 100])
CHARACTERS = Workload(tokens=1_000_000, vocabulary_size=65)


def test_more_time_gives_a_larger_model():
    large = CHARACTERS._replace(tokens=10**7)
    sizes = [choose_recipe(large._replace(minutes=minutes)).hidden_size for minutes in (0.1, 1, 6, 30, 200)]
    assert sizes == sorted(set(sizes))
    for minutes in (0.1, 1, 6, 30):
        two = choose_recipe(CHARACTERS._replace(minutes=minutes, threads=2))
        assert two == choose_recipe(CHARACTERS._replace(minutes=2 * minutes))  # threads and minutes are exchangeable


def test_less_text_gives_a_smaller_model():
    texts = [CHARACTERS._replace(tokens=tokens, minutes=200) for tokens in (10_000, 50_000, 200_000, 10**6, 10**7)]
    recipes = [choose_recipe(text) for text in texts]
    sizes = [recipe.hidden_size for recipe in recipes]
    assert sizes == sorted(set(sizes))
    for text, recipe in zip(texts, recipes, strict=True):
        assert text.recurrent_weights(recipe.hidden_size, recipe.embedding_dim) <= WEIGHTS_PER_TOKEN * text.tokens


def test_more_text_gives_fewer_epochs_and_less_dropout():
    recipes = [choose_recipe(Workload(tokens, 65)) for tokens in (10_000, 100_000, 1_000_000, 10_000_000, 10**9)]
    assert [one.epochs for one in recipes] == sorted((one.epochs for one in recipes), reverse=True)
    assert [one.dropout for one in recipes] == sorted((one.dropout for one in recipes), reverse=True)
    assert recipes[-1].epochs == 1
    assert recipes[-1].dropout == 0


def test_characters_have_weight_decay_and_no_dropout_of_the_embedding():
    characters, words = (choose_recipe(Workload(10**6, size)).weight_decay for size in (1000, 1001))
    assert characters > words > 0
    config = load_config(LmConfig, sets={"model.hidden_size": 8, "model.embedding_dim": 8, "model.dropout": 0.5}).model
    for size, dropped in ((1000, False), (1001, True), (20_000, True)):
        model = make_language_model(size, config).train()
        assert bool((model.inputs_of(torch.arange(9)[None]) == 0).any()) is dropped


def test_less_time_than_two_passes_needs_no_dropout():
    assert choose_recipe(CHARACTERS._replace(minutes=1, tokens=10**8)).dropout == 0


@pytest.mark.parametrize(
    "work", [Workload(1, 2), Workload(50, 10, minutes=1000), Workload(10**12, 10**7, minutes=1e-3)]
)
def test_extreme_workloads_give_usable_settings(work):
    recipe = choose_recipe(work)
    assert recipe.hidden_size in SIZES
    assert 0 <= recipe.dropout < 0.95
    assert 0 < recipe.learning_rate < 0.1
    assert recipe.epochs >= 1


def test_a_small_text_in_limited_time_is_interpolated_with_ngrams():
    limited = CHARACTERS._replace(minutes=2)
    assert choose_recipe(limited).ngram_order == NGRAM_ORDER
    assert choose_recipe(limited._replace(vocabulary_size=1001)).ngram_order == WORD_NGRAM_ORDER
    for other in (CHARACTERS, limited._replace(tokens=MOST_COUNTED + 1)):
        assert choose_recipe(other).ngram_order == 0
    assert choose_recipe(CHARACTERS, {"model.ngram_order": 3}).ngram_order == 3


def test_given_settings_are_kept_and_the_others_go_with_them():
    given = {"model.hidden_size": 100, "model.embedding_dim": 0, "train.epochs": 3}
    recipe = choose_recipe(CHARACTERS._replace(minutes=500), given)
    assert (recipe.hidden_size, recipe.embedding_dim, recipe.epochs) == (100, 0, 3)
    assert recipe.dropout == choose_recipe(CHARACTERS, {"train.epochs": 3}).dropout  # for 3 passes


@pytest.mark.parametrize(("cell", "layers", "size"), [("lstm", 1, 30), ("gru", 2, 30), ("lstm", 3, 7)])
def test_the_work_of_a_token_is_that_of_the_weights(cell, layers, size):
    config = load_config(weft.LmConfig, sets={"model.cell": cell, "model.num_layers": layers, "model.hidden_size": size,
                                              "model.embedding_dim": 12, "model.dropout": 0}).model  # fmt: skip
    model = make_language_model(40, config)
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embedding" not in name)
    work = Workload(1000, 40, blocks={"lstm": 4, "gru": 3}[cell], layers=layers)
    assert work.epoch_seconds(size, 12) == pytest.approx(1000 * OPERATIONS * matrices / SPEED["float32"])


def test_an_adaptive_softmax_is_cheaper():
    words = Workload(2_000_000, 33_278)
    full, adaptive = words.output_weights(256, 256), words._replace(adaptive=True).output_weights(256, 256)
    assert 2000 * 256 < adaptive < full / 4


def test_chosen_settings_are_recorded_shown_and_kept_by_a_resume(tmp_path):
    sets = {"train.minutes": 30, "batch.size": 4, "batch.seq_length": 16, "model.dropout": 0}
    config = load_config(weft.LmConfig, sets=sets)
    training = weft.start_lm(TEXT, tmp_path / "run", config)
    recorded = open_run(tmp_path / "run").config
    assert recorded == training.run.config
    assert not auto_settings(load_config(weft.LmConfig, base=recorded))
    model = recorded["model"]
    assert f"hidden {model['hidden_size']}, embedding {model['embedding_dim']}, learning rate" in training.choice
    assert "dropout" not in training.choice  # it was set
    assert "chosen for 1,260 tokens and 30 minutes on" in training.choice
    next(training.steps())
    training.lock.release()
    resumed = weft.resume_lm(tmp_path / "run", replace(config, train=replace(config.train, minutes=20)))
    assert resumed.run.config["model"] == model
    assert resumed.run.config["train"]["minutes"] == 20


def test_the_cell_depends_on_the_vocabulary():
    for size, cell in ((1000, "lstm"), (1001, "gru")):
        config, note = choose_settings(LmConfig(), 100_000, size)
        assert config.model.cell == cell
        assert f"cell {cell}, hidden {config.model.hidden_size}" in note
        model = make_language_model(size, load_config(LmConfig, sets={"model.hidden_size": 4}).model)
        assert type(model.stack.layers[0].cell) is CELLS[cell]
        given = load_config(LmConfig, sets={"model.cell": "rnn"})
        assert choose_settings(given, 100_000, size)[0].model.cell == "rnn"
    words = Workload(10**7, 5000, minutes=30)
    sizes = [choose_recipe(words._replace(blocks=blocks)).hidden_size for blocks in (4, 3)]
    assert sizes[0] < sizes[1]  # a cell with fewer blocks has more units


def test_words_have_more_dropout():
    characters, words = (choose_recipe(Workload(10**6, size)).dropout for size in (1000, 1001))
    assert 0 < characters < words <= 0.5


def test_nothing_is_said_where_nothing_is_chosen(tmp_path):
    sets = {"model.cell": "lstm", "model.hidden_size": 8, "model.embedding_dim": 8, "model.dropout": 0.1,
            "train.epochs": 1, "train.learning_rate": 0.01, "train.weight_decay": 0, "train.precision": "float32",
            "batch.size": 4}  # fmt: skip
    assert weft.start_lm(TEXT, tmp_path / "run", sets).choice == ""


@pytest.mark.parametrize(
    ("variant", "chosen"), [("avx512_bf16", "bf16"), ("avx512", "float32"), ("neon_bf16", "bf16"), (None, "float32")]
)
def test_bf16_is_chosen_where_the_cpu_has_instructions_for_it(monkeypatch, variant, chosen):
    engine = None if variant is None else SimpleNamespace(variant=variant)
    monkeypatch.setattr("weft.training.devices.library", lambda: engine)
    config, note = choose_settings(LmConfig(), 100_000, 65)
    assert config.train.precision == chosen
    assert f"precision {chosen}" in note
    given = load_config(LmConfig, sets={"train.precision": "float32"})
    assert choose_settings(given, 100_000, 65)[0].train.precision == "float32"
    assert fastest_precision("meta") == "float32"  # not the CPU


def test_fine_tuning_keeps_what_the_source_run_chose(tmp_path):
    small = {"batch.size": 4, "batch.seq_length": 16}
    first = weft.start_lm(TEXT, tmp_path / "first", {**small, "train.epochs": 1})
    list(first.steps())
    tuned = weft.start_lm(TEXT, tmp_path / "tuned", load_config(weft.LmConfig, sets=small), from_run=tmp_path / "first")
    assert tuned.run.config["model"] == first.run.config["model"]
    assert tuned.choice == ""


def test_a_training_of_hours_is_announced():
    config = load_config(weft.LmConfig, sets={"model.hidden_size": 1024, "train.epochs": 100})
    _, note = choose_settings(config, 20_000_000, 100)
    assert re.search(r"will take about [\d.,]+ hours\. Faster: `train\.minutes=30`", note)
    for sets, tokens in (({}, 20_000), ({"train.minutes": 30}, 2_000_000_000)):
        assert "hours" not in choose_settings(load_config(weft.LmConfig, sets=sets), tokens, 100)[1]


def test_the_command_line_shows_the_choice(tmp_path, monkeypatch, capsys):
    file = tmp_path / "text.txt"
    file.write_text("one two three\n" * 60, encoding="utf-8")
    arguments = ["train", "lm", "--data", str(file), "--out", str(tmp_path / "run"), "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", ["weft", *arguments, "--set", "batch.size=4"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    shown = capsys.readouterr().err
    assert "hidden 64, embedding 64, dropout 0, learning rate" in shown
    assert ": chosen for 756 tokens" in shown
