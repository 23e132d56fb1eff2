"""The C++ engine: the same source compiled for each instruction set; which one runs is decided at run time.

Every variant is optional. Where one cannot be compiled, the installation says so and goes on without it. Where none can
be compiled, weft runs the same equations as plain torch, and warns when they first run.
"""

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

VARIANTS = {"baseline": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    VARIANTS["avx2"] = ["-mavx2", "-mfma"]
    VARIANTS["avx512"] = ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"]

# NaN and infinities stay what they are: no -ffast-math, only what changes no result.
FLAGS = ["-O3", "-std=c++17", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
FLAGS += ["-Wall", "-Wextra", "-Wno-psabi", "-pthread"]
HEADERS = [str(path) for path in sorted(Path("src/weft").glob("*/core/*.hpp"))]


class BuildEngine(build_ext):
    """Builds the variants that can be built, and names those that cannot."""

    def run(self):
        self.failed = {}
        super().run()
        if self.failed:
            names, why = ", ".join(self.failed), next(iter(self.failed.values()))
            plain = "cells and chains run as plain torch" if len(self.failed) == len(VARIANTS) else "it may be slower"
            self.warn(
                f"the weft engine was not compiled for: {names} ({why}). Without it {plain}. To build it, install a "
                "C++17 compiler (g++ or clang++; set CXX to choose one), then install weft again."
            )

    def build_extension(self, ext):
        try:
            super().build_extension(ext)
        except Exception as why:
            self.failed[ext.name.rpartition("._")[2]] = str(why)
            raise  # setuptools goes on with the next: all are optional


setup(
    cmdclass={"build_ext": BuildEngine},
    ext_modules=[
        Extension(
            f"weft.engine._{name}",
            [f"src/weft/engine/core/{name}.cpp"],
            depends=HEADERS,
            language="c++",
            extra_compile_args=FLAGS + flags,
            extra_link_args=["-pthread"],
            optional=True,
        )
        for name, flags in VARIANTS.items()
    ],
)
