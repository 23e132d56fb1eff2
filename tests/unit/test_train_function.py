"""`weft.train`: any task by its name, with its progress shown or not."""

from __future__ import annotations

import pytest

import weft

SMALL = {"text.limit": 3000, "model.hidden_size": 8, "batch.size": 4, "train.epochs": 1}


def test_a_task_by_its_name_with_progress(tmp_path, capsys):
    model = weft.train("lm", "grammar", tmp_path / "run", SMALL)
    assert isinstance(model, weft.LmPredictor)
    shown = capsys.readouterr()
    assert "held-out perplexity" in shown.err
    assert shown.out == ""


def test_silence(tmp_path, capsys):
    weft.train("lm", "grammar", tmp_path / "run", SMALL, progress=False)
    assert capsys.readouterr() == ("", "")


def test_settings_from_a_file(tmp_path):
    (tmp_path / "small.toml").write_text(
        "[text]\nlimit = 3000\n[model]\nhidden_size = 8\n[batch]\nsize = 4\n[train]\nepochs = 1\n", encoding="utf-8"
    )
    for place in (str(tmp_path / "small.toml"), tmp_path / "small.toml"):
        model = weft.train("lm", "grammar", tmp_path / type(place).__name__, place, progress=False)
        assert model.run.config["model"]["hidden_size"] == 8


def test_unknown_tasks_are_named(tmp_path):
    with pytest.raises(weft.WeftError, match="task 'clasify' is not known"):
        weft.train("clasify", "grammar", tmp_path / "run")
