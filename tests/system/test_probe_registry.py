"""The registry of probes: a probe of one file is known to the command line, the server and the docs."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import weft.probes
from tests.paths import ROOT
from tests.serving import CORPUS, Recipe, served, train_runs
from weft import probes
from weft.cli import make_app
from weft.probes.registry import all_probes
from weft.server.look import supported

SMALL = {"model.hidden_size": 8, "model.embedding_dim": 8, "train.epochs": 1, "batch.size": 8}
ADDED = '''
"""Which tokens have vowels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from weft.pictures import ColouredText
from weft.probes.parts import get_network
from weft.probes.registry import Probe
from weft.probes.result import Array, ProbeResult
from weft.tasks.operation import Option


@dataclass(frozen=True, eq=False)
class VowelCounts(ProbeResult):
    probe = "vowels"

    tokens: tuple[str, ...]
    counts: Array

    def records(self):
        for token, count in zip(self.tokens, self.counts.tolist(), strict=True):
            yield {"token": token, "vowels": count}

    def figures(self):
        return [ColouredText("Vowels", self.tokens, self.counts, "vowels")]


def vowels(model, text: str, *, letters: Annotated[str, Option("Which letters count.")] = "aeiou") -> VowelCounts:
    tokens = get_network(model, text).steps
    return VowelCounts(tokens, np.array([float(sum(letter in letters for letter in token)) for token in tokens]))


PROBE = Probe("vowels", "how many vowels each token has", "network", vowels)
'''


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("registry"), {"lm": Recipe("lm", CORPUS, SMALL)})


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The folder of a probe that is added as one file, in this process and in those that it starts."""
    folder, start = tmp_path / "probes", tmp_path / "start"
    folder.mkdir()
    start.mkdir()
    (folder / "vowels.py").write_text(ADDED, encoding="utf-8")
    line = f"import weft.probes; weft.probes.__path__.append({str(folder)!r})\n"
    (start / "sitecustomize.py").write_text(line, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(start), os.environ.get("PYTHONPATH", "")]))
    weft.probes.__path__.append(str(folder))
    all_probes.cache_clear()
    yield folder
    weft.probes.__path__.remove(str(folder))
    sys.modules.pop("weft.probes.vowels", None)
    all_probes.cache_clear()


def test_a_probe_is_one_file(added, runs):
    app = make_app()
    text = CliRunner().invoke(app, ["look", "--help"]).output
    assert "confusion, vowels." in " ".join(text.split())
    assert "(vowels) Which letters count. [default: aeiou]" in " ".join(text.split())
    done = CliRunner().invoke(app, ["look", str(runs["lm"]), "the cat", "--show", "vowels", "--letters", "a"])
    assert done.stdout.startswith("# Vowels\nt\t0\n"), done.output
    assert "| `vowels` | how many vowels each token has | `--letters` | lm, fill," in tool("page")()
    with served(runs["lm"]) as server:
        (model,) = server.ask("/weft/models").body["models"]
        assert model["probes"][-1] == "vowels"
        found = server.ask("/weft/look/lm/vowels", {"text": "the cat", "options": {"letters": "ac"}})
        assert found.body == [{"probe": "vowels", "tokens": list("the cat"), "counts": [0, 0, 0, 0, 1, 1, 0]}]
        wrong = server.ask("/weft/look/lm/vowels", {"text": "the cat", "options": {"letters": 3}})
        assert wrong.body["error"]["message"].startswith("options.letters is 3; expected a string")


def test_the_page_has_an_added_probe(added, runs):
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    chromium = shutil.which("chromium") or pytest.skip("chromium is not installed: apt-get install chromium")
    with served(runs["lm"]) as server, driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{server.address}/#/look?text=the cat")
        page.get_by_label("Show").select_option("vowels")
        page.get_by_role("heading", name="Vowels").wait_for()
        page.get_by_label("letters").fill("t")
        page.locator('.token[title="t: 1"]').first.wait_for()
        browser.close()


def tool(name):
    return runpy.run_path(str(ROOT / "tools" / "probe_manifest.py"))[name]


def test_what_is_made_of_the_registry_is_current():
    for made, path in (("manifest", tool("MANIFEST")), ("page", tool("PAGE"))):
        assert tool(made)() == path.read_text(encoding="utf-8"), "run `python tools/probe_manifest.py`"


def test_help_imports_no_torch():
    script = (
        "import sys\nfrom weft.cli import app\n"
        "try: app(['look', '--help'])\nexcept SystemExit: pass\n"
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600)
    assert "--layer" in done.stdout
    assert done.stdout.endswith("set()\n")


def test_a_part_that_fails_breaks_no_other_probe(runs, monkeypatch):
    model, names = weft.load(runs["lm"]), supported(weft.load(runs["lm"]), "the cat")

    def fail(*given):
        raise RuntimeError("no network")

    monkeypatch.setattr("weft.tasks.lm.inspection.Network", fail)
    with pytest.raises(RuntimeError, match="no network"):
        probes.activations(model, "the cat")
    assert len(probes.surprisal(model, "the cat").steps) == 7
    assert supported(model, "the cat") == names


def test_a_notebook_shows_the_figures_of_a_result(runs):
    shown = probes.surprisal(weft.load(runs["lm"]), "the cat")._repr_html_()
    assert shown.count("<svg") == 1
    assert probes.ProbeBatch((), ())._repr_html_() is None
