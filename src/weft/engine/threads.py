"""How many threads compute, and how torch and NumPy are held to one of them.

The engine's results have the same bits for any number of threads. Those of torch and of NumPy's BLAS need not: they
divide the sum of all elements of a tensor, and the depth of some matrix products, among their threads. So trainings and
operations of predictors hold both to one thread, while the engine, which does nearly all of the work, uses as many as
torch had.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.machine import engine_build

_PREFIXES = (("scipy_openblas_", "64_"), ("scipy_openblas_", ""), ("openblas_", "64_"), ("openblas_", ""))


class _Held(threading.local):
    threads = 0  # of torch, before this thread's torch was held to one; 0: it is not


_held = _Held()


def thread_count() -> int:
    """How many threads the engine uses: those of torch, or those that torch had before it was held to one."""
    return _held.threads or torch.get_num_threads()


@contextmanager
def reproducible() -> Iterator[None]:
    """Results in here do not depend on the number of threads: torch and NumPy use one, the engine as many as before.

    Changes nothing without the engine, since torch then does all of the work.
    """
    if _held.threads or not _has_engine():
        yield
        return
    with ExitStack() as stack:
        _held.threads = torch.get_num_threads()
        stack.callback(setattr, _held, "threads", 0)
        stack.callback(_hold_torch())
        _blas.hold()
        stack.callback(_blas.release)
        yield


@cache
def _has_engine() -> bool:
    return engine_build() is not None


def _hold_torch() -> Callable[[], None]:
    """Sets torch's threads to one, those of the calling thread alone where possible; returns what sets them back."""
    threads, runtime, products = _held.threads, _openmp(), _mkl()
    if runtime is None:
        torch.set_num_threads(1)
        return lambda: torch.set_num_threads(threads)
    runtime.omp_set_num_threads(1)
    before = products(1) if products is not None else 0

    def release() -> None:
        runtime.omp_set_num_threads(threads)
        if products is not None:
            products(before)

    return release


@cache
def openmp_libraries() -> tuple[ctypes.CDLL, ...]:
    """The GNU OpenMP runtimes beside torch; it has loaded the first."""
    found = []
    for file in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            found.append(ctypes.CDLL(str(file)))
        except OSError:
            continue
    return tuple(found)


@cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP runtime, whose number of threads is one of each thread's own; None where torch uses another."""
    return next((library for library in openmp_libraries() if hasattr(library, "omp_set_num_threads")), None)


@cache
def _mkl() -> Callable[[int], int] | None:
    """Sets the threads of MKL's products, for the calling thread; returns how many they were. None without MKL."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        function: Callable[[int], int] = library.MKL_Set_Num_Threads_Local
    except (OSError, AttributeError):
        return None
    return function


class _Blas:
    """The threads of NumPy's OpenBLAS, which all threads of the process share: one, while any thread holds them."""

    def __init__(self) -> None:
        self._lock, self._holders, self._threads = threading.Lock(), 0, 1

    def hold(self) -> None:
        with self._lock:
            self._holders += 1
            if self._holders == 1 and (functions := _openblas()):
                self._threads = functions[0]()
                functions[1](1)

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and (functions := _openblas()):
                functions[1](self._threads)


_blas = _Blas()


@cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], Any]] | None:
    """The functions of OpenBLAS that return and set its threads; None where NumPy has another BLAS."""
    try:
        library = ctypes.CDLL(np.linalg._umath_linalg.__file__)
    except (OSError, AttributeError):
        return None
    for prefix, suffix in _PREFIXES:
        names = f"{prefix}get_num_threads{suffix}", f"{prefix}set_num_threads{suffix}"
        if all(hasattr(library, name) for name in names):
            return getattr(library, names[0]), getattr(library, names[1])
    return None
