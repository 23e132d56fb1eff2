"""`weft.train`: any task by its name, with its progress shown or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import weft
from tests.serving import RECIPES, train_runs

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


def test_training_and_loading_do_not_load_what_only_compilers_need(tmp_path):
    """torch.optim, a gradient given to backward(), and normal_ on the meta device do: it takes a second.

    Classifiers and taggers of spans are fitted by torch.optim.LBFGS: they are only loaded here.
    """
    train_runs(tmp_path, {name: RECIPES[name].changed({"train.epochs": 1}) for name in ("sentiment", "ner")})
    program = (
        "import sys, weft\nfrom pathlib import Path\nfrom tests.serving import RECIPES, train_runs\n"
        "folder, short = Path(sys.argv[1]), {'train.epochs': 1, 'train.evaluate_every': 1}\n"
        "train_runs(folder, {name: RECIPES[name].changed(short) for name in ('lm', 'fill', 'en-fr')})\n"
        "weft.load(folder / 'sentiment').classify(['good'])\n"
        "weft.load(folder / 'ner').tag(['Ann went'])\n"
        "assert not {'torch._dynamo', 'sympy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)
