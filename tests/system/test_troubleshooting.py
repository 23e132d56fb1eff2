"""The page on troubleshooting shows what the program prints: its commands run, on data as a reader might have them."""

from __future__ import annotations

import random
import re
import shlex
import shutil

import pytest

from tests.pages import same
from tests.paths import ROOT
from tests.program import succeeds, weft

PAGE = ROOT / "docs" / "troubleshooting.md"
SMALL = ("--set", "model.hidden_size=16", "--set", "model.embedding_dim=16", "--epochs", "1")
BLOCKS = re.findall(
    r"^```console\n\$ weft ((?:[^\n]*\\\n)*[^\n]*)\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.M | re.S
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files and runs that the page names."""
    folder = tmp_path_factory.mktemp("troubleshooting")
    draw = random.Random(1)
    kinds = [("i hated it", "1"), ("a fine film", "5")]
    rows = [(f"{kinds[i % 2][0]} {i}", kinds[i % 2][1], draw.choice(["Rome", "Oslo"])) for i in range(200)]
    table = "".join(f'{i},"{text}",{stars},{city}\n' for i, (text, stars, city) in enumerate(rows))
    (folder / "reviews.csv").write_text("id,review,stars,city\n" + table)
    (folder / "test.tsv").write_text("negative\ti hated it\npositive\ta fine film\n" * 10)
    prose = (f"{chr(65 + i % 26)}{i} was the best of times, it was the worst of times.\n" for i in range(100))
    (folder / "my.txt").write_text("It was the age of wisdom.\n" + "".join(prose))
    (folder / "latin.txt").write_bytes("Caf\xe9 au lait. ".encode("latin-1") * 200)
    succeeds("train", "lm", "--data", "my.txt", "--out", "runs/small", *SMALL, cwd=folder)
    shutil.copytree(folder / "runs" / "small", folder / "runs" / "mine")
    table = ("--data", "reviews.csv", "--set", "model.wide=false")
    succeeds("train", "classify", *table, "--out", "runs/stars", *SMALL, cwd=folder)
    return folder


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command[:40] for command, _ in BLOCKS])
def test_it_prints_what_the_page_shows(folder, command, shown):
    command = command.replace("\\\n", "").replace("runs/new", f"runs/{abs(hash(command))}")
    quick = []  # and so the same message sooner
    if command.startswith("train") and "hidden_size" not in command:
        quick = [*SMALL[:4], *(["--set", "model.wide=false"] if "classify" in command else [])]
    done = weft(*shlex.split(command), *quick, cwd=folder)
    refused = "weft: " in shown and not shown.endswith("\n...\n")
    assert done.returncode == (2 if refused else 0), done.stderr
    printed = re.sub(r"runs/\d{9,}", "runs/new", done.stderr + done.stdout)
    assert same(" ".join(shown.split()), " ".join(printed.split())), printed


def test_every_entry_has_a_cause_and_a_way_out():
    entries = re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.M)[1:]
    assert len(entries) >= 20
    for entry in entries:
        assert "- **Cause.** " in entry, entry
        assert "- **Way out.** " in entry, entry
