"""The three ways of docs/architecture.md against real calls: every file that is entered is listed, and none besides."""

from __future__ import annotations

import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import weft.cli
from tests.paths import ROOT
from tests.serving import RECIPES, TEXT, train_runs

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PARTS = ("cli", "tasks", "data", "training", "decoding", "probes", "server")
MOST_HOPS = 15
FILES = re.compile(rf"`((?:{'|'.join(PARTS)})/[\w/]+\.py)`")
SMALL = ["--epochs", "2", "--precision", "float32"]
for _setting in ("model.hidden_size=8", "model.embedding_dim=4", "batch.size=4", "model.ngram_order=0"):
    SMALL += ["--set", _setting]


def listed(title):
    """The hops of a way: the files that each names, the one that the hop is about first."""
    section = re.search(rf"^### {title}\n(.*?)(?=^##)", PAGE, flags=re.M | re.S)[1]
    return [FILES.findall(hop) for hop in re.findall(r"^\d+\. (.*?)(?=^\d+\. |\Z)", section, flags=re.M | re.S)]


class Trace:
    """Notes the modules whose functions are called, in this thread and in those that begin from now on."""

    def __init__(self):
        self.entered, self.noting = set(), False

    def __call__(self, frame, event, argument):
        if self.noting and event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_globals.get("__name__", "").split(".")
            if name[0] == "weft" and len(name) > 1 and name[1] in PARTS:
                file = Path(frame.f_globals["__file__"])
                self.entered.add("/".join([*name[1:], "__init__.py"] if file.stem == "__init__" else name[1:]))

    @contextmanager
    def on(self):
        sys.setprofile(self)
        threading.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def of(self, call):
        """The files that a call enters; the call has been made before, so that nothing is imported."""
        call()
        with self.on():
            self.noting = True
            call()
            self.noting = False
        return {name if name.endswith(".py") else f"{name}.py" for name in self.entered}


def check(title, entered):
    hops = listed(title)
    named = [file for hop in hops for file in hop]
    assert 1 < len(hops) <= MOST_HOPS, "too many hops"
    assert all(hops), "a hop names no file"
    assert sorted(entered - set(named)) == [], "these are entered and not listed"
    assert sorted(set(named) - entered) == [], "these are listed and not entered"
    assert len(named) == len(set(named)), "a file is listed twice"


def command(*arguments):
    done = CliRunner().invoke(weft.cli.app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("ways")
    (found / "text.txt").write_text(TEXT)
    return found


def test_train(folder):
    runs = iter((folder / "first", folder / "second"))
    entered = Trace().of(lambda: command("train", "lm", "--data", folder / "text.txt", "--out", next(runs), *SMALL))
    check("Training", entered)


def test_look(folder):
    run = folder / "look"
    command("train", "lm", "--data", folder / "text.txt", "--out", run, *SMALL)
    check("A look inside", Trace().of(lambda: command("look", run, "the cat", "--show", "gates")))


def test_request(folder):
    testclient = pytest.importorskip("starlette.testclient")
    from weft.server.app import Server
    from weft.server.config import ServerConfig

    runs = train_runs(folder, {"sentiment": RECIPES["sentiment"].changed({"train.epochs": 1})})
    trace = Trace()
    with trace.on():  # the threads of the server begin here
        server = Server(runs, ServerConfig())
        with testclient.TestClient(server.app, base_url="http://127.0.0.1") as client:

            def ask():
                assert client.post("/weft/predict/sentiment", json={"texts": ["a good film"]}).status_code == 200

            entered = trace.of(ask)
    check("A request", entered)
