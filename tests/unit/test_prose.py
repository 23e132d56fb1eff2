"""What comments and docstrings name is there: modules, functions, parameters."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import weft

PACKAGE = Path(weft.__file__).parent
HEADERS = sorted(PACKAGE.rglob("*.hpp"))
SOURCES = sorted([*PACKAGE.rglob("*.py"), *HEADERS])
NAME = re.compile(r"\bweft(?:\.[A-Za-z_]\w*)+")
QUOTED = re.compile(r"`([A-Za-z_]\w*)(?:\(\))?`")


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or what one of its modules has."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def test_dotted_names_exist():
    named: dict[str, str] = {}
    for path in SOURCES:
        for name in NAME.findall(path.read_text(encoding="utf-8")):
            named.setdefault(name, str(path.relative_to(PACKAGE)))
    assert len(named) > 100
    assert {name: path for name, path in named.items() if not exists(name)} == {}


def unknown_names(header: str) -> list[str]:
    """Names that the comments of a C++ header quote and its code does not have."""
    parts = [line.partition("//") for line in header.splitlines()]
    code = set(re.findall(r"\w+", "\n".join(part[0] for part in parts)))
    return [name for part in parts for name in QUOTED.findall(part[2]) if name not in code]


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: path.name)
def test_comments_of_a_header_name_what_its_code_has(path):
    assert unknown_names(path.read_text(encoding="utf-8")) == []


def test_the_check_sees_a_parameter_of_another_name():
    assert unknown_names("// Does `units` of work, calls `work`.\nvoid run(int shared_over_time, Work work);") == [
        "units"
    ]
