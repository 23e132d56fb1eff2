"""The structure: imports point one way, no file holds two ideas, one name means one thing."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import weft
import weft.tasks
from weft.machine import variants

ORDER = [
    "errors",
    "config",
    "files",
    "machine",
    "abi",
    "pictures",
    "html",
    "terminal",
    "cells",
    "compiler",
    "engine",
    "chains",
    "nn",
    "data",
    "text",
    "series",
    "results",
    "metrics",
    "training",
    "decoding",
    "tasks",
    "sklearn",
    "probes",
    "tuning",
    "server",
    "cli",
]
PACKAGE = Path(weft.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or not path.name.startswith("__"))


def module_name(path: Path) -> tuple[str, ...]:
    parts = ("weft", *path.relative_to(PACKAGE).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported_names(path: Path) -> set[tuple[str, ...]]:
    """What a file of weft imports from weft anywhere in it: inside functions and for type checkers alone, too."""
    names: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                package = module_name(path) if path.name == "__init__.py" else module_name(path)[:-1]
                base = package[: len(package) - node.level + 1] + base
            names |= {(*base, alias.name) for alias in node.names}
    return {name for name in names if name[0] == "weft"}


def imported_parts(path: Path) -> set[str]:
    """The parts of weft that a file imports: `from weft import load` names no part, `from weft import cells` does."""
    return {name[1] for name in imported_names(path) if len(name) > 1 and is_part(name[1])}


def is_part(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def test_imports_point_to_earlier_parts():
    imports = {path: {*imported_parts(path), module_name(path)[1]} for path in FILES}
    unknown = {part for parts in imports.values() for part in parts} - {*ORDER}
    assert not unknown, "they have no place in the order of the parts"
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {other}, which stands after it"
        for path, parts in imports.items()
        for other in sorted(parts - {module_name(path)[1]})
        if ORDER.index(other) > ORDER.index(module_name(path)[1])
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_all_kinds_of_imports(tmp_path, monkeypatch):
    source = (
        "import weft.training.trainer\n"
        "from weft import cells, nothing\n"
        "def f():\n"
        "    from weft.tasks.lm.model import LanguageModel\n"
        "    from ..text import tokens\n"
    )
    for name in ("errors.py", "cells.py"):
        (tmp_path / name).touch()
    for name in ("training", "tasks", "text"):
        (tmp_path / name).mkdir()
    path = tmp_path / "tasks" / "example.py"
    path.write_text(source, encoding="utf-8")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert imported_parts(path) == {"training", "cells", "tasks", "text"}


def test_folders_of_tasks_import_each_other_one_way():
    """A task may be made from another, as n-gram models are from language models, but no two from each other."""
    folders = [path.parent.name for path in sorted(PACKAGE.glob("tasks/*/__init__.py"))]
    uses = {
        folder: {
            name[2]
            for path in (PACKAGE / "tasks" / folder).rglob("*.py")
            for name in imported_names(path)
            if name[1] == "tasks" and name[2] in folders and name[2] != folder
        }
        for folder in folders
    }
    assert set(uses) >= {"lm", "ngram"}
    assert "lm" in uses["ngram"], "the test sees no imports"
    while independent := [folder for folder, others in uses.items() if not others & uses.keys()]:
        for folder in independent:
            del uses[folder]
    assert not uses, "these folders import each other in a cycle"


def test_the_server_has_code_of_no_task_but_lm():
    """Predictors say what they do by their operations; language models are run token by token by the server."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "server").glob("*.py"))
    assert set(re.findall(r"weft\.tasks\.(\w+)", code)) & set(weft.tasks.TASKS) == {"lm"}


@pytest.mark.parametrize("name", ["weft", "weft.errors", "weft.config", "weft.text", "weft.series"])
def test_text_needs_no_torch(name):
    """What only reads text starts at once: torch alone takes longer to load than most texts."""
    program = (
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module({name!r})\n"
        f"all = {name!r} in ('weft.text', 'weft.series')\n"
        f"inside = pkgutil.walk_packages(package.__path__, {name!r} + '.') if all else ()\n"
        "for module in inside: importlib.import_module(module.name)\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_line_starts_without_heavy_imports():
    script = "import sys, weft.cli; print(*{'torch', 'numpy', 'tokenizers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == ""


def test_help_and_a_wrong_option_need_no_torch():
    groups = [["--help"], ["train", "--help"], ["train", "tag", "--help"], ["tune", "lm", "--help"]]
    commands = [["eval", "--help"], ["generate", "--help"], ["look", "--help"]]
    calls = [*groups, *commands, ["tag", "run", "--colums"], ["fill", "run", "--n-best", "0"]]
    script = (
        "import sys; from typer.testing import CliRunner; from weft.cli import app\n"
        f"print(*[CliRunner().invoke(app, one).exit_code for one in {calls}], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == [*["0"] * 7, "2", "2", "False"]


def modules_of(*arguments: str) -> set[str]:
    """What the program has imported when it ends, of a run that succeeds."""
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        f"sys.argv = ['weft', *{arguments!r}]\n"
        "import weft.cli; weft.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    return set(done.stderr.split())


def test_what_loads_no_model_needs_no_torch(tmp_path):
    """The version, the list of runs, curves, and a comparison of runs whose held-out data differ."""
    for name in ("ab", "abc"):
        weft.train("ngram", weft.Corpus.from_texts("text", [name * 500]), tmp_path / name, progress=False)
    assert {"torch", "numpy"}.isdisjoint(modules_of("--version"))
    assert "torch" not in modules_of("runs", str(tmp_path))
    assert "torch" not in modules_of("plot", str(tmp_path / "ab"), str(tmp_path / "abc"), "--json")
    assert "torch" not in modules_of("plot", str(tmp_path / "ab"), "--out", str(tmp_path / "curves.svg"))
    assert "torch" not in modules_of("compare", str(tmp_path / "ab"), str(tmp_path / "abc"))


def test_a_command_that_predicts_imports_nothing_that_draws_serves_or_generates_data(tmp_path):
    weft.train("ngram", weft.Corpus.from_texts("text", ["ab" * 500]), tmp_path / "run", progress=False)
    found = modules_of("generate", str(tmp_path / "run"), "--tokens", "3")
    assert {"torch", "weft.tasks.ngram.task"} <= found
    apart = ("weft.pictures", "weft.probes", "weft.server.", "weft.tuning", "weft.sklearn", "weft.text.grammars")
    assert {name for name in found if name.startswith(apart)} - {"weft.server.config"} == set()
    assert not {"sacrebleu", "tokenizers", "sklearn", "pandas", "optuna", "starlette"} & found


@pytest.mark.parametrize("wanted", ["on", *variants()])
def test_the_version_names_the_engine_that_runs(wanted):
    """It is found without torch."""
    script = (
        "import sys\n"
        "from weft.machine import engine_description\n"
        "named = engine_description(), 'torch' in sys.modules\n"
        "from weft.engine import library\n"
        "print(*named, library() and library().variant)"
    )
    environment = {**os.environ, "WEFT_ENGINE": wanted}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600, env=environment
    )
    engine, named, torch_was_loaded, running = done.stdout.split()
    assert (engine, torch_was_loaded) == ("engine:", "False")
    assert named == running


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000 False"), ({"GOMP_SPINCOUNT": "7"}, "7 False"), ({"OMP_WAIT_POLICY": "active"}, "None False")],
)
def test_the_command_line_lets_idle_threads_sleep(given, expected):
    """It is set before torch is loaded, which reads it once; not where the user has said how threads are to wait."""
    script = (
        "import os, sys, weft.cli\n"
        "weft.cli.app = lambda: print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)\n"
        "weft.cli.main()"
    )
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600, env={**kept, **given}
    )
    assert done.stdout.strip() == expected


# Names that are defined in more than one module, and why.
REPEATED = {
    "TASK": "every task's task.py has one",
    "PROBE": "every probe's file has one",
    "Forecaster": "the estimator of scikit-learn; what every kind of forecasting model has",
    **dict.fromkeys(
        ["Direction", "Instruction", "Place", "Status", "Table"],
        "a record of the engine's interface, named as in C++; and the Python side of it, or a part of a task",
    ),
    **dict.fromkeys(["cavity", "expect", "partition", "posterior", "viterbi"], "chains: the kernel and its reference"),
    **dict.fromkeys(["Phrase", "sentence"], "grammars: each language has its own"),
    **dict.fromkeys(["Array", "Attention", "Hypothesis", "Passage", "TokenScores"], "a probe's result, as plain data"),
    **dict.fromkeys(["Node", "Rule", "Segment"], "of a graph or its program; of a grammar, an optimizer, a chain"),
}


def definitions(path: Path) -> set[str]:
    """The public classes, functions and constants that a file defines at its top level."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            found |= {name.id for name in names if isinstance(name, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def test_a_name_is_defined_once():
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in definitions(path):
            places[name].append(str(path.relative_to(PACKAGE)))
    repeated = {name: files for name, files in places.items() if len(files) > 1}
    assert {name: files for name, files in repeated.items() if name not in REPEATED} == {}
    assert set(REPEATED) <= set(repeated), "a name of the list is defined once by now: take it out"
