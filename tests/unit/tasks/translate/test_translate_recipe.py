"""Which settings of a translator are chosen by the number of pairs and the time limit."""

from __future__ import annotations

import pytest

import weft
from weft.config import auto_settings, load_config
from weft.tasks.translate.config import TranslateConfig
from weft.tasks.translate.recipe import (
    EPOCHS,
    HIGHEST_DROPOUT,
    SMALL_DATA_EPOCHS,
    PairWorkload,
    choose_for_pairs,
    dropout_for,
    epochs_for,
    passes_within,
)

FLOAT32 = {"train.precision": "float32"}
MANY = PairWorkload(pairs=160_000, tokens=1_900_000, vocabulary_size=4000)


def chosen(work, **settings):
    return choose_for_pairs(load_config(TranslateConfig, sets={**FLOAT32, **settings}), work)


def test_more_pairs_give_fewer_epochs_and_less_dropout():
    epochs = [epochs_for(pairs) for pairs in (1, 1000, 10_000, 30_000, 160_000, 10**7)]
    assert epochs == sorted(epochs, reverse=True)
    assert (epochs[0], epochs[-1]) == (SMALL_DATA_EPOCHS, EPOCHS)
    rates = [
        dropout_for(pairs, one) for pairs, one in zip((1, 1000, 10_000, 30_000, 160_000, 10**7), epochs, strict=True)
    ]
    assert rates == sorted(rates, reverse=True)
    assert 0 <= rates[-1] <= rates[0] <= HIGHEST_DROPOUT


def test_a_time_limit_allows_more_epochs_and_sets_the_dropout_by_those_it_suffices_for():
    short, _ = chosen(MANY, **{"train.minutes": 1})
    long, line = chosen(MANY, **{"train.minutes": 100_000})
    assert short.model.dropout == 0  # less than two passes
    assert long.train.epochs == short.train.epochs == 2 * EPOCHS
    assert long.model.dropout == dropout_for(MANY.pairs, 2 * EPOCHS)
    assert line == f"at most 8 epochs, dropout {long.model.dropout:g}: chosen for 160,000 pairs and 100000 minutes"
    assert passes_within(60, MANY, short.model) == pytest.approx(2 * passes_within(30, MANY, short.model))


def test_given_settings_are_kept():
    config, line = chosen(MANY, **{"train.epochs": 16, "model.dropout": 0.25})
    assert (config.train.epochs, config.model.dropout, line) == (16, 0.25, "")
    assert chosen(MANY, **{"train.epochs": 300})[0].model.dropout == dropout_for(MANY.pairs, EPOCHS)


def test_a_run_has_the_values_that_were_chosen(tmp_path):
    small = {"text.tokenizer": "word", "text.limit": 60, "model.hidden_size": 8, "model.embedding_dim": 8}
    training = weft.start_translate("grammar-fr", tmp_path / "run", small)
    config = load_config(TranslateConfig, sets={}, base=dict(training.run.config))
    assert not auto_settings(config)
    assert f"{config.train.epochs} epochs, dropout {config.model.dropout:g}" in training.choice
    assert training.model.dropout == config.model.dropout > 0
