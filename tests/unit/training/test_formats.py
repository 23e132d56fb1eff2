"""The page on formats is enough to check a run: tools/check_run.py, which uses no weft, finds every kind of damage."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

import weft
from tests.paths import ROOT
from tools.check_run import check_run
from weft.text.corpus import Corpus
from weft.training.run import FORMAT

SMALL = {"model.hidden_size": 8, "model.embedding_dim": 4, "train.epochs": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of tasks whose files differ."""
    folder = tmp_path_factory.mktemp("runs")
    texts = [("good", "a fine meal"), ("bad", "a cold soup")] * 20
    text = Corpus.from_texts("text", ["ab cd" * 400])
    weft.train_lm(text, folder / "lm", {**SMALL, "model.ngram_order": 2}, progress=False)
    weft.train_classify(texts, folder / "classify", {**SMALL, "train.members": 2}, progress=False)
    weft.train_ngram(text, folder / "ngram", progress=False)
    weft.train_forecast([[1.0, 2, 3, 4] * 9], folder / "forecast", progress=False, horizon=4)
    return folder


@pytest.mark.parametrize("task", ["lm", "classify", "ngram", "forecast"])
def test_a_run_is_as_the_page_says(runs, task, capsys):
    assert check_run(runs / task) == []
    files = [path for path in (runs / task).rglob("*") if path.suffix in (".json", ".safetensors", ".npy")]
    shown = capsys.readouterr().out
    assert all(f"{path}: as it was written" in shown for path in files)


@pytest.mark.parametrize("name", ["config.json", "fields.json", "data/train.text.npy", "checkpoint.safetensors"])
@pytest.mark.parametrize("change", ["one byte", "cut short", "missing"])
def test_damage_is_found(runs, tmp_path, name, change, capsys):
    shutil.copytree(runs / "classify", tmp_path / "run")
    path = tmp_path / "run" / name
    content = bytearray(path.read_bytes())
    if change == "one byte":
        content[len(content) // 2] ^= 1
    path.write_bytes(content[: -9 if change == "cut short" else None])
    if change == "missing":
        path.unlink()
    assert check_run(tmp_path / "run") == [path.name]
    assert f"{path.name}: damaged: " in capsys.readouterr().out


def test_other_formats_are_refused(runs, tmp_path):
    shutil.copytree(runs / "lm", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "format": FORMAT + 1}), "utf-8")
    assert check_run(tmp_path / "run") == ["config.json"]


def test_the_program_uses_no_weft(runs):
    program = ROOT / "tools" / "check_run.py"
    assert "weft" not in re.findall(r"^\s*(?:import|from) (\w+)", program.read_text("utf-8"), re.M)
    for folder, code in ((runs / "lm", 0), (runs, 1)):
        done = subprocess.run([sys.executable, "-I", str(program), str(folder)], capture_output=True, check=False)
        assert done.returncode == code


def test_the_page_has_the_format_number():
    assert f"The format number is {FORMAT}." in (ROOT / "docs" / "formats.md").read_text("utf-8")
