"""The package of docs/architecture.md, with a task of values that weft knows by its entry point."""

from __future__ import annotations

import contextlib
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.paths import ROOT
from weft.tasks import describe, elsewhere

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILES = {
    name: textwrap.dedent(code).strip() + "\n"
    for name, code in re.findall(r"^    # (pyproject\.toml|running_mean\.py)\n((?:    .*\n|\n)+)", PAGE, flags=re.M)
}


def write_package(folder: Path, package: str, points: Mapping[str, str], code: str) -> None:
    """A package of one module as an installer leaves it: the module, and what it says of itself."""
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (about / "entry_points.txt").write_text(f"[weft.tasks]\n{lines}\n", encoding="utf-8")
    (folder / f"{package}.py").write_text(code, encoding="utf-8")
    forget()


def forget() -> None:
    """Makes weft look for tasks of other packages anew."""
    elsewhere.installed_tasks.cache_clear()
    describe.cache_clear()


@contextlib.contextmanager
def importable(folder: Path, *packages: str) -> Iterator[None]:
    """The packages of a folder can be imported, and are no longer there afterwards."""
    sys.path.insert(0, str(folder))
    forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in packages:
            sys.modules.pop(name, None)
        forget()
