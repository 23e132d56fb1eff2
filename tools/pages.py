"""Writes the tables and charts of the pages of results from the records of measurements.

    python -m tools.pages            writes them
    python -m tools.pages --check    reports what is not as the records have it, and changes nothing

In a page, "<!-- table: NAME -->" and "<!-- end -->" stand around a table of tools/tables.py; what is between them is
written anew. Charts are whole files below docs/pictures. Needs no history of git: records have their commits and dates.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.charts import CHARTS
from tools.records import ROOT
from tools.tables import TABLES

DOCS = ROOT / "docs"
MARK = re.compile(r"(<!-- table: (.*?) -->\n).*?(<!-- end -->)", flags=re.S)


def filled(text: str) -> str:
    """A page with its tables written anew."""
    return MARK.sub(lambda found: "\n".join([found[1], *TABLES[found[2]](), "", found[3]]), text)


def written() -> Iterator[tuple[Path, str]]:
    """The files that this program writes, and what they are to hold."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if MARK.search(text):
            yield path, filled(text)
    for name, draw in CHARTS.items():
        yield DOCS / "pictures" / name, draw()


def same(old: str, new: str) -> bool:
    """Whether two files are the same; coordinates of a chart may differ in the last digit, as logarithms do by CPU."""
    if not new.startswith("<svg"):
        return old == new
    before, after = (re.split(r"(\d+\.?\d*)", text) for text in (old, new))
    if before[::2] != after[::2]:
        return False
    return all(abs(float(a) - float(b)) < 0.15 for a, b in zip(before[1::2], after[1::2], strict=True))


def write_pages() -> None:
    """Writes what is not as the records have it."""
    for path, text in stale():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: written")


def stale() -> list[tuple[Path, str]]:
    """The files that are not as the records have them, and what they are to hold."""
    return [
        (path, text)
        for path, text in written()
        if not path.exists() or not same(path.read_text(encoding="utf-8"), text)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a file would change")
    if not parser.parse_args().check:
        write_pages()
    elif found := stale():
        sys.exit("\n".join(f"{path.relative_to(ROOT)}: is not as the records have it" for path, _ in found))


if __name__ == "__main__":
    main()
