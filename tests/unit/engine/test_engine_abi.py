"""The interface between Python and C++: declared once, one layout on both sides, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module

import pytest

from tests.paths import ROOT
from weft import abi
from weft.errors import WeftError

LIBRARY = import_module("weft.engine.library")  # the package has a function of that name
COMPILER = shutil.which("g++") or shutil.which("clang++")
needs_engine = pytest.mark.skipif(LIBRARY.library() is None, reason="the engine is not built here")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

# A program that prints values.
PRINTS = """
#include <cstddef>
#include <cstdio>
#include "records.hpp"
int main() {
%s
}
"""


def compile_library(folder, declarations, *, with_layout=True):
    """A library that has nothing but the hash of declarations."""
    (folder / "records.hpp").write_text(declarations)
    export = 'extern "C" unsigned long long weft_layout() { return weft::kLayout; }\n' if with_layout else ""
    (folder / "library.cpp").write_text(f'#include "records.hpp"\n{export}')
    library = folder / "library.so"
    command = [COMPILER, "-std=c++20", "-shared", "-fPIC", str(folder / "library.cpp"), "-o", str(library)]
    subprocess.run(command, check=True, timeout=600)
    return library


def load(library, monkeypatch):
    monkeypatch.setenv("WEFT_ENGINE", str(library))
    return LIBRARY.library.__wrapped__()


@needs_engine
def test_both_sides_have_the_same_layout():
    assert LIBRARY.library().weft_layout() == abi.layout()


@needs_compiler
def test_cpp_reads_each_field_and_member_where_python_writes_it(tmp_path):
    """Offsets of all fields and values of all members, as the compiler sees the generated declarations."""
    fields = [
        (f"{name}.{field}", f"offsetof(weft::abi::{name}<float>, {field})", 8 * n)
        for name, kind in vars(abi).items()
        if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
        for n, field in enumerate(kind._fields)
    ]
    members = [
        (f"{kind.__name__}.{member.name}", f"weft::{kind.__name__}::{member.name}", member.value)
        for kind in (abi.Status, abi.Precision, abi.Buffer, abi.Op)
        for member in kind
    ]
    assert len(fields) > 200
    lines = [f'std::printf("{name} %lld\\n", static_cast<long long>({cpp}));' for name, cpp, _ in fields + members]
    (tmp_path / "records.hpp").write_text(abi.header())
    (tmp_path / "prints.cpp").write_text(PRINTS % "\n".join(lines))
    command = [COMPILER, "-std=c++20", str(tmp_path / "prints.cpp"), "-o", str(tmp_path / "prints")]
    subprocess.run(command, check=True, timeout=120)
    printed = subprocess.run([tmp_path / "prints"], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"{name} {value}" for name, _, value in fields + members]


def test_the_header_explains_what_the_declarations_explain():
    header = abi.header()
    assert "    const int64_t* lengths;  // (B), or 0: every row has T steps\n" in header
    assert "    // Embedded rows (B, T, E); for each layer, to train," in header
    assert "// weft_forward, weft_backward: layers over time.\n" in header
    assert "    select,  // b where a != 0, else c\n" in header


def test_the_page_of_the_engine_explains_every_buffer():
    page = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    table = page.partition("| buffer | shape |")[2].partition("\n\n")[0]
    explained = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])}
    assert explained == {buffer.name for buffer in abi.Buffer}


@pytest.mark.parametrize(
    ("pattern", "becomes"),
    [
        (r"    seed: Int\n", "    seeds: Int\n"),  # a name
        (r"temperature: Float", "temperature: Int"),  # a type
        (r"(    rows: Int[^\n]*\n)(    inputs: Int[^\n]*\n)", r"\2\1"),  # the order
        (r"    flops: OutputDoubles", "    more: Int\n    flops: OutputDoubles"),  # one more
        (r"    lt = 7[^\n]*\n    le = 8", "    le = 7\n    lt = 8"),  # an enumeration
    ],
)
@needs_compiler
def test_a_stale_build_is_refused(pattern, becomes, tmp_path, monkeypatch):
    """Other declarations, as the program that is to generate C++ from them has it."""
    source = (ROOT / "src" / "weft" / "abi.py").read_text()
    changed, changes = re.subn(pattern, becomes, source, count=1)
    assert changes == 1
    (tmp_path / "other.py").write_text(changed)
    command = [sys.executable, "-c", "import other; print(other.header())"]
    header = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    library = compile_library(tmp_path, header)
    with pytest.raises(WeftError, match=r"built from other sources.*pip install -e \."):
        load(library, monkeypatch)


@needs_compiler
def test_a_build_of_these_declarations_has_their_layout(tmp_path, monkeypatch):
    """It gets as far as the functions, which this one has not."""
    library = compile_library(tmp_path, abi.header())
    with pytest.raises(AttributeError, match="weft_new_program"):
        load(library, monkeypatch)


@needs_compiler
def test_a_build_from_before_there_was_a_layout_is_refused(tmp_path, monkeypatch):
    library = compile_library(tmp_path, abi.header(), with_layout=False)
    with pytest.raises(WeftError, match=r"built from other sources.*pip install -e \."):
        load(library, monkeypatch)


def test_the_header_is_written_by_the_build_and_needs_nothing_installed(tmp_path):
    """An isolated build has setuptools and no torch: the declarations import the standard library alone."""
    package = tmp_path / "src" / "weft"
    (package / "engine" / "core").mkdir(parents=True)
    for name in ("__init__.py", "__init__.pyi", "abi.py"):
        shutil.copy(ROOT / "src" / "weft" / name, package)
    shutil.copy(ROOT / "setup.py", tmp_path)
    code = (
        "import runpy, setuptools\n"
        "setuptools.setup = lambda **options: None\n"
        "build = runpy.run_path('setup.py')['BuildEngine']\n"
        "command = build(setuptools.Distribution())\n"
        "command.extensions = []\n"
        "command.run()\n"
        "import sys\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    assert (package / "engine" / "core" / "records.hpp").read_text() == abi.header()


def test_fields_are_packed_by_name():
    pack = abi.packer(abi.StepSize)
    assert pack(bias_correction=0.5, size=2.0) == pack(2.0, 0.5)
    with pytest.raises(TypeError, match="sizes"):
        pack(sizes=2.0, bias_correction=0.5)
    assert abi.values_of(abi.Place)(part=2, block=3, buffer=1) == (1, 2, 3)
