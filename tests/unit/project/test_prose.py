"""The form of the pages: short lines, and a paragraph at the beginning that says what a reader gets."""

from __future__ import annotations

import re
from pathlib import Path

from tests.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LONG = {"docs/from-the-notes.zh.md"}  # Chinese has no spaces at which a line could end


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def long_lines(page: str) -> list[str]:
    """Lines of more than 120 characters outside of tables, links and code."""
    page = re.sub(r"^ *```.*?^ *```", "", page, flags=re.M | re.S)
    lines = [line for line in page.splitlines() if not line.startswith(("|", "    "))]
    return [line for line in lines if len(re.sub(r"\]\([^)]*\)|`[^`]*`", "", line)) > 120]


def test_lines_are_short() -> None:
    pages = [page for page in PAGES if name(page) not in LONG]
    lines = [f"{name(page)}: {line}" for page in pages for line in long_lines(page.read_text(encoding="utf-8"))]
    assert not lines, "\n".join(lines)


def test_long_lines_are_found() -> None:
    line = "word " * 30
    assert long_lines(line) == [line]
    assert not long_lines(f"| {line} |\n\n    {line}\n\n```text\n{line}\n```\n\n[a]({'x' * 130}) `{line}`")


def beginning(page: str) -> tuple[str, str]:
    """The title and the first paragraph."""
    text = re.sub(r"\A---\n.*?^---\n", "", page, flags=re.M | re.S)
    title, first, *_ = [part.strip() for part in text.split("\n\n") if part.strip()]
    return title, first


def test_a_page_begins_with_what_it_is_for() -> None:
    pages = {page: beginning(page.read_text("utf-8")) for page in PAGES if re.match("docs/(?!lab/)", name(page))}
    wrong = [
        f"{name(page)}: {title}: {first}"
        for page, (title, first) in pages.items()
        if not title.startswith("# ") or not re.match(r"[\w`*>\[]", first)
    ]
    assert not wrong, "\n".join(wrong)
    assert beginning("---\nhide: toc\n---\n\n# Title\n\n- a list\n") == ("# Title", "- a list")
