"""The public names of the package: listed once, all of them exist, and each has its place in the reference."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

import weft
import weft.nn
from tests.paths import ROOT

REFERENCE = ROOT / "docs" / "api"
NAMES = [(weft, name) for name in weft.__all__ if name not in ("__version__", "nn", "probes")]
NAMES += [(weft.nn, name) for name in weft.nn.__all__ if name not in weft.__all__]


def test_public_names_exist():
    assert len(set(weft.__all__)) == len(weft.__all__)
    for name in weft.__all__:
        assert getattr(weft, name) is not None, name
    assert "train_lm" in dir(weft)


@pytest.fixture(scope="module")
def reference():
    """The text of the reference, and the code of its examples."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    return text, "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.S))


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda one: getattr(one, "__name__", one))
def test_every_public_name_has_arguments_and_an_example_in_the_reference(module, name, reference):
    text, code = reference
    assert re.search(rf"^(:::|#+) .*\bweft(\.\w+)*\.{name}\b", text, flags=re.M), f"docs/api has no entry for {name}"
    value = getattr(module, name)
    doc = inspect.getdoc(value) or ""
    assert doc, f"{name} has no docstring"
    if not callable(value) or _is_record(value) or not inspect.signature(value).parameters:
        return
    classes = (
        [one for one in value.__mro__ if one.__module__.startswith("weft")] if isinstance(value, type) else [value]
    )
    documents = [inspect.getdoc(part) or "" for one in classes for part in (one, one.__init__)]
    described = any(re.search(r"^\s*Args:", document, flags=re.M) for document in documents)
    assert described, f"{name} does not describe its arguments"
    name = re.sub(r"^(start|resume)_\w+", r"\1_lm", name)  # one method for all tasks
    tables = [table for table in ("CELLS", "POOLINGS") if value in getattr(weft.nn, table).values() and table in code]
    example = tables or ">>>" in doc or "Example" in doc or re.search(rf"\b{name}\b", code)
    assert example, f"{name} has no example"


def _is_record(value: object) -> bool:
    """Settings and results: their fields are described where they are defined."""
    return isinstance(value, type) and (dataclasses.is_dataclass(value) or issubclass(value, tuple | Exception))
