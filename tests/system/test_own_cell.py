"""Custom cells from the command line and in Python, and runs opened and resumed from Python."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import pytest
import torch
import typer

import weft
from examples.own_cell import MinimalGatedUnitCell, PeepholeLSTMCell
from tests.paths import ROOT
from weft.cells import CELLS, Candidate, Cell, HiddenState, custom_cells, using_cells
from weft.cli import WITHOUT_CELLS, app, main
from weft.cli import train as cli_train
from weft.training.run import write_json

FILE = ROOT / "examples" / "own_cell.py"
PEEPHOLE = ["--cell", f"{FILE}:PeepholeLSTMCell"]
TINY = {"model.hidden_size": 8, "text.limit": 3000, "train.epochs": 1}
NEEDED = r"needs the cell 'PeepholeLSTMCell', which is not part of weft"


@pytest.fixture
def program(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["weft", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    return call


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that a user trained with a custom cell, in Python."""
    out = tmp_path_factory.mktemp("runs") / "own"
    weft.train("lm", "grammar", out, {**TINY, "model.cell": PeepholeLSTMCell}, progress=False)
    return out


def test_a_cell_of_a_file_trains_resumes_and_serves_every_command(program, tmp_path):
    out, sets = tmp_path / "run", [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    assert program("train", "lm", "--data", "grammar", "--out", out, *sets, *PEEPHOLE)[0] == 0
    assert program("train", "lm", "--out", out, "--resume", "--epochs", 2, *PEEPHOLE)[0] == 0
    again = tmp_path / "tuned"
    assert program("train", "lm", "--data", "grammar", "--from", out, "--out", again, *PEEPHOLE, "--epochs", 1)[0] == 0
    commands = [
        ("generate", out, "--tokens", 3),
        ("eval", out),
        ("look", out, "the dog"),
        ("compare", out, again),
        ("train", "lm", "--out", out, "--resume"),
        ("train", "lm", "--data", "grammar", "--from", out, "--out", tmp_path / "new"),
    ]
    for command in commands:
        code, _, err = program(*command)
        assert code == 2, command
        assert "needs the cell 'PeepholeLSTMCell'" in err, err
        assert "Try: --cell FILE.py:PeepholeLSTMCell" in err, err
    for command in commands[:4]:
        assert program(*command, *PEEPHOLE)[0] == 0, command
    assert custom_cells() == {}  # known in those commands only


def test_the_command_that_resumes_names_the_cell(program, tmp_path, monkeypatch):
    file, out = tmp_path / "own cells.py", tmp_path / "run"
    shutil.copy(FILE, file)
    show = cli_train.train_with_progress

    def interrupt(training):
        training.trainer.stop()  # as Ctrl-C does
        return show(training)

    monkeypatch.setattr(cli_train, "train_with_progress", interrupt)
    sets = ["--set", "text.limit=3000", "--set", "model.hidden_size=8", "--set", "model.cell=PeepholeLSTMCell"]
    cells = [part for name in ("MinimalGatedUnitCell", "PeepholeLSTMCell") for part in ("--cell", f"{file}:{name}")]
    code, _, err = program("train", "lm", "--data", "grammar", "--out", out, "--epochs", 9, *sets, *cells)
    assert code == 130, err
    command = err.partition("To resume: ")[2].strip()
    expected = ["weft", "train", "lm", "--out", str(out), "--cell", f"{file}:PeepholeLSTMCell", "--resume"]
    assert shlex.split(command) == expected
    assert program(*expected[1:])[0] == 130


FAULTY = """from weft.cells import Candidate, Cell, HiddenState

class NoBlocks(Cell):
    def step(self, x_proj, state):
        return HiddenState(x_proj), Candidate(x_proj)

class WrongStep(NoBlocks):
    blocks = 2
    def step(self, x_proj, state):
        a, b, c = x_proj.chunk(3, -1)
        return HiddenState(a * c), Candidate(b)

class OneSize(NoBlocks):
    blocks = 1
    def __init__(self, size):
        super().__init__(size, size)

class WrongInit(NoBlocks):
    blocks = 1
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.scale = self.missing
"""


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("NoBlocks", "NoBlocks: the class attribute `blocks` is missing"),
        ("OneSize", "the cell OneSize cannot be made: too many positional arguments"),
    ],
)
def test_a_cell_that_cannot_be_made_is_one_message(cell, message, program, tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY, encoding="utf-8")
    given = ["--cell", f"{tmp_path / 'faulty.py'}:{cell}"]
    code, _, err = program("train", "lm", "--data", "grammar", "--out", tmp_path / "run", *given)
    assert (code, "Traceback" in err) == (2, False)
    assert message in err


def test_a_cell_without_blocks_is_refused_in_python(tmp_path):
    class NoBlocks(weft.cells.Cell):
        step = PeepholeLSTMCell.step

    for task, data in (("lm", "grammar"), ("translate", "grammar-fr")):
        with pytest.raises(weft.WeftError, match=r"`blocks` is missing.*Try: class NoBlocks\(Cell\): blocks = 2"):
            weft.train(task, data, tmp_path / "run", {"model.cell": NoBlocks}, progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("cell", "line"), [("WrongStep", "line 11, in step"), ("WrongInit", "line 22, in __init__")])
def test_an_error_inside_a_custom_cell_is_said_to_be_there(cell, line, program, tmp_path):
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY, encoding="utf-8")
    sets = ["--set", "text.limit=3000", "--set", "model.hidden_size=16"]
    code, _, err = program(
        "train", "lm", "--data", "grammar", "--out", tmp_path / "run", *sets, "--cell", f"{file}:{cell}"
    )
    assert code == 2, err
    assert "Traceback" in err
    assert f"weft: this error is in the custom cell {cell} ({file}, {line}), and not in weft" in err
    assert "defect of weft" not in err


def test_an_unknown_cell_hints_at_the_option(program, tmp_path):
    sets = ["--set", "model.cell=CoupledPeepholeGRU"]
    code, _, err = program("train", "lm", "--data", "grammar", "--out", tmp_path / "run", *sets)
    assert code == 2
    assert "Try: for a cell of your own its class, on the command line --cell FILE.py:CoupledPeepholeGRU" in err


def test_every_command_that_loads_a_model_has_the_option():
    def commands(group):
        for name, command in group.commands.items():
            yield from commands(command) if hasattr(command, "commands") else [(name, command)]

    found = dict(commands(typer.main.get_command(app)))
    having = {name for name, command in found.items() if any("--cell" in option.opts for option in command.params)}
    assert set(found) - having == set(WITHOUT_CELLS)
    assert {"lm", "fill", "classify", "tag", "translate", "generate", "eval", "look", "compare"} <= having


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nothing.py:Cell", "nothing.py is not a Python file here"),
        (f"{FILE}", "expected FILE.py:CLASS"),
        (f"{FILE}:Peephole", "expected one of: PeepholeLSTMCell, MinimalGatedUnitCell"),
        (f"{FILE}:nn", "the cell 'nn' is not known"),
        ("BROKEN:Cell", "broken.py, line 2: ZeroDivisionError: division by zero"),
        ("SYNTAX:Cell", "syntax.py, line 1: SyntaxError"),
    ],
)
def test_a_wrong_cell_is_one_message(given, message, program, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("\n1 / 0\n", encoding="utf-8")
    Path("syntax.py").write_text("def f(:\n", encoding="utf-8")
    given = given.replace("BROKEN", "broken.py").replace("SYNTAX", "syntax.py")
    code, out, err = program("generate", run, "--cell", given)
    assert (code, out) == (2, "")
    assert message in err, err
    assert "Traceback" not in err


def test_in_python_a_class_stands_where_a_name_does(run):
    with pytest.raises(weft.WeftError, match=NEEDED + r".*`cells=\[PeepholeLSTMCell\]`"):
        weft.load(run)
    with pytest.raises(weft.WeftError, match=NEEDED):
        weft.resume_lm(run)
    with pytest.raises(weft.WeftError, match=NEEDED):
        weft.load(run, cells=[MinimalGatedUnitCell])
    with pytest.raises(weft.WeftError, match=NEEDED):
        weft.resume_lm(run, cells=[MinimalGatedUnitCell])
    with pytest.raises(weft.WeftError, match="subclasses of weft"):
        weft.load(run, cells=["PeepholeLSTMCell"])
    model = weft.load(run, weft.LmPredictor, cells=[PeepholeLSTMCell])
    assert isinstance(model.model.stack.layers[0].cell, PeepholeLSTMCell)
    assert model.generate("the", tokens=3)
    for resumed in (
        weft.resume_lm(run, {"model.cell": PeepholeLSTMCell}),
        weft.resume_lm(run, {"train.epochs": 1}, cells=[PeepholeLSTMCell]),
    ):
        assert resumed.trainer.end_reason() == "finished"
        resumed.lock.release()


def test_a_cell_added_to_the_table_is_recorded_by_its_class(tmp_path, monkeypatch, program):
    monkeypatch.setitem(CELLS, "mine", PeepholeLSTMCell)
    weft.train("lm", "grammar", tmp_path / "run", {**TINY, "model.cell": "mine"}, progress=False)
    monkeypatch.delitem(CELLS, "mine")
    with pytest.raises(weft.WeftError, match=NEEDED):
        weft.load(tmp_path / "run")
    assert program("generate", tmp_path / "run", "--tokens", 3, *PEEPHOLE)[0] == 0


def test_a_run_never_loads_code(run, tmp_path, monkeypatch):
    """Whatever a stranger's run names, it stays a name."""
    copy = tmp_path / "stranger"
    shutil.copytree(run, copy)
    content = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    for name in ("os:system", "examples.own_cell", str(FILE), "\x1b[31m"):
        content["config"]["model"]["cell"], content["custom_cells"] = name, {name: name}
        write_json(copy / "config.json", {key: content[key] for key in ("task", "config", "custom_cells")})
        monkeypatch.delitem(sys.modules, "examples.own_cell", raising=False)
        with pytest.raises(weft.WeftError, match="needs the cell") as refused:
            weft.load(copy)
        assert "\x1b" not in str(refused.value)
        assert "examples.own_cell" not in sys.modules


def test_resume(run, tmp_path):
    out = tmp_path / "run"
    straight = weft.train("lm", "grammar", tmp_path / "straight", {**TINY, "train.epochs": 3}, progress=False)
    weft.start_lm("grammar", out, {**TINY, "train.epochs": 3}).lock.release()
    saved = weft.open_run(str(out))
    assert (saved.path, saved.task, saved.config["train"]["epochs"]) == (out, "lm", 3)
    assert repr(saved) == f"Run(path={out!r}, task='lm')"
    assert saved.metrics() == []
    model = weft.resume(out, None, weft.LmPredictor, progress=False)
    for name, weight in model.model.state_dict().items():
        assert torch.equal(weight, straight.model.state_dict()[name])
    assert weft.resume(saved, progress=False).run.path == out  # it has ended: loaded as it is
    toml = tmp_path / "more.toml"
    toml.write_text("[train]\nepochs = 5\n", encoding="utf-8")
    steps = len(saved.metrics())
    for more in ({"train.epochs": 4}, str(toml), toml):
        weft.resume(out, more, progress=False)
    assert len(saved.metrics()) == steps + 2
    assert isinstance(weft.load(out, weft.LmPredictor), weft.LmPredictor)
    with pytest.raises(weft.WeftError, match=r"started with model\.hidden_size=8"):
        weft.resume(out, {"model.hidden_size": 9})
    with pytest.raises(weft.WeftError, match="loads as TagPredictor"):
        weft.resume(out, None, weft.TagPredictor, progress=False)
    with pytest.raises(weft.WeftError, match=NEEDED):
        weft.resume(run)
    assert weft.resume(run, cells=[PeepholeLSTMCell], progress=False).generate("a", tokens=2)


def test_device(run):
    assert weft.load(run, device="cpu", cells=[PeepholeLSTMCell])
    with pytest.raises(weft.WeftError, match=r"device is 'warp'.*`device=cpu`"):
        weft.load(run, device="warp", cells=[PeepholeLSTMCell])


def test_cells_of_one_name_are_refused():
    other = type("PeepholeLSTMCell", (PeepholeLSTMCell,), {})
    with (
        pytest.raises(weft.WeftError, match="two classes named PeepholeLSTMCell"),
        using_cells([PeepholeLSTMCell, other]),
    ):
        pass


def cell_of_factor(factor, barrier):
    """A class whose name others have, too. Its first instance waits for those of the other threads."""

    class OwnCell(Cell):
        blocks = 1
        has_met = False

        def __init__(self, *sizes, **options):
            super().__init__(*sizes, **options)
            if not OwnCell.has_met:
                OwnCell.has_met = True
                barrier.wait(timeout=60)

        def step(self, x_proj, state):
            h = torch.tanh(x_proj + factor * self.recur(state.h))
            return HiddenState(h), Candidate(h)

    return OwnCell


def test_threads_train_and_predict_with_different_cells_of_one_name(tmp_path):
    barrier = threading.Barrier(4)
    classes = [cell_of_factor(factor, barrier) for factor in (0.0, 0.5, -1.0, 2.0)]

    def train_and_predict(number):
        cell, out = classes[number], tmp_path / str(number)
        trained = weft.train("lm", "grammar", out, {**TINY, "model.cell": cell}, progress=False)
        loaded = weft.load(out, weft.LmPredictor, cells=[cell])
        for model in (trained, loaded):
            kinds = {type(part) for part in model.model.modules() if isinstance(part, Cell)}
            assert kinds == {cell}, number
        return loaded.evaluate("grammar").perplexity

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(train_and_predict, range(4)))
    assert custom_cells() == {}
    one_after_the_other = [
        weft.load(tmp_path / str(number), weft.LmPredictor, cells=[cell]).evaluate("grammar").perplexity
        for number, cell in enumerate(classes)
    ]
    assert found == one_after_the_other
    assert len(set(found)) == 4


def test_a_thread_knows_the_cells_of_the_context_that_it_is_given():
    with using_cells([PeepholeLSTMCell]), ThreadPoolExecutor(1) as pool:
        assert pool.submit(custom_cells).result() == {}
        assert pool.submit(copy_context().run, custom_cells).result() == {"PeepholeLSTMCell": PeepholeLSTMCell}
