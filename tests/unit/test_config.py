"""Settings are read strictly and their errors name the key."""

from __future__ import annotations

import pytest

from weft.config import changed, from_dict, load_config, to_dict, to_toml
from weft.errors import WeftError
from weft.tasks.lm.config import LanguageConfig


def test_defaults_survive_json_and_toml(tmp_path):
    config = LanguageConfig()
    assert from_dict(LanguageConfig, to_dict(config)) == config
    file = tmp_path / "all.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert load_config(LanguageConfig, file) == config


def test_file_then_sets_in_turn(tmp_path):
    file = tmp_path / "some.toml"
    file.write_text('[model]\ncell = "gru"\nhidden = 12\n', encoding="utf-8")
    config = load_config(LanguageConfig, file, ["model.hidden=7", "model.hidden=9", "text.lower=true", "train.rate=1"])
    assert (config.model.cell, config.model.hidden, config.text.lower) == ("gru", 9, True)
    assert config.train.rate == 1.0
    assert isinstance(config.train.rate, float)


def test_base_stays_below_file_and_sets_and_is_not_changed():
    base = to_dict(load_config(LanguageConfig, None, ["model.hidden=5", "train.epochs=3"]))
    config = load_config(LanguageConfig, None, ["train.epochs=4"], base=base)
    assert (config.model.hidden, config.train.epochs, base["train"]["epochs"]) == (5, 4, 3)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("train.ratee=1", ["train.ratee", "Try: train.rate"]),
        ("trian.rate=1", ["trian", "Try: train"]),
        ("train.epochs=1.5", ["train.epochs is 1.5", "a whole number"]),
        ("train.epochs=true", ["train.epochs is True", "a whole number"]),
        ("text.lower=1", ["text.lower is 1", "true or false"]),
        ("model.cell=3", ["model.cell is 3", "text"]),
        ("model.hidden=0", ["model.hidden is 0", "1 or more"]),
        ("model.dropout=2", ["model.dropout is 2", "0 to 0.95"]),
        ("model.dropout=nan", ["model.dropout is nan"]),
        ("train.rate=inf", ["train.rate is inf"]),
        ("batch.sampling=sequental", ["batch.sampling", "Try: sequential"]),
        ("train=3", ["train is 3", "a section"]),
        ("train.rate", ["section.key=value"]),
        ("=3", ["section.key=value"]),
        ("train.rate.x=3", ["train.rate"]),
    ],
)
def test_errors_name_the_key_and_what_is_expected(assignment, words):
    with pytest.raises(WeftError) as caught:
        load_config(LanguageConfig, None, ["train.rate=0.1", assignment])
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_broken_or_missing_file(tmp_path):
    with pytest.raises(WeftError, match=r"none\.toml"):
        load_config(LanguageConfig, tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[model\n", encoding="utf-8")
    with pytest.raises(WeftError, match=r"broken\.toml.*line 1"):
        load_config(LanguageConfig, broken)


def test_changed_lists_exactly_the_differences():
    old = LanguageConfig()
    new = load_config(LanguageConfig, None, ["train.rate=9", "model.cell=rnn"])
    assert changed(to_dict(old), to_dict(new)) == {
        "train.rate": (old.train.rate, 9.0),
        "model.cell": (old.model.cell, "rnn"),
    }
