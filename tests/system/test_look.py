"""`weft look`, `plot`, `runs` and `compare`, run as programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tests.program import weft
from weft.cli import app, main

TEXT = "the king sees a dog."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("look")
    small = ["--set", "text.limit=6000", "--set", "model.hidden_size=8", "--set", "train.epochs=2"]
    for name, seed in (("a", 1), ("b", 2)):
        done = weft("train", "lm", "--data", "grammar", "--out", root / name, *small, "--set", f"train.seed={seed}")
        assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--show", "gates", "--layer", "0", "--gate", "f"],
        ["--show", "states", "--unit", "3"],
        ["--show", "gradient", "--layer", "0"],
        ["--show", "jacobian"],
        ["--show", "terms"],
        ["--show", "connectivity", "--method", "integrated"],
        ["--show", "evidence"],
        ["--show", "beam", "--beam", "2"],
        ["--show", "units", "--unit", "2"],
        ["--show", "units", "--label", "line-position"],
        ["--show", "units", "--phrase", "king"],
        ["--against", "b"],
        ["--lines", "--show", "gates"],
    ],
)
def test_look(folder, options):
    options = [str(folder / one) if one == "b" else one for one in options]
    done = CliRunner().invoke(app, ["look", str(folder / "a"), TEXT, *options])  # in this process: torch is loaded once
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("# ")
    assert "\x1b[" not in done.stdout


def test_look_reads_standard_input_and_prints_json(folder):
    done = weft("look", folder / "a", "-", "--json", stdin=TEXT)
    (found,) = json.loads(done.stdout)
    assert found["probe"] == "surprisal"
    assert "".join(found["steps"]) == TEXT
    assert found["nats"][0] is None


def test_look_writes_files(folder, tmp_path):
    for name in ("a.html", "a.svg", "a.json"):
        done = weft("look", folder / "a", TEXT, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        assert done.stderr == f"wrote {tmp_path / name}\n"
    assert "http" not in (tmp_path / "a.html").read_text(encoding="utf-8").replace("http://www.w3.org", "")
    ElementTree.parse(tmp_path / "a.svg")
    json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))


def test_units_of_a_corpus(folder, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the king sees a dog.\nthe dogs see the king.\n", encoding="utf-8")
    done = weft("look", folder / "a", "--show", "units", "--unit", 0, "--data", corpus)
    assert done.returncode == 0, done.stderr
    assert "unit 0" in done.stdout
    done = weft("look", folder / "a", "--show", "units", "--label", "line-position", "--data", corpus, "--json")
    (found,) = json.loads(done.stdout)
    assert found["count"] == len(corpus.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["look", "a", TEXT, "--show", "gats"], "--show 'gats' is not known; expected one of: surprisal, gates"),
        (["look", "a", TEXT, "--show", "attention"], "it has no attention"),
        (["look", "a", TEXT, "--show", "gates", "--unit", "99"], "has no unit 99; expected 0 to 7"),
        (["look", "a", TEXT, "--show", "gates", "--gate", "q"], "there is no gate 'q'; expected one of: "),
        (["look", "a", TEXT, "--show", "gates", "--layer", "7"], "there is no layer 7"),
        (["look", "a", TEXT, "--out", "x.gif"], "expected a name that ends with"),
        (["look", "a", ""], "has 0 tokens as the model reads it"),
        (["look", "a"], "there is no text to look at"),
        (["look", "a", "--show", "units"], "the probe units needs a unit, a label or a phrase"),
        (["look", "a", TEXT, "--show", "confusion"], "it has no labels to confuse"),
        (["look", "a", TEXT, "--show", "gates", "--against", "a"], "--against with --show gates"),
        (["look", "a", " ", "--lines"], "there is no line with text"),
        (["look", "missing", TEXT], "missing"),
        (["plot", "a", "--metric", "beauty"], "--metric 'beauty' is not known"),
        (["plot", "missing"], "missing"),
        (["runs", "missing"], "missing is not a folder"),
        (["runs", ".", "--sort", "beauty"], "--sort 'beauty' is not known"),
        (["compare", "a"], "there are 1 runs to compare"),
    ],
)
def test_mistakes_exit_2_with_one_message(folder, arguments, message, monkeypatch, capsys):
    paths = [str(folder / one) if one in ("a", "missing") else one for one in arguments]
    monkeypatch.setattr(sys, "argv", ["weft", *paths])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert message in shown.err
    assert shown.err.startswith("weft: ")
    assert shown.out == ""


def test_a_mistake_in_a_process_of_its_own(folder):
    done = weft("look", folder / "a", TEXT, "--show", "attention")
    assert done.returncode == 2
    assert "it has no attention" in done.stderr
    assert "Traceback" not in done.stderr


def test_plot(folder, tmp_path):
    done = weft("plot", folder / "a", folder / "b")
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    assert "# Cross-entropy" in shown
    assert "a training" in done.stdout
    assert "\tbest" in done.stdout
    done = weft("plot", folder / "a", folder / "b", "--out", tmp_path / "p.svg")
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"wrote {tmp_path / 'p.svg'}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["p.svg"]
    panels = ElementTree.parse(tmp_path / "p.svg").findall("{*}g/{*}title")
    assert [one.text for one in panels] == [line[2:] for line in shown.splitlines() if line.startswith("# ")]
    done = weft("plot", folder / "a", "--follow")  # nobody trains it: one look
    assert done.returncode == 0, done.stderr


def test_runs(folder):
    done = weft("runs", folder)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["task", "lm", "lm"]
    found = [
        json.loads(line) for line in weft("runs", folder, "--json", "--sort", "date", "--reverse").stdout.splitlines()
    ]
    assert [one["path"] for one in found] == [str(folder / "b"), str(folder / "a")]
    assert found[0]["state"] == "done"
    assert found[0]["data"] == "grammar"
    assert found[0]["best"] > 1


def test_compare(folder):
    done = weft("compare", folder / "a", folder / "b")
    assert done.returncode == 0, done.stderr
    assert "train.seed" in done.stdout
    assert "model.cell" not in done.stdout
    assert "95% interval" in done.stdout
    found = json.loads(weft("compare", folder / "a", folder / "a", "--json").stdout)
    assert found["settings"] == {}
    assert found["tests"][0]["difference"] == 0
    assert found["tests"][0]["p_value"] == 1


def test_plot_follows_a_training_process(tmp_path):
    """`weft plot --follow` draws while another process trains, and ends with it."""
    program, environment = [sys.executable, "-m", "weft"], {**os.environ, "OMP_NUM_THREADS": "1"}
    settings = ["--set", "text.limit=20000", "--set", "model.hidden_size=8", "--epochs", "100000"]
    run, title = tmp_path / "live", "# Train cross entropy\n"
    train = [*program, "train", "lm", "--data", "grammar", "--out", str(run), *settings]
    follow = [*program, "plot", str(run), "--follow", "--metric", "train_cross_entropy"]
    with subprocess.Popen(train, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as training:
        try:
            while not (run / "metrics.jsonl").exists():
                assert training.poll() is None
                time.sleep(0.1)
            with subprocess.Popen(follow, stdout=subprocess.PIPE, env=environment, encoding="utf-8") as plot:
                lines: list[str] = []
                while lines.count(title) < 2:
                    lines.append(plot.stdout.readline())
                    assert lines[-1], "it ended while the run was training"
                training.terminate()
                lines += plot.stdout.readlines()
                assert plot.wait(timeout=600) == 0
        finally:
            training.kill()
    drawn = [len(one.splitlines()) for one in "".join(lines).split(title)[1:]]
    assert drawn == sorted(drawn)
    assert drawn[-1] > drawn[0]
