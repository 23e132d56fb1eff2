"""Lists the figures of the old pages of results that stand nowhere now: nothing that was measured is lost.

    python -m tools.lost_figures        those without an explanation; exit code 1 if there are some
    python -m tools.lost_figures --all  the explained ones, too

The old pages are those of OLD, the last commit at which results were written by hand, so this needs the history of git.
The figures of a row of a table have to stand together: in a line or a paragraph of the pages that took the place of the
old ones or of docs/lab, or in a part of a record. The figures of sentences, which are rewritten, have to stand in one
of these. tools/lost_figures.txt explains the others: a reason, a colon, and figures.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from tools.records import PEERS, RECORDS, ROOT, TASKS

OLD = "a421a4c"
PAGES = ("results", "benchmarks", "benchmarks-chains", "growth", "inference", "peers")
EXPLAINED = ROOT / "tools" / "lost_figures.txt"
FIGURE = re.compile(r"(?<![\w.])(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?!\w|\.\d|,\d{3})")


class Lost(NamedTuple):
    """A figure that stands nowhere, and the line in which it stood."""

    figure: Decimal
    line: str


def figures(text: str) -> Counter[Decimal]:
    """How often each figure stands in a text; 1,000 and 1000, .5 and 0.50 are the same."""
    return Counter(Decimal(found.replace(",", "")).normalize() for found in FIGURE.findall(text))


def old_text() -> str | None:
    """The old pages as one text; None without the history of git."""
    texts = []
    for page in PAGES:
        shown = subprocess.run(
            ["git", "show", f"{OLD}:docs/{page}.md"], capture_output=True, text=True, cwd=ROOT, check=False
        )
        if shown.returncode:
            return None
        texts.append(shown.stdout)
    return "\n".join(texts)


def places() -> Iterator[Counter[Decimal]]:
    """The figures of each line and paragraph of the new pages, and of each part of the records."""
    for path in [*(ROOT / "docs" / f"{page}.md" for page in PAGES), *(ROOT / "docs" / "lab").glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        paragraphs = (part for part in text.split("\n\n") if not part.startswith("|"))
        yield from (figures(part) for part in (*text.splitlines(), *paragraphs))
    for path in [TASKS, PEERS, *RECORDS.glob("*.json")]:
        yield from parts(json.loads(path.read_text(encoding="utf-8")))


def parts(record: Any) -> Iterator[Counter[Decimal]]:
    """The figures of each object of a record that is about as large as a row, with those of the objects inside it."""
    if isinstance(record, dict) and len(text := json.dumps(record)) < 2000:
        yield figures(text)
    for inside in record.values() if isinstance(record, dict) else record if isinstance(record, list) else ():
        yield from parts(inside)


def lost(old: str, new: list[Counter[Decimal]]) -> list[Lost]:
    """The figures of the old text that do not stand any more."""
    anywhere = {figure for place in new for figure in place}
    found = []
    for line in old.splitlines():
        here = figures(line)
        missing = [figure for figure in here if figure not in anywhere]
        if line.startswith("|") and not missing:
            missing = min(
                ([figure for figure, count in here.items() if place[figure] < count] for place in new), key=len
            )
        found += [Lost(figure, line) for figure in missing]
    return found


def explained() -> dict[Decimal, str]:
    """Figures with the reason why they stand nowhere."""
    found = {}
    for line in EXPLAINED.read_text(encoding="utf-8").splitlines():
        reason, _, listed = line.rpartition(":")
        found |= dict.fromkeys(figures(listed), reason) if not line.startswith("#") else {}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="list explained figures, too")
    everything = parser.parse_args().all
    text = old_text()
    if text is None:
        sys.exit(f"commit {OLD} is not in this clone: fetch the whole history")
    reasons = explained()
    missing = lost(text, list(places()))
    unexplained = [one for one in missing if one.figure not in reasons]
    for figure, line in missing if everything else unexplained:
        print(f"{figure:f} ({reasons.get(figure, 'NOT EXPLAINED')}): {line[:150]}")
    print(f"{len(missing)} figures of the old pages stand nowhere now; {len(unexplained)} of them are not explained")
    if unexplained:
        sys.exit(1)


if __name__ == "__main__":
    main()
