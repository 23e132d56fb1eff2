"""The public names of the package: listed once, all of them exist, and each has its place in the reference."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import re

import pytest

import weft
import weft.nn
from tests.paths import ROOT
from weft.errors import WeftError

REFERENCE, SOURCE = ROOT / "docs" / "api", ROOT / "src" / "weft"
NAMES = [(weft, name) for name in weft.__all__ if name not in ("__version__", "nn", "probes")]
NAMES += [(weft.nn, name) for name in weft.nn.__all__ if name not in weft.__all__]


def test_public_names_exist():
    assert len(set(weft.__all__)) == len(weft.__all__)
    for name in weft.__all__:
        assert getattr(weft, name) is not None, name
    assert "train_lm" in dir(weft)


@pytest.fixture(scope="module")
def reference():
    """The text of the reference, and the code of its examples, which tests/system/test_docs.py runs."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    return text, "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.S))


def lacks(value, name, code):
    """What the documentation of a public name lacks."""
    doc = inspect.getdoc(value) or ""
    if isinstance(value, type):
        classes = [one for one in value.__mro__ if one.__module__.startswith("weft")]
        functions = [
            one.__dict__[method] for one in classes for method in ("__init__", "forward") if method in vars(one)
        ]
        text = "\n".join(inspect.getdoc(part) or "" for part in (*classes, *functions))
    else:
        functions, text = [value], doc
    if not doc:
        yield "a docstring"
    for function in functions:
        signature = inspect.signature(function)
        given = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
        if any(one.annotation is one.empty for one in given) or signature.return_annotation is signature.empty:
            yield f"types in the signature {signature}"
    if inspect.signature(value).parameters and not re.search(r"^\s*Args:", text, flags=re.M):
        yield "arguments (Args:)"
    nothing = isinstance(value, type) or inspect.signature(value).return_annotation in (None, "None")
    if not nothing and "Returns:" not in text and not doc.startswith("Returns "):
        yield "what it returns (Returns:)"
    raises = any("raise WeftError" in inspect.getsource(one) for one in functions)
    if raises and "Raises:" not in text:
        yield "exceptions (Raises:)"
    name = re.sub(r"^(start|resume)_\w+", r"\1_lm", name)  # one method for all tasks
    tables = [table for table in ("CELLS", "POOLINGS") if value in getattr(weft.nn, table).values() and table in code]
    if not tables and ">>>" not in doc and not re.search(rf"\b{name}\b", code):
        yield "an example"


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda one: getattr(one, "__name__", one))
def test_every_public_name_is_described_with_an_example(module, name, reference):
    text, code = reference
    value = getattr(module, name)
    assert re.search(rf"^(:::|#+) .*\bweft(\.\w+)*\.{name}\b", text, flags=re.M), f"docs/api has no entry for {name}"
    if not callable(value):  # a table or a constant
        assert re.search(rf"\b{name}\b", code), f"{name} has no example"
    elif is_record(value):  # settings and results: their fields are described where they are defined
        assert inspect.getdoc(value), f"{name} has no docstring"
    else:
        assert not list(lacks(value, name, code)), name


def test_what_a_public_name_lacks_is_found():
    def undescribed(x, y: int) -> int:
        if y:
            raise WeftError("no")
        return x

    def described(x: int) -> int:
        """Returns the double.

        Args:
            x: a number.

        >>> 2 * 2
        4
        """
        return 2 * x

    found = " ".join(lacks(undescribed, "undescribed", ""))
    for part in ("docstring", "types", "Args:", "Returns:", "Raises:", "example"):
        assert part in found
    assert not list(lacks(described, "described", ""))


MODULES = [
    ".".join(("weft", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


def test_examples_of_docstrings_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(MODULES) > 60
    results = {name: doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS) for name in MODULES}
    assert not {name: result for name, result in results.items() if result.failed}


def is_record(value: object) -> bool:
    """Settings and results."""
    return isinstance(value, type) and (dataclasses.is_dataclass(value) or issubclass(value, tuple | Exception))
