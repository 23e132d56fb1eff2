"""How the engine is built and loaded: without a compiler, and where nothing was built."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import warnings
from importlib import import_module

import pytest

from tests.paths import ROOT

LIBRARY = import_module("weft.engine.library")  # the package has a function of that name


def test_an_installation_without_a_compiler_says_what_to_do(tmp_path):
    pytest.importorskip("setuptools")
    nothing = str(tmp_path / "no-compiler")
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", f"--build-lib={tmp_path}", f"--build-temp={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "CC": nothing, "CXX": nothing},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the weft engine was not compiled for: baseline" in done.stderr
    assert "install a C++20 compiler" in done.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_a_library_is_built_again_when_a_source_is_newer_or_a_compiler_is_chosen(tmp_path, monkeypatch):
    for name in ("CXX", "CC", "CFLAGS", "CXXFLAGS"):
        monkeypatch.delenv(name, raising=False)
    setuptools = pytest.importorskip("setuptools")
    monkeypatch.setattr(setuptools, "setup", lambda **options: None)
    monkeypatch.chdir(ROOT)
    is_current = runpy.run_path(str(ROOT / "setup.py"))["is_current"]
    built, source = tmp_path / "built.so", tmp_path / "source.cpp"
    source.touch()
    assert not is_current(built, [source])
    built.touch()
    os.utime(source, (0, 0))
    assert is_current(built, [source])
    os.utime(source, (2**31, 2**31))
    assert not is_current(built, [source])
    os.utime(source, (0, 0))
    monkeypatch.setenv("CXX", "clang++")
    assert not is_current(built, [source])


def test_a_missing_engine_warns_once(monkeypatch):
    monkeypatch.delenv("WEFT_ENGINE", raising=False)
    monkeypatch.setattr(LIBRARY, "library", lambda: None)
    LIBRARY.warn_if_missing.cache_clear()
    with pytest.warns(LIBRARY.EngineWarning, match=r"not built here.*compiler"):
        LIBRARY.warn_if_missing()
    warnings.simplefilter("error")
    LIBRARY.warn_if_missing()


def test_an_engine_that_is_switched_off_does_not_warn(monkeypatch):
    monkeypatch.setenv("WEFT_ENGINE", "off")
    monkeypatch.setattr(LIBRARY, "library", lambda: None)
    LIBRARY.warn_if_missing.cache_clear()
    LIBRARY.warn_if_missing()
    LIBRARY.warn_if_missing.cache_clear()


def test_the_engine_knows_no_format_of_data():
    """It takes tensors: what a batch or a file looks like is the callers'."""
    for path in (ROOT / "src" / "weft" / "engine").glob("*.py"):
        imported = re.findall(r"^ *(?:from|import) (weft\.\w+)", path.read_text(), re.MULTILINE)
        assert set(imported) <= {
            "weft.abi",
            "weft.cells",
            "weft.compiler",
            "weft.engine",
            "weft.errors",
            "weft.machine",
        }, path.name
