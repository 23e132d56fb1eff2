"""The form of the pages: short lines, and a paragraph at the beginning that says what a reader gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LONG = {"docs/from-the-notes.zh.md"}  # Chinese has no spaces at which a line could end


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def long_lines(page: str) -> list[str]:
    """Lines of more than 120 characters outside of tables, links and code."""
    page = re.sub(r"^ *```.*?^ *```", "", page, flags=re.M | re.S)
    lines = [line for line in page.splitlines() if not line.startswith(("|", "    "))]
    return [line for line in lines if len(re.sub(r"\]\([^)]*\)|`[^`]*`", "", line)) > 120]


@pytest.mark.parametrize("page", [page for page in PAGES if name(page) not in LONG], ids=name)
def test_lines_are_short(page: Path) -> None:
    assert not long_lines(page.read_text(encoding="utf-8"))


def test_long_lines_are_found() -> None:
    line = "word " * 30
    assert long_lines(line) == [line]
    assert not long_lines(f"| {line} |\n\n    {line}\n\n```text\n{line}\n```\n\n[a]({'x' * 130}) `{line}`")


@pytest.mark.parametrize("page", [page for page in PAGES if re.match("docs/(?!lab/)", name(page))], ids=name)
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    text = re.sub(r"\A---\n.*?^---\n", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    title, first, *_ = [part for part in text.split("\n\n") if part.strip()]
    assert title.strip().startswith("# ")
    assert re.match(r"[\w`*>\[]", first), first
