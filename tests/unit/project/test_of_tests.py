"""Tests use what a user has: no private name of the package, and no assertion about the clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.paths import ROOT

FILES = sorted((ROOT / "tests").rglob("*.py"))
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
OF_NAMED_TUPLES = {"_asdict", "_fields", "_replace", "_make"}
OF_NOTEBOOKS = {"_repr_html_", "_repr_mimebundle_"}
OF_CTYPES = {"_obj"}
WAITS = {"tests/serving.py"}  # `wait_for` ends a wait that would have no end


def is_private(name: str) -> bool:
    return (
        name.startswith("_")
        and not name.endswith("__")
        and name not in OF_NAMED_TUPLES | OF_NOTEBOOKS | OF_CTYPES | {"_"}
    )


def root_of(node: ast.AST) -> str:
    """The name that an expression such as `a.b(c)[d].e` begins with: a."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def names_of_others(tree: ast.Module) -> set[str]:
    """What a file imports that is not of weft: torch's private names are torch's business."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(one.asname or one.name).split(".")[0] for one in node.names if one.name.split(".")[0] != "weft"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] != "weft":
            names |= {one.asname or one.name for one in node.names}
    return names


def own_names(tree: ast.Module) -> set[str]:
    """Private names of the classes of the file itself."""
    names = set()
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        names |= {one.name for one in kind.body if isinstance(one, ast.FunctionDef)}
        names |= {one.attr for one in ast.walk(kind) if isinstance(one, ast.Attribute) and root_of(one) == "self"}
    return names


def private_names(source: str) -> list[str]:
    """The private names of weft that a file imports, reads of an object, or names as text in `setattr` and the like."""
    tree = ast.parse(source)
    others, own, found = names_of_others(tree) | {"self", "cls", "super"}, own_names(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "weft":
            found += [f"{node.lineno}: {one.name}" for one in node.names if is_private(one.name)]
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if root_of(node) not in others and node.attr not in own:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "setattr",
            "getattr",
            "patch",
        ):
            texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            found += [
                f"{node.lineno}: {text}"
                for text in texts
                if is_private(text.rpartition(".")[2]) and text.partition(".")[0] in ("weft", text)
            ]
    return found


def clocks(source: str) -> list[str]:
    """The assertions of a file that read a clock."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assert)
        and any(
            isinstance(part, ast.Attribute) and part.attr in CLOCKS and root_of(part) == "time"
            for part in ast.walk(node.test)
        )
    ]


@pytest.mark.parametrize("rule", [private_names, clocks])
def test_every_file(rule):
    files = [path for path in FILES if rule is private_names or "long" not in path.parts]
    places = [
        f"{path.relative_to(ROOT)}:{place}"
        for path in files
        if rule is private_names or path.relative_to(ROOT).as_posix() not in WAITS
        for place in rule(Path(path).read_text(encoding="utf-8"))
    ]
    assert len(files) > 150
    assert not places, "\n".join(places)


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("from weft.tuning import _train", private_names),
        ("import weft\nweft.tuning._train()", private_names),
        ("def test(model):\n    model._encode(1)", private_names),
        ("def test(monkeypatch, pool):\n    monkeypatch.setattr(pool, '_peak', 3)", private_names),
        ("monkeypatch.setattr('weft.cells.base._checked', set())", private_names),
        ("assert time.monotonic() - began < 3", clocks),
    ],
)
def test_what_is_not_allowed_is_found(source, rule):
    assert len(rule(source)) == 1


def test_what_is_allowed_passes():
    allowed = (
        "import os, torch\nfrom torch._C import _functorch\nos._exit(torch._C._x)\nstate._replace(h=1)\n"
        "class Kept:\n    def _own(self):\n        self._value = 1\nKept()._own(), Kept()._value\n"
        "monkeypatch.setattr('torch.cuda._initialized', True)\n"
        "began = time.process_time()\nassert time.process_time() - began < 60\n"
    )
    assert not private_names(allowed)
    assert not clocks(allowed)
