"""Settings are read strictly and their errors name the key."""

from __future__ import annotations

import dataclasses
import re

import pytest

from weft.config import (
    AUTO,
    as_config,
    auto_settings,
    changed,
    from_dict,
    load_config,
    resolve_auto,
    to_dict,
    to_toml,
)
from weft.errors import WeftError, unknown_name
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.fill.config import FillConfig
from weft.tasks.hmm.config import HmmConfig
from weft.tasks.lm.config import LmConfig
from weft.tasks.ngram.config import NgramConfig
from weft.tasks.tag.config import TagConfig
from weft.tasks.translate.config import TranslateConfig

CONFIGS = [ClassifyConfig, FillConfig, HmmConfig, LmConfig, NgramConfig, TagConfig, TranslateConfig]


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_setting_has_one_line_of_help(kind):
    sections = [getattr(kind(), section.name) for section in dataclasses.fields(kind)]
    for entry in (entry for section in sections for entry in dataclasses.fields(section)):
        assert entry.metadata["help"].strip(), entry.name
        assert "\n" not in entry.metadata["help"], entry.name


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_default_is_valid(kind):
    assert from_dict(kind, to_dict(kind())) == kind()


def test_a_changed_default_keeps_its_range():
    with pytest.raises(WeftError, match=r"train\.ema_decay is 2.0; expected 0 to 0.99999"):
        load_config(TagConfig, sets={"train.ema_decay": 2.0})


def test_sets_as_a_mapping_and_as_sections(tmp_path):
    file = tmp_path / "some.toml"
    file.write_text("[train]\nepochs = 1\nseed = 5\n", encoding="utf-8")
    config = load_config(
        LmConfig, str(file), {"train.epochs": 3}, train={"epochs": 2, "minutes": 1}, text={"lower": True}
    )
    assert (config.train.epochs, config.train.minutes, config.train.seed, config.text.lower) == (3, 1.0, 5, True)
    with pytest.raises(WeftError, match="'trian' is not known"):
        load_config(LmConfig, trian={"epochs": 2})
    with pytest.raises(WeftError, match=r"train\.epochs is '3'"):
        load_config(LmConfig, sets={"train.epochs": "3"})


def test_defaults_survive_json_and_toml(tmp_path):
    config = LmConfig()
    assert from_dict(LmConfig, to_dict(config)) == config
    file = tmp_path / "all.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert load_config(LmConfig, file) == config


def test_sets_override_the_file_in_order(tmp_path):
    file = tmp_path / "some.toml"
    file.write_text('[model]\ncell = "gru"\nhidden_size = 12\n', encoding="utf-8")
    config = load_config(
        LmConfig, file, ["model.hidden_size=7", "model.hidden_size=9", "text.lower=true", "train.learning_rate=1"]
    )
    assert (config.model.cell, config.model.hidden_size, config.text.lower) == ("gru", 9, True)
    assert config.train.learning_rate == 1.0
    assert isinstance(config.train.learning_rate, float)


def test_sets_override_the_base_without_modifying_it():
    base = to_dict(load_config(LmConfig, None, ["model.hidden_size=5", "train.epochs=3"]))
    config = load_config(LmConfig, None, ["train.epochs=4"], base=base)
    assert (config.model.hidden_size, config.train.epochs, base["train"]["epochs"]) == (5, 4, 3)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("train.learning_ratee=1", ["train.learning_ratee", "Try: `train.learning_rate=VALUE`"]),
        ("trian.learning_rate=1", ["trian", "Try: train"]),
        ("train.epochs=1.5", ["train.epochs is 1.5", "an integer"]),
        ("train.epochs=true", ["train.epochs is True", "an integer"]),
        ("text.lower=1", ["text.lower is 1", "true or false"]),
        ("model.cell=3", ["model.cell is 3", "a string"]),
        ("model.hidden_size=0", ["model.hidden_size is 0", "1 or more"]),
        ("model.dropout=2", ["model.dropout is 2", "0 to 0.95"]),
        ("model.dropout=nan", ["model.dropout is nan"]),
        ("train.learning_rate=inf", ["train.learning_rate is inf"]),
        ("batch.sampling=sequental", ["batch.sampling", "Try: `batch.sampling=sequential`"]),
        ("train=3", ["train is 3", "a section"]),
        ("train.learning_rate", ["section.key=value"]),
        ("=3", ["section.key=value"]),
        ("train.learning_rate.x=3", ["train.learning_rate"]),
    ],
)
def test_errors_name_the_key_and_what_is_expected(assignment, words):
    with pytest.raises(WeftError) as caught:
        load_config(LmConfig, None, ["train.learning_rate=0.1", assignment])
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_long_values_and_many_choices_are_shown_in_short():
    for key, value in (("text.lower", "x" * 10_000), ("train.epochs", ["x"] * 10_000), ("batch", "x" * 10_000)):
        with pytest.raises(WeftError) as caught:
            load_config(LmConfig, sets={key: value})
        assert len(str(caught.value)) < 200
    names = [f"label{number}" for number in range(10_000)]
    error = unknown_name("label", "lable" * 1000, names)
    assert len(str(error)) < 2000
    assert "label99, ... (10,000 in all)" in str(error)


def test_invalid_or_missing_file(tmp_path):
    with pytest.raises(WeftError, match=r"none\.toml"):
        load_config(LmConfig, tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[model\n", encoding="utf-8")
    with pytest.raises(WeftError, match=r"broken\.toml.*line 1"):
        load_config(LmConfig, broken)


def test_changed_lists_exactly_the_differences():
    old = LmConfig()
    new = load_config(LmConfig, None, ["train.learning_rate=9", "model.cell=rnn"])
    assert changed(to_dict(old), to_dict(new)) == {
        "train.learning_rate": (old.train.learning_rate, 9.0),
        "model.cell": (old.model.cell, "rnn"),
    }


def test_auto_is_a_value_of_its_own(tmp_path):
    config = load_config(LmConfig, None, ["model.hidden_size=auto", "model.dropout=0", "train.learning_rate=0.01"])
    assert config.model.hidden_size == AUTO
    left = auto_settings(config)
    assert {"model.hidden_size", "model.embedding_dim", "train.epochs"} <= set(left)
    assert not {"model.dropout", "train.learning_rate"} & set(left)
    resolved = resolve_auto(config, {"model.hidden_size": 12, "model.dropout": 0.4})
    assert (resolved.model.hidden_size, resolved.model.dropout) == (12, 0.0)  # 0 was set: it is not "auto"
    assert 'hidden_size = "auto"' in to_toml(config)
    file = tmp_path / "auto.toml"
    file.write_text('[model]\nhidden_size = "auto"\n', encoding="utf-8")
    assert load_config(LmConfig, file).model.hidden_size == AUTO
    with pytest.raises(WeftError, match=r"model\.hidden_size is -2"):
        load_config(LmConfig, None, ["model.hidden_size=-2"])
    with pytest.raises(WeftError, match=r"batch\.size is 'auto'"):
        load_config(LmConfig, None, ["batch.size=auto"])


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        (ClassifyConfig, "label_column", "`data.label_column=VALUE`"),
        (LmConfig, "epochs", "`train.epochs=VALUE`"),
        (LmConfig, "train.hidden_size", "`model.hidden_size=VALUE`"),
        (LmConfig, "size", "`batch.size=VALUE`"),
    ],
)
def test_a_setting_without_its_section_is_refused_with_it(kind, name, settings, tmp_path):
    file = tmp_path / "some.toml"
    file.write_text(f"{name} = 1\n", encoding="utf-8")
    message = re.escape(f"setting '{name}' is not known; expected a setting with its section. Try: {settings}")
    for read in (
        lambda: load_config(kind, None, [f"{name}=1"]),
        lambda: load_config(kind, file),
        lambda: as_config(kind, {name: 1}),
    ):
        with pytest.raises(WeftError, match=f"{message}$"):
            read()
