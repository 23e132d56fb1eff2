"""The compiled core: loads the best variant that this machine can run, and turns the status of a call into exceptions.

It is called through ctypes, which releases the interpreter lock during a call.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from weft import abi
from weft.abi import Status
from weft.engine.threads import openmp_libraries, thread_count
from weft.errors import TensorError, WeftError
from weft.machine import engine_build

FUNCTIONS = (  # each takes the address of its records and returns a Status
    "weft_new_program",
    "weft_free_program",
    "weft_forward",
    "weft_backward",
    "weft_dropout",
    "weft_embedding",
    "weft_cross_entropy",
    "weft_cross_entropy_backward",
    "weft_pack_output_layer",
    "weft_top_k",
    "weft_gradient_norm",
    "weft_optimizer_step",
    "weft_peak",
    "weft_pack_weights",
    "weft_free_weights",
    "weft_new_stream",
    "weft_free_stream",
    "weft_stream_step",
    "weft_stream_sample",
    "weft_chain_sum",
    "weft_chain_viterbi",
)


class EngineWarning(UserWarning):
    """Something runs without the engine, and slower than it could."""


_KNOWN = (torch.float32, torch.float64)  # types of values
_peak_call = abi.packer(abi.PeakCall)


@cache
def library() -> ctypes.CDLL | None:
    """The best variant that was built and that this CPU runs, or None."""
    build = engine_build()
    if build is None:
        return None
    loaded = ctypes.CDLL(str(build.file))
    _check_layout(loaded, build.file)
    _declare(loaded)
    loaded.variant = build.variant  # type: ignore[attr-defined]
    return loaded


@cache
def loaded_library() -> ctypes.CDLL:
    """The library, which must be there."""
    loaded = library()
    assert loaded is not None
    return loaded


def usable() -> bool:
    """Whether the core is there and its results would be seen. Elsewhere the same equations run in torch."""
    return library() is not None and not transformed()


def transformed() -> bool:
    """Whether torch follows each of its operations and would miss ours.

    Inside torch.func's transforms tensors have no memory; forward-mode AD and torch.jit.trace record operations; a
    TorchDispatchMode, such as that which counts operations, sees each.
    """
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


@contextmanager
def outside_of_transforms() -> Iterator[None]:
    """Operations in here are seen by no transform of torch.func and by no TorchDispatchMode."""
    modes = _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()  # the first is slow
    with temporarily_clear_interpreter_stack(), modes:
        yield


def mapped(*rules: TransformType) -> bool:
    """Whether these transforms of torch.func are all that follows operations."""
    interpreters = torch._C._functorch.get_interpreter_stack()
    if not interpreters or any(one.key() not in rules for one in interpreters):
        return False
    recorded = torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0
    return forward_ad._current_level < 0 and not recorded and library() is not None


def known_type(tensor: Tensor) -> bool:
    """Whether the tensor is on the CPU and of a type that the core reads."""
    return tensor.is_cpu and tensor.dtype in _KNOWN


def reads(*tensors: Tensor) -> bool:
    """Whether the core can read these now: it is there, torch is not compiling, all are on the CPU and of one type."""
    dtype = tensors[0].dtype
    if dtype not in _KNOWN or torch.compiler.is_compiling() or not usable():
        return False
    return all(tensor.dtype is dtype and tensor.is_cpu for tensor in tensors)


@cache
def warn_if_missing() -> None:
    """Warns once where the engine should be and is not. Silent where it was switched off on purpose."""
    if library() is None and os.environ.get("WEFT_ENGINE") != "off":
        warnings.warn(
            "the engine is not built here: cells run as plain torch, several times slower. "
            "Install a C++20 compiler (g++ or clang++), then install weft again",
            EngineWarning,
            stacklevel=3,
        )


def peak_flops() -> float:
    """Additions and multiplications a second on registers alone, on all threads that torch may use."""
    flops = ctypes.c_double()
    check(loaded_library().weft_peak(_peak_call(thread_count(), ctypes.addressof(flops))))
    return flops.value


def check(code: int) -> None:
    """Raises what the status of a call stands for."""
    if code == Status.ok:
        return
    if code == Status.out_of_memory:
        raise MemoryError("weft engine: out of memory")
    if code == Status.id_out_of_range:
        raise TensorError("a token id is outside the vocabulary", expected="ids from 0 to input_size - 1")
    if code == Status.length_out_of_range:
        raise TensorError("a length is outside of the batch", expected="lengths from 0 to the number of steps")
    if code == Status.cannot_sample:
        raise WeftError("Stream: sampling needs token ids and an output layer", expected="ids=True and a weight")
    raise RuntimeError("weft engine: a call failed")


def _declare(loaded: ctypes.CDLL) -> None:
    for name in FUNCTIONS:
        getattr(loaded, name).argtypes = [ctypes.c_void_p]
    loaded.weft_use_parallel_region.argtypes, loaded.weft_use_parallel_region.restype = [ctypes.c_void_p], None
    loaded.weft_use_parallel_region(_parallel_region())


def _check_layout(loaded: ctypes.CDLL, file: Path) -> None:
    """Refuses a library that was compiled from another interface: it would read other fields than are written."""
    try:
        loaded.weft_layout.argtypes, loaded.weft_layout.restype = [], ctypes.c_uint64
        found = loaded.weft_layout()
    except AttributeError:
        found = None
    if found != abi.layout():
        raise WeftError(
            f"the engine in {file} was built from other sources than this Python package",
            expected="a build of the same sources: run `pip install -e .` again, or set WEFT_ENGINE=off to do without",
        )


def _parallel_region() -> Any:
    """The entry point of the OpenMP runtime that torch has loaded, whose workers the core shares."""
    for library in openmp_libraries():
        if hasattr(library, "GOMP_parallel"):
            return ctypes.cast(library.GOMP_parallel, ctypes.c_void_p)
    return None
