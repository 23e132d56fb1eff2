"""What this machine has: memory, the instruction sets of its CPU, and the build of the engine for these. No torch."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from weft.errors import WeftError

_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
CPU_INFO = Path("/proc/cpuinfo")
_ENGINE = Path(__file__).parent / "engine"

# The variants of the engine, each with the flags of Linux for the instructions that the one before it does without.
_X86: dict[str, set[str]] = {
    "baseline": set(),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl"},
    "avx512_bf16": {"avx512_bf16", "avx512_vnni"},
}
_ARM: dict[str, set[str]] = {"neon": set(), "neon_dot": {"asimddp"}, "neon_bf16": {"bf16"}}
_NEEDED = _ARM if platform.machine() in ("aarch64", "arm64") else _X86
_MACOS = {"asimddp": b"hw.optional.arm.FEAT_DotProd", "bf16": b"hw.optional.arm.FEAT_BF16"}


class Build(NamedTuple):
    """A library of the engine."""

    variant: str
    file: Path


def memory() -> int:
    """The memory of this machine, or of the container that the process runs in, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 62
    try:
        limit = _MEMORY_LIMIT.read_text().strip()
    except OSError:
        limit = "max"
    return min(total, int(limit)) if limit.isdigit() else total


@cache
def cpu_flags() -> frozenset[str]:
    """The instructions of this CPU by Linux's names; on macOS those of ARM alone."""
    if sys.platform == "darwin":
        return frozenset(flag for flag, name in _MACOS.items() if _sysctl(name))
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", CPU_INFO.read_text(), flags=re.M)
    except OSError:
        found = None
    return frozenset(found[1].split()) if found else frozenset()


def _sysctl(name: bytes) -> bool:
    """Whether macOS answers 1; an older one does not know the name."""
    value, size = ctypes.c_int64(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int64))
    status = ctypes.CDLL(None).sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return status == 0 and value.value == 1


def variants() -> list[str]:
    """The variants of the engine that this CPU can run, best first; WEFT_ENGINE picks one of them or says "off"."""
    able = [name for name, _ in takewhile(lambda row: row[1] <= cpu_flags(), _NEEDED.items())][::-1]
    wanted = os.environ.get("WEFT_ENGINE", "")
    if wanted in ("", "on"):
        return able
    if wanted == "off":
        return []
    if wanted in able:
        return [wanted]
    raise WeftError(
        f"WEFT_ENGINE is {wanted!r}", expected=f"one of: on, off, {', '.join(able)}, or the path of a build"
    )


def engine_build() -> Build | None:
    """The best build of the engine that is installed and that this CPU runs, or that WEFT_ENGINE names; None: none."""
    wanted = Path(os.environ.get("WEFT_ENGINE", ""))
    if wanted.suffix in (".so", ".dylib"):  # another build, such as one with sanitizers
        return Build(wanted.stem, wanted)
    for name in variants():
        for file in sorted(_ENGINE.glob(f"_{name}.*")):
            if file.suffix in (".so", ".dylib"):
                return Build(name, file)
    return None


def engine_description() -> str:
    """One line for `weft --version`."""
    if os.environ.get("WEFT_ENGINE") == "off":
        return "engine: switched off, plain torch"
    build = engine_build()
    return f"engine: {build.variant}" if build else "engine: not built, plain torch"
