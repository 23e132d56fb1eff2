"""Every Python example in the README and the docs runs, in order, and the page of commands is current."""

from __future__ import annotations

import re

import pytest

import weft
import weft.nn
import weft.probes
from tests.pages import examples, run, same
from tests.paths import ROOT
from tests.program import as_a_process, run_script
from tools import data_flow
from tools.check_run import check_run
from tools.reference_pages import PAGES as REFERENCE_PAGES
from weft.tasks import TASKS
from weft.training.run import open_run

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SERVE = ROOT / "docs" / "serve.md"  # its examples need a server: tests/system/test_serve.py
NOTES, NOTES_ZH = ROOT / "docs" / "from-the-notes.md", ROOT / "docs" / "from-the-notes.zh.md"  # one program, two texts


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if python_blocks(page) and page not in (NOTES, NOTES_ZH, SERVE)],
    ids=lambda page: page.name,
)
def test_examples_run(page, tmp_path):
    (tmp_path / "my.txt").write_text("It was the best of times, it was the worst of times.\n" * 100, encoding="utf-8")
    script = "\n".join(python_blocks(page))
    run_script(script, cwd=tmp_path)


def test_notes_print_what_the_page_shows(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with as_a_process(tmp_path):
        results = run(NOTES.read_text(encoding="utf-8"))
    wrong = [(one.code, one.shown, text) for one, text in results if one.span and not same(one.shown, text)]
    assert not wrong, "{0}prints\n\n{2}\nand the page shows\n\n{1}".format(*wrong[0])


def test_the_chinese_notes_page_has_the_same_examples():
    blocks = [
        [(one.language, one.code, one.shown) for one in examples(page.read_text(encoding="utf-8"))]
        for page in (NOTES, NOTES_ZH)
    ]
    assert blocks[0] == blocks[1]


@pytest.mark.parametrize(
    ("shown", "printed", "agree"),
    [
        ("loss 1.25\n", "loss 1.26", True),
        ("loss 1.25", "loss 1.27", False),
        ("loss 1.25", "loss 1.250", False),
        ("done after ...\n3 tokens", "done after 12 s\n3 tokens", True),
        ("done after ...\n3 tokens", "done after 12 s\n4 tokens", False),
        ("True", "False", False),
    ],
)
def test_pages_compare_what_is_printed(shown, printed, agree):
    assert same(shown, printed) is agree


def test_pages_that_are_made_with_the_site_have_all_names():
    pages = {name: make() for name, make in REFERENCE_PAGES.items()}
    for name in TASKS:
        assert f"\n## weft train {name}\n" in pages["cli.md"]
        assert f"\n## weft train {name}\n" in pages["settings.md"]
        assert f"\n## {name}\n" in pages["operations.md"]
    assert "| `train.epochs` | `auto` | " in pages["settings.md"]
    assert "| `top_k` | `0` | Sample from the k most probable tokens; 0: all. At least 0. |" in pages["operations.md"]
    for page in pages.values():
        assert page.startswith("# The ")
        assert "{" not in re.sub(r"```.*?```|`[^`]*`", "", page, flags=re.S), "a value that is no text"


def test_runs_of_every_task_are_as_the_page_on_formats_says(runs, capsys):
    assert {open_run(run).task for run in runs.values()} == {*TASKS} - {
        "forecast"
    }  # tests/unit/training/test_formats.py
    assert not {name: damaged for name, run in runs.items() if (damaged := check_run(run))}
    assert ": as it was written" in capsys.readouterr().out


def test_the_diagram_of_the_data_flow_is_current():
    drawn = (ROOT / "docs" / "data-flow.svg").read_text("utf-8")
    assert data_flow.draw() == drawn, "run `python -m tools.data_flow`"
    for box in data_flow.BOXES.values():
        for package in box.package.split():
            assert [*(ROOT / "src" / "weft").glob(package)], package


def test_the_architecture_names_files_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([a-z_]+/[\w/]*(?:\.py|\.hpp)?)`", page)
    assert len(paths) > 50
    for path in paths:
        assert (ROOT / "src" / "weft" / path).exists() or path == "tasks/NAME/" or (ROOT / path).exists(), path


def test_links_lead_somewhere():
    links = []
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        links += [(page, target) for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose)]
    assert len(links) > 200
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page, target in links
        if not (page.parent / target).exists() and target.rpartition("/")[2] not in REFERENCE_PAGES
    ]
    assert not broken, "\n".join(broken)


def test_named_source_files_exist():
    pattern = r"`((?:src/weft|examples|benchmarks|tools)/[\w./-]*)`"
    paths = [(page, path) for page in PAGES for path in re.findall(pattern, page.read_text(encoding="utf-8"))]
    assert len(paths) > 50
    missing = [f"{page.relative_to(ROOT)}: {path}" for page, path in paths if not (ROOT / path).exists()]
    assert not missing, "\n".join(missing)


def test_the_glossary_names_code_that_exists():
    rows = re.findall(r"\| `([\w/]+\.py)` `(\w+)` \|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), flags=re.M)
    assert len(rows) > 80
    for file, name in rows:
        source = (ROOT / "src" / "weft" / file).read_text(encoding="utf-8")
        assert re.search(rf"\b{name}\b", source), f"{name} is not in {file}"


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    # A name is documented by a directive (`::: weft.HMM`) or named in a heading (`### weft.train_lm, ...`).
    documented = set(re.findall(r"(?:^::: |heading: )([\w.]+)", pages, flags=re.M))
    for heading in re.findall(r"^###? (.*)", pages, flags=re.M):
        documented |= set(re.findall(r"weft\.\w+", heading))
    at_top = {f"weft.{name}" for name in weft.__all__ if name not in ("__version__", "nn", "probes")}
    in_nn = {f"weft.nn.{name}" for name in weft.nn.__all__}
    in_probes = {f"weft.probes.{name}" for name in weft.probes.__all__}
    missing = {name for name in at_top if not {name, name.replace("weft.", "weft.nn.")} & documented}
    missing |= (in_nn | in_probes) - documented
    assert not missing, "add them to a page of docs/api"
    named = {path for path in documented if re.fullmatch(r"weft(\.nn|\.probes)?\.\w+", path)}
    assert not named - at_top - in_nn - in_probes, "docs/api has names that weft does not have"
