"""The compiled core: which variant this machine can run, loaded once, called through ctypes (which frees the
interpreter for other threads while it runs)."""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.errors import WeftError

class EngineWarning(UserWarning):
    """Something runs without the engine, and slower than it could."""


_KNOWN = (torch.float32, torch.float64)  # types of numbers
_BY_CAPABILITY = {"AVX512": ["avx512", "avx2", "baseline"], "AVX2": ["avx2", "baseline"]}


@cache
def library() -> ctypes.CDLL | None:
    """The best variant that was built and that this CPU runs, or None."""
    wanted = Path(os.environ.get("WEFT_ENGINE", ""))
    if wanted.suffix in (".so", ".dylib"):  # a build of one's own, such as one with sanitizers
        return _load(wanted, wanted.stem)
    folder = Path(__file__).parent
    for name in variants():
        for file in sorted(folder.glob(f"_{name}.*")):
            if file.suffix in (".so", ".dylib"):
                return _load(file, name)
    return None


def _load(file: Path, name: str) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(file))
    _declare(loaded)
    loaded.variant = name  # type: ignore[attr-defined]
    return loaded


def loaded_library() -> ctypes.CDLL:
    """The library where it is known to be there."""
    loaded = library()
    assert loaded is not None
    return loaded


def variants() -> list[str]:
    """Names of the variants this CPU can run, best first; WEFT_ENGINE picks one of them or says "off"."""
    able = _BY_CAPABILITY.get(torch.backends.cpu.get_cpu_capability(), ["baseline"])
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


def usable() -> bool:
    """Whether the core is there and tensors have memory of their own: inside torch.func's transforms they have none."""
    return library() is not None and torch._C._functorch.peek_interpreter_stack() is None


def known_type(tensor: Tensor) -> bool:
    """Whether the core reads numbers of this type, here."""
    return tensor.is_cpu and tensor.dtype in _KNOWN


def reads(*tensors: Tensor) -> bool:
    """Whether the core can work on these: it is there, nothing is being compiled, and they are here, of one type."""
    dtype = tensors[0].dtype
    if dtype not in _KNOWN or torch.compiler.is_compiling() or not usable():
        return False
    return all(tensor.dtype is dtype and tensor.is_cpu for tensor in tensors)


def description() -> str:
    """One line for `weft --version`."""
    if os.environ.get("WEFT_ENGINE") == "off":
        return "engine: switched off, plain torch"
    loaded = library()
    return f"engine: {loaded.variant}" if loaded else "engine: not built, plain torch"


@cache
def warn_if_missing() -> None:
    """Warns once where the engine should be and is not. Silent where it was switched off on purpose."""
    if library() is None and os.environ.get("WEFT_ENGINE") != "off":
        warnings.warn(
            "the engine is not built here: cells run as plain torch, several times slower. "
            "Install a C++17 compiler (g++ or clang++), then install weft again",
            EngineWarning,
            stacklevel=3,
        )


def check(code: int) -> None:
    """The core's answers in words."""
    if code == 1:
        raise MemoryError("weft engine: out of memory")
    if code == 2:
        raise WeftError("a token id is outside the vocabulary", expected="ids from 0 to input_size - 1")


def _declare(loaded: ctypes.CDLL) -> None:
    number, address = ctypes.c_int64, ctypes.c_void_p
    loaded.weft_start.argtypes, loaded.weft_start.restype = [address], None
    loaded.weft_program.argtypes, loaded.weft_program.restype = [address], address
    loaded.weft_forget.argtypes, loaded.weft_forget.restype = [address], None
    loaded.weft_forward.argtypes, loaded.weft_back.argtypes = [address], [address]
    loaded.weft_embedding.argtypes = [address, number, number, number]
    loaded.weft_drop.argtypes = [address, address, *[number] * 7]
    loaded.weft_read_out.argtypes = [address, ctypes.c_double, number, number]
    loaded.weft_read_back.argtypes = [address, address, number, number]
    loaded.weft_pack_ids.argtypes, loaded.weft_likeliest.argtypes = [address, number, number], [address, number, number]
    loaded.weft_norm.argtypes, loaded.weft_norm.restype = [address, number, number, number], ctypes.c_double
    loaded.weft_update.argtypes, loaded.weft_update.restype = [address, address, number, number, number], None
    loaded.weft_peak.argtypes, loaded.weft_peak.restype = [number], ctypes.c_double
    loaded.weft_stream.argtypes, loaded.weft_stream.restype = [address, number], address
    loaded.weft_stream_forget.argtypes, loaded.weft_stream_forget.restype = [address], None
    loaded.weft_stream_step.argtypes = [address]
    loaded.weft_stream_sample.argtypes = [address, number, address, address, address, number, address, address, address]
    loaded.weft_start(_parallel_region())


def _parallel_region() -> Any:
    """The entry point of the OpenMP runtime that torch has loaded, so that its workers are used and not fought."""
    for file in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            return ctypes.cast(ctypes.CDLL(str(file)).GOMP_parallel, ctypes.c_void_p)
        except (OSError, AttributeError):
            continue
    return None
