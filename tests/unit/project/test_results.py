"""The pages of results are as the records have them, and nothing that was measured is lost."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from statistics import mean

import pytest

from tests.paths import ROOT
from tools import lost_figures, pages, records, tables
from tools.charts import CHARTS

DOCS = ROOT / "docs"
LAB = sorted((DOCS / "lab").glob("*.md"))
TRAININGS = json.loads(records.TASKS.read_text(encoding="utf-8"))
PEERS = json.loads(records.PEERS.read_text(encoding="utf-8"))


def prose(page: str) -> str:
    """A page without its front matter, tables, code and marks."""
    page = re.sub(r"\A---\n.*?\n---\n", "", page, flags=re.S)
    lines = [line for line in page.splitlines() if not line.startswith(("|", "    ", "<!--", "!["))]
    return "\n".join(lines)


def test_tables_and_charts_are_as_the_records_have_them():
    stale = [path.relative_to(ROOT) for path, _ in pages.stale()]
    assert not stale, "run `python -m tools.pages`"


def test_every_table_stands_on_a_page():
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    assert set(re.findall(r"<!-- table: (.*?) -->", text)) == set(tables.TABLES)


def test_a_changed_figure_is_noticed():
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    assert pages.filled(page) == page
    changed = page.replace("**84.0**", "**94.0**")
    assert changed != page
    assert pages.filled(changed) == page
    chart = CHARTS["results-translation.svg"]()
    assert pages.same(chart, chart)
    assert not pages.same(chart, chart.replace("BLEU", "chrF"))
    assert not pages.same(chart, re.sub(r'cx="(\d+)', lambda found: f'cx="{int(found[1]) + 3}', chart))


def test_scores_of_the_page_are_means_of_the_records():
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    found = 0
    for line in page.splitlines():
        command = re.search(r'`make results ROW="?([^`"]+)"?` \|$', line)
        if command:
            scores = [one["score"] for one in TRAININGS if one["row"] == command[1]]
            shown = [float(score) for score in re.findall(r"\*\*([\d.]+)\*\*", line)]
            percent = 100 if command[1].startswith(("cls/", "tag/")) else 1
            assert any(abs(score - percent * mean(scores)) < 0.06 for score in shown), line
            found += 1
    assert found >= 20


def test_results_are_short_and_have_no_goals():
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    assert len(prose(page).split()) <= 1500
    assert "not reached" not in page
    assert not re.search(r"\bgoals?\b", page)
    for heading in ("Language models", "Classification", "Tagging", "Forecasts", "Translation", "Speed", "Inference"):
        section = page.partition(f"## {heading}")[2].partition("\n## ")[0]
        assert "here others are ahead" in " ".join(section.split()), heading


def test_pages_of_the_lab():
    assert len(LAB) > 20
    listed = (DOCS / "lab" / "index.md").read_text(encoding="utf-8")
    wrong = [f"{path.name}: {mistake}" for path in LAB for mistake in mistakes_of_the_lab(path, listed)]
    assert not wrong, "\n".join(wrong)


def mistakes_of_the_lab(path, listed):
    text = path.read_text(encoding="utf-8")
    conclusion = " ".join(text.partition("**Conclusion.** ")[2].split())
    sentences = len(re.findall(r"[.!?](?= |$)", conclusion))
    checks = {"is found by the search": text.startswith("---\nsearch:\n  exclude: true\n---\n\n# ")}
    if path.stem not in ("index", "measurements", "cells-compared"):  # the list; tables and the method of other pages
        checks |= {
            "is not in the list": f"]({path.name})" in listed,
            "has no date and commit": re.search(r"\n\n2026-\d\d-\d\d.*, commits? ([0-9a-f]{7}|in)", text),
            "has no question": "\n**Question.** " in text,
            "has no table": "\n| " in text,
            f"has a conclusion of {sentences} sentences, not three": sentences == 3,
        }
    return [mistake for mistake, fine in checks.items() if not fine]


def test_records_say_where_they_come_from():
    every = [*TRAININGS, *(one for found in PEERS.values() for one in found)]
    other_forms = {records.TASKS, records.PEERS, records.RECORDS / "cells-compared.json"}
    for path in {*records.RECORDS.glob("*.json")} - other_forms:
        record = json.loads(path.read_text(encoding="utf-8"))
        parts = record if isinstance(record, list) else [record]
        assert all("command" in one for one in parts), path
        every += [part for one in parts for part in (one, *one.values()) if isinstance(part, dict) and "commit" in part]
    assert len(every) > 80
    for one in every:
        assert re.fullmatch(r"[0-9a-f]{7}", one["commit"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", one["date"])
        assert one["depends"]


CODE = '''
SIZE = 3


def helper():  # of two functions
    return SIZE


def outer(name):
    """What it measures."""

    def run(x):
        return f"{helper()}{x}"

    return run


def other():
    return SIZE + 1
'''


@pytest.mark.parametrize(
    ("change", "name", "same"),
    [
        (("# of two functions", "# of three"), "outer", True),
        (('"""What it measures."""', '"""Something else."""'), "outer", True),
        (("SIZE = 3", "SIZE = 4"), "outer", False),
        (("return SIZE\n", "return 2 * SIZE\n"), "outer.run", False),
        (("return run", "return [run]"), "outer", False),
        (("return run", "return [run]"), "outer.run", True),
        (("SIZE + 1", "SIZE + 2"), "outer", True),
        (("SIZE + 1", "SIZE + 2"), "other", False),
        (("def other", "def another"), "other", False),
    ],
)
def test_a_digest_is_that_of_the_code_that_measures(change, name, same):
    before = records.digest(f"a.py::{name}", lambda path: CODE)
    after = records.digest(f"a.py::{name}", lambda path: CODE.replace(*change))
    assert before is not None
    assert (before == after) is same


def test_weights_agree_where_both_have_the_machine():
    part = f"{records.WEIGHTS}::lm"
    old = records.digest(part, lambda path: '{"a": {"lm": "1", "tag": "2"}, "b": {"lm": "3"}}')
    assert old == {"a": "1", "b": "3"}
    assert records.same(old, {"a": "1", "c": "9"})
    assert not records.same(old, {"a": "1", "b": "4"})
    assert not records.same(old, {"c": "9"})
    assert records.digest(part, lambda path: None) is None
    assert not records.same(None, old)


def test_an_outdated_row_is_marked():
    record = {"commit": "0123456", "date": "2026-01-02", "depends": {"tests/conftest.py::nothing": "0" * 16}}
    assert records.changed(record) == ["tests/conftest.py::nothing"]
    assert tables.measured([record]) == "2026-01-02, 0123456 **outdated**"
    current = {**record, "depends": {"tools/pages.py": records.digest("tools/pages.py")}}
    assert tables.measured([current, {**current, "date": "2026-01-03"}]) == "2026-01-03, 0123456"


def test_what_a_row_depends_on_is_there():
    rows = {one["row"] for one in TRAININGS}
    for row in rows:
        for part in records.parts_of_row(row):
            assert records.digest(part), (row, part)
    for row in PEERS:
        assert all(records.digest(part) for part in records.parts_of_peers(row))


def test_charts_follow_light_and_dark_and_have_words():
    for name, draw in CHARTS.items():
        text = draw()
        ElementTree.fromstring(text)
        assert "prefers-color-scheme:dark" in text, name
        assert "<title>" in text


def test_labels_of_a_chart_do_not_overlap():
    from tools.charts import apart

    moved = apart([(0, 50, 10.0), (0, 50, 12.0), (0, 50, 40.0), (80, 20, 11.0)])
    assert moved[1] - moved[0] == pytest.approx(13)
    assert moved[2:] == [40.0, 11.0]
    assert apart([(0, 50, 10.0)], dots=[(20, 8.0), (90, 8.0)]) == [18.0]


def test_lost_figures_are_found():
    new = [lost_figures.figures("| a | 1,234 | 5.60 |"), lost_figures.figures("| b | 7.8 |")]
    assert not lost_figures.lost("| a | 1234 | 5.6 |", new)
    assert [one.figure for one in lost_figures.lost("| c | 5.6 | 7.8 |", new)] == [lost_figures.Decimal("7.8")]
    assert not lost_figures.lost("it has 5.6 and 7.8", new)
    assert len(lost_figures.lost("it has 9.1", new)) == 1
    assert lost_figures.figures("H256, commit 395e3b9, v1.2.3, .5 and 10,000") == lost_figures.figures("0.50 10000")


def test_no_figure_of_the_old_pages_is_lost():
    text = lost_figures.old_text()
    if text is None:
        pytest.skip(f"commit {lost_figures.OLD} is not in this clone")
    reasons = lost_figures.explained()
    missing = lost_figures.lost(text, list(lost_figures.places()))
    assert not [one for one in missing if one.figure not in reasons]
