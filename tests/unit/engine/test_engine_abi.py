"""The interface between Python and C++: one layout on both sides, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from weft.engine import abi, encode
from weft.errors import WeftError

LIBRARY = import_module("weft.engine.library")  # the package has a function of that name
COMPILER = shutil.which("g++") or shutil.which("clang++")
HEADER = Path(abi.__file__).parent / "core" / "abi.hpp"
needs_engine = pytest.mark.skipif(LIBRARY.library() is None, reason="the engine is not built here")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


def compile_library(folder, header, *, with_layout=True):
    """A library that has nothing but the hash of this header."""
    (folder / "abi.hpp").write_text(header)
    export = 'extern "C" unsigned long long weft_layout() { return weft::abi::layout(); }\n' if with_layout else ""
    (folder / "library.cpp").write_text(f'#include "abi.hpp"\n{export}')
    library = folder / "library.so"
    command = [COMPILER, "-std=c++20", "-shared", "-fPIC", str(folder / "library.cpp"), "-o", str(library)]
    subprocess.run(command, check=True, timeout=120)
    return library


def load(library, monkeypatch):
    monkeypatch.setenv("WEFT_ENGINE", str(library))
    return LIBRARY.library.__wrapped__()


@needs_engine
def test_both_sides_have_the_same_layout():
    assert LIBRARY.library().weft_layout() == abi.layout()


@needs_compiler
@pytest.mark.parametrize(
    ("pattern", "becomes"),
    [
        (r"int64_t seed;", "int64_t seeds;"),  # a name
        (r"double temperature;", "int64_t temperature;"),  # a type
        (r"(int64_t rows;[^\n]*\n)(\s*int64_t inputs;[^\n]*\n)", r"\2\1"),  # the order
        (r"double\* flops;", "double* flops; int64_t more;"),  # one more
        (r"\blt,(\s*)le,", r"le,\1lt,"),  # an enumeration
    ],
)
def test_a_stale_build_is_refused(pattern, becomes, tmp_path, monkeypatch):
    header, changes = re.subn(pattern, becomes, HEADER.read_text(), count=1)
    assert changes == 1
    library = compile_library(tmp_path, header)
    with pytest.raises(WeftError, match=r"built from other sources.*pip install -e \."):
        load(library, monkeypatch)


@needs_compiler
def test_a_build_from_before_there_was_a_layout_is_refused(tmp_path, monkeypatch):
    library = compile_library(tmp_path, HEADER.read_text(), with_layout=False)
    with pytest.raises(WeftError, match=r"built from other sources.*pip install -e \."):
        load(library, monkeypatch)


def test_fields_are_packed_by_name():
    pack = abi.packer(abi.StepSize)
    assert pack(bias_correction=0.5, size=2.0) == pack(2.0, 0.5)
    with pytest.raises(TypeError, match="sizes"):
        pack(sizes=2.0, bias_correction=0.5)
    assert abi.values_of(encode.Place)(part=2, block=3, buffer=1) == (1, 2, 3)
