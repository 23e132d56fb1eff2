"""The C++ engine: the same source compiled for each instruction set; which one runs is decided at run time.

Every variant is optional. Where one cannot be compiled, the install succeeds without it, and where none can, weft
runs the same equations as plain torch.
"""

import platform
from pathlib import Path

from setuptools import Extension, setup

VARIANTS = {"baseline": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    VARIANTS["avx2"] = ["-mavx2", "-mfma"]
    VARIANTS["avx512"] = ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"]

# NaN and infinities stay what they are: no -ffast-math, only what changes no result.
FLAGS = ["-O3", "-std=c++17", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
FLAGS += ["-Wall", "-Wextra", "-Wno-psabi", "-pthread"]
HEADERS = [str(path) for path in sorted(Path("src/weft").glob("*/core/*.hpp"))]

setup(
    ext_modules=[
        Extension(
            f"weft.engine._{name}",
            [f"src/weft/engine/core/{name}.cpp"],
            depends=HEADERS,
            extra_compile_args=FLAGS + flags,
            extra_link_args=["-pthread"],
            optional=True,
        )
        for name, flags in VARIANTS.items()
    ]
)
