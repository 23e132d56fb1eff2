"""The source archive holds what git holds; `make dist` also installs and tries the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.paths import ROOT
from tools.dist import archive_files, check_sdist, tracked_files

BUILD = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_the_source_archive_has_every_file(tmp_path):
    copy, out = tmp_path / "copy", tmp_path / "out"
    for name in tracked_files():  # a copy, because building writes into the folder
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(out)], cwd=copy, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    (archive,) = out.glob("*.tar.gz")
    check_sdist(archive)
    assert {"tests/checks/cells.py", "docs/index.md", "Makefile", "constraints.txt"} <= archive_files(archive)
