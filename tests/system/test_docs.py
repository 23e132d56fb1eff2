"""Every Python example in the README and the docs runs, in order, and the page of commands is current."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.name)
def test_examples_run(page, tmp_path):
    (tmp_path / "my.txt").write_text("It was the best of times, it was the worst of times.\n" * 100, encoding="utf-8")
    script = "\n".join(python_blocks(page))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr


def test_the_page_of_commands_is_current():
    made = runpy.run_path(str(ROOT / "docs" / "cli.py"))["page"]()
    assert made == (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), "run `python docs/cli.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
        assert (page.parent / target).exists(), target
