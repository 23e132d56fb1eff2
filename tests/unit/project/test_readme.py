"""Both READMEs: short, with the same commands and figures, figures from the records, and one description everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean

import pytest

import weft
from tests.paths import ROOT
from tools.dist import installations
from tools.tables import (
    MASE,
    best_of_others,
    best_peer,
    cpu_minutes,
    exact,
    minutes,
    of_row,
    of_series,
    peer_name,
    shown,
)
from weft.cli import app

README, CHINESE = (ROOT / name for name in ("README.md", "README.zh-CN.md"))
ROWS = {  # what the tables call a row of the records
    "English Web Treebank": "tag/en_ewt",
    "WNUT 17": "tag/wnut17",
    "GSD": "tag/zh_gsdsimp",
    "SST-2": "cls/sst2",
    "IMDB": "cls/imdb-subset",
    "Tourism": "series/tourism-monthly",
    "tiny Shakespeare": "lm/tinyshakespeare",
    "tatoeba.org": "mt/fra-eng, 4 min",
}
NUMBER = re.compile(r"(?<![A-Za-z\d.,])\d+(?:\.\d+)?(?!,?\d)")


def text(path: str | Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def table(page: str) -> list[list[str]]:
    """The cells of the rows of the table of results."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    return [row for row in rows if len(row) == 4][2:]


def test_one_description() -> None:
    """The package, the program, its page, the site and the README begin with the same words, in each language."""
    description = re.search(r'^description = "(.*)"', text("pyproject.toml"), re.M)[1]
    assert text("README.md").startswith(f"# weft\n\n**{description}** weft trains models that\n")
    assert text("docs/index.md").startswith(f"# weft\n\n{description} ")
    assert f"site_description: {description}\n" in text("mkdocs.yml")
    assert weft.__doc__.startswith(f"weft: {description}\n")
    assert app.info.help == description
    title = re.search("<title>weft: (.*)</title>", text("src/weft/server/page/index.html"))[1]
    assert title == description[0].lower() + description[1:].rstrip(".")
    chinese = re.search(r"^\*\*(.*?)\*\*", text("README.zh-CN.md"), re.M)[1]
    assert text("docs/index.zh.md").startswith(f"# weft\n\n{chinese}[English]")


@pytest.mark.parametrize("readme", [README, CHINESE], ids=lambda path: path.name)
def test_it_is_short(readme: Path) -> None:
    assert len(text(readme).splitlines()) <= 110


def test_both_have_the_same_commands_and_pages() -> None:
    for pattern in (r"^    (make \w+)", r"\]\(([\w/.#-]+)\)"):
        english, chinese = (set(re.findall(pattern, text(page), re.M)) for page in (README, CHINESE))
        there = {"docs/index.md", "README.md", "README.zh-CN.md"}
        assert {page.replace(".zh.md", ".md") for page in chinese} - there == english - there, pattern
    assert installations(text(README)) == installations(text(CHINESE).replace("## 安装", "## Install"))
    assert len(installations(text(README))) == 4


@pytest.mark.parametrize("readme", [README, CHINESE], ids=lambda path: path.name)
def test_figures_are_those_of_the_records(readme: Path) -> None:
    rows = table(text(readme))
    assert len(rows) == len(ROWS)
    for row, (name, key) in zip(rows, ROWS.items(), strict=True):
        assert name in row[0]
        if key.startswith("series/"):
            name_of_set = key.partition("/")[2]
            ours, theirs = of_series(name_of_set, "auto"), best_of_others(name_of_set)
            figures = [NUMBER.findall(cell) for cell in row[1:]]
            found = [
                [shown(mean(one["mase"] for one in ours), MASE)],
                [minutes(mean(one["seconds"] for one in ours) / 60)],
            ]
            assert figures == [*found, [shown(theirs["mase"], MASE), minutes(theirs["seconds"] / 60)]]
            assert peer_name(theirs) in row[3]
            continue
        records, best = of_row(key), best_peer(key)
        metric = records[0]["metric"]
        scores = [mean(exact(record) for record in records)]
        if key.startswith("cls/"):  # a mixture: the network alone stands beside it
            scores.append(mean(record["metrics"]["network alone"] for record in records))
        figures = [NUMBER.findall(cell) for cell in row[1:]]
        assert figures[0] == [shown(score, metric) for score in scores], name
        assert figures[1] == [minutes(cpu_minutes(records))], name
        assert figures[2] == [shown(best["score"], metric), minutes(best["seconds"] / 60)], name
