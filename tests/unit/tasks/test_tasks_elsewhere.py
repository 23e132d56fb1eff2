"""Tasks of other packages: found by their entry points, imported when used, and never in the way of weft's own."""

from __future__ import annotations

import json
import re
import sys
import warnings

import pytest
from typer.testing import CliRunner

import weft
import weft.cli
from tests.elsewhere import forget, importable, write_package
from weft.errors import WeftError, WeftWarning
from weft.server.operations import served_operations
from weft.tasks import get_task
from weft.training.run import CONFIG, open_run, write_json


@pytest.fixture
def install(tmp_path):
    """Installs a package of one module: a function of its name, its entry points, and its code."""
    with importable(tmp_path, "first", "second", "other", "evil"):
        yield lambda package, points, code="": write_package(tmp_path, package, points, code)


def test_a_name_that_is_taken_is_reported_once_and_stops_nothing(install):
    install("first", {"lm": "first:TASK", "mix": "first:TASK", "own": "first:TASK"}, "raise SystemExit(3)")
    install("second", {"own": "second:TASK"})
    with pytest.warns(WeftWarning) as reported:
        assert type(get_task("lm")).__module__ == "weft.tasks.lm.task"
    messages = sorted(str(one.message) for one in reported)
    assert messages[0] == "the task 'lm' of the package 'first' is left out: weft has one of that name"
    assert messages[1] == "the task 'mix' of the package 'first' is left out: weft has one of that name"
    assert re.fullmatch(r"the task 'own' of the package '\w+' is left out: \w+ has one of that name", messages[2])
    assert len(messages) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_task("classify").name == "classify"
    assert "first" not in sys.modules


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_like_this", "cannot be imported (ModuleNotFoundError: No module named 'nothing_like_this')"),
        ("raise ValueError('one\\ntwo')", "cannot be imported (ValueError: one two)"),
        ("raise SystemExit(3)", "cannot be imported (SystemExit: 3)"),
        ("", "cannot be imported (AttributeError"),
        ("TASK = 3", "(other:TASK) is a int; expected an object of a subclass of Task, named 'own'"),
        ("from weft.tasks.lm.task import TASK", "(other:TASK) is a task named 'lm'; expected"),
    ],
)
def test_a_package_that_cannot_be_used_is_one_line(install, code, message):
    install("other", {"own": "other:TASK"}, code)
    assert get_task("lm").name == "lm"
    with pytest.raises(WeftError) as raised:
        get_task("own")
    assert str(raised.value).startswith("the task 'own' of the package 'other' ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_run_names_the_package_of_its_task(install, tmp_path):
    install("other", {"own": "other:TASK"}, OWN)
    text = weft.Corpus.from_texts("text", ["ab" * 300])
    weft.train("own", text, tmp_path / "run", progress=False)
    assert (open_run(tmp_path / "run").package, weft.load(tmp_path / "run").run.task) == ("other", "own")
    (tmp_path / "other-1.0.dist-info" / "entry_points.txt").unlink()
    forget()
    with pytest.raises(WeftError, match=r"of the task 'own', which the package 'other' has, as the run says; expected"):
        weft.load(tmp_path / "run")


def test_what_a_run_says_is_shown_and_nothing_else(install, tmp_path):
    """A stranger may have written it."""
    weft.train("ngram", weft.Corpus.from_texts("text", ["ab" * 300]), tmp_path / "run", progress=False)
    content = json.loads((tmp_path / "run" / CONFIG).read_text())
    for name in ("sha256", "format", "weft"):
        del content[name]
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    for package in ("evil", "\x1b[31mevil\n$ pip install evil", "x" * 300, 3):
        write_json(tmp_path / "run" / CONFIG, {**content, "task": "evil", "package": package})
        with pytest.raises(WeftError) as raised:
            weft.load(tmp_path / "run")
        assert len(str(raised.value)) < 500
        assert str(raised.value).isprintable()
    assert "evil" not in sys.modules


def test_commands_are_listed_by_name_and_made_when_called(install):
    install("other", {"own": "other:TASK"}, "print('imported')\n" + OWN)
    install("second", {"broken": "second:TASK"}, "raise ImportError('of something')")

    def output(*arguments):
        result = CliRunner().invoke(weft.cli.app, arguments)
        return result.output

    for arguments in (("--help",), ("train", "--help"), ("tune", "--help"), ("train", "lm", "--help")):
        assert "imported" not in output(*arguments)
    assert "Tasks of other packages, as weft train TASK --help: broken, own." in output("--help")
    assert "own        A task of the package other." in output("train", "--help")
    help = output("train", "own", "--help")
    assert "imported" in help
    assert "Commands of its runs: weft generate, weft eval." in help
    assert "--epochs" not in help
    assert "Search for good settings of a own model." in output("tune", "own", "--help")
    unknown = output("nothing")
    assert "weft: the task 'broken' of the package 'second' cannot be imported (ImportError: of something)" in unknown
    assert "No such command 'nothing'" in unknown


OWN = """
from weft.tasks.ngram.task import NgramTask

class OwnTask(NgramTask):
    name = "own"

TASK = OwnTask()
"""


SHOUTING = """
from typing import Annotated, NamedTuple
from weft.tasks.ngram.task import NgramTask
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.operation import OperationInputs, Option, operation


class Shout(NamedTuple):
    text: str

    def to_text(self, number):
        return f"{number}: {self.text}\\n"

    def to_json(self):
        return self._asdict()


class ShoutPredictor(LmPredictor):
    @operation("shout", OperationInputs("Texts."))
    def shout(self, texts, *, times: Annotated[int, Option("How often.", 1, 9)] = 1) -> list[Shout]:
        '''Shout each text.'''
        return [Shout(text.upper() * times) for text in texts]


class Own(NgramTask):
    name = "own"
    predictors = (ShoutPredictor,)

    def load(self, run):
        found = super().load(run)
        return ShoutPredictor(found.run, found.model, found.text_field)


TASK = Own()
"""


def test_an_operation_of_a_package_is_a_command(install, tmp_path):
    install("other", {"own": "other:TASK"}, SHOUTING)
    program, app = CliRunner(), weft.cli.make_app()
    weft.train("own", weft.Corpus.from_texts("text", ["ab" * 300]), tmp_path / "run", progress=False)
    run = str(tmp_path / "run")
    assert program.invoke(app, ["shout", run, "ab", "c", "--times", "2"]).stdout == "0: ABAB\n1: CC\n"
    assert json.loads(program.invoke(app, ["shout", run, "ab", "--json"]).stdout) == {"text": "AB"}
    assert program.invoke(app, ["shout", run, "ab", "--times", "10"]).exit_code == 2
    assert program.invoke(app, ["eval", run, "--json"]).exit_code == 0


def test_a_server_calls_an_operation_that_it_has_never_seen(install, tmp_path):
    install("other", {"own": "other:TASK"}, SHOUTING)
    weft.train("own", weft.Corpus.from_texts("text", ["ab" * 300]), tmp_path / "run", progress=False)
    predictor = weft.load(tmp_path / "run")
    served = served_operations(get_task("own"), predictor.run, predictor)
    assert list(served) == ["generate", "shout"]
    described = served["shout"].describe()
    assert (described["description"], described["input"]) == ("Shout each text.", {"type": "string"})
    assert described["options"]["properties"] == {
        "times": {"description": "How often.", "type": "integer", "default": 1, "minimum": 1, "maximum": 9}
    }
    options = served["shout"].read_options({"times": 3})
    assert served["shout"].predict(["ab"], options) == [{"text": "ABABAB"}]
    assert {"adapt", "until_end"} & set(served["generate"].describe()["options"]["properties"]) == set()
    for given in ({"times": "3"}, {"times": True}, {"times": 10}, {"tims": 1}):
        with pytest.raises(WeftError):
            served["shout"].read_options(given)
