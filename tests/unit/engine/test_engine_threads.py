"""The engine's threads, by a small C++ driver: what Python cannot bring about in a short time."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.paths import ROOT

COMPILER = shutil.which("g++") or shutil.which("clang++")
SOURCE = ROOT / "tests" / "core" / "thread_pool.cpp"
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    program = tmp_path_factory.mktemp("driver") / "thread_pool"
    command = [
        str(COMPILER),
        "-O1",
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        str(SOURCE),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True, timeout=600)
    return program


def test_more_turns_than_32_bits_count(driver):
    """The number of a turn outgrows its place in the counters of the pieces."""
    assert subprocess.run([driver, "overflow"], timeout=600, check=False).returncode == 0


def test_a_piece_that_throws(driver):
    """What a thread throws reaches the caller, and the pool goes on."""
    assert subprocess.run([driver, "throws"], timeout=600, check=False).returncode == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it limits memory as Linux does")
def test_no_more_threads(driver):
    """Where none can be started, the caller does all of the work."""
    assert subprocess.run([driver, "no_threads"], timeout=600, check=False).returncode == 0
