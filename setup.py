"""The C++ engine: the same source compiled for each instruction set; which one runs is decided at run time.

Every variant is optional. Where one cannot be compiled, the installation says so and goes on without it. Where none can
be compiled, weft runs the same equations as plain torch, and warns when they first run.
"""

import os
import platform
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MACHINE = platform.machine().lower()
VARIANTS = {"baseline": []}
if MACHINE in ("aarch64", "arm64"):
    VARIANTS = {"neon": [], "neon_dot": ["-march=armv8.2-a+dotprod"], "neon_bf16": ["-march=armv8.2-a+dotprod+bf16"]}
elif MACHINE in ("x86_64", "amd64"):
    VARIANTS["avx2"] = ["-mavx2", "-mfma"]
    VARIANTS["avx512"] = ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"]
    VARIANTS["avx512"] += ["-mprfchw"]  # prefetch for writing
    VARIANTS["avx512_bf16"] = [*VARIANTS["avx512"], "-mavx512bf16", "-mavx512vnni"]

# NaN and infinities stay what they are: no -ffast-math, only what changes no result.
FLAGS = ["-O3", "-std=c++20", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
FLAGS += ["-g0"]  # Python's own flags ask for debug information, ten times the size of the code
FLAGS += ["-Wall", "-Wextra", "-Wno-psabi", "-pthread"]
STRIP = "-Wl,-x" if sys.platform == "darwin" else "-Wl,-s"  # no symbols but those that Python asks for
HEADERS = [str(path) for path in sorted(Path("src/weft").glob("*/core/*.hpp"))]


def is_current(built, sources):
    """Whether a library is newer than its sources. One by another compiler or with other flags is built anew."""
    chosen = {"CXX", "CC", "CFLAGS", "CXXFLAGS"} & os.environ.keys()
    times = [Path(source).stat().st_mtime for source in [*sources, "setup.py"]]
    return not chosen and built.exists() and built.stat().st_mtime > max(times)


class BuildEngine(build_ext):
    """Builds the variants that can be built, and names those that cannot."""

    def run(self):
        sys.path.insert(0, "src")
        from weft.abi import write_header  # needs nothing that has to be installed

        write_header()
        self.failed = {}
        super().run()
        if self.failed:
            names = ", ".join(name for name in VARIANTS if name in self.failed)
            why = next(iter(self.failed.values()))
            plain = "cells and chains run as plain torch" if len(self.failed) == len(VARIANTS) else "it may be slower"
            self.warn(
                f"the weft engine was not compiled for: {names} ({why}). Without it {plain}. To build it, install a "
                "C++20 compiler (g++ or clang++; set CXX to choose one), then install weft again."
            )

    def build_extension(self, ext):
        target = Path(self.get_ext_fullpath(ext.name))
        built = Path("src", *ext.name.split(".")[:-1], target.name)  # of an earlier editable installation
        if built != target and is_current(built, [*ext.sources, *ext.depends]):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built, target)
            return
        try:
            super().build_extension(ext)
        except Exception as why:
            self.failed[ext.name.rpartition("._")[2]] = str(why)
            raise  # setuptools goes on with the next: all are optional


setup(
    cmdclass={"build_ext": BuildEngine},
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=[
        Extension(
            f"weft.engine._{name}",
            [f"src/weft/engine/core/{name}.cpp"],
            depends=HEADERS,
            language="c++",
            extra_compile_args=FLAGS + flags,
            extra_link_args=["-pthread", STRIP],
            optional=True,
        )
        for name, flags in VARIANTS.items()
    ],
)
