"""A memory pool for large tensors, which reuses the blocks of tensors that were freed.

The system clears every page on first touch, one at a time: a training step that allocates megabytes waits longer for
pages than for computation. A tensor from the pool is an ordinary one; when torch frees it, its block waits for the next
request of about that size. The unused blocks are at most 128 MB, or as much as brings the pool to its recent peak of
use: a step over long sequences uses gigabytes, and the next one needs them again.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from typing import NamedTuple

import torch
from torch import Tensor

SMALLEST = 1 << 19  # bytes; the system's allocator is faster for less
MOST_WAITING = 1 << 27  # bytes of unused blocks, beyond the recent peak of use
RECENT = 256  # requests; a peak counts for one to two times as many
_HUGE = 1 << 21  # bytes of a huge page: fewer page faults, fewer TLB misses


class _Block(NamedTuple):
    size: int
    memory: mmap.mmap


class MemoryPool:
    def __init__(self) -> None:
        self.waiting: list[_Block] = []  # least recently used first
        self._waiting_size = self._lent_size = 0
        self._requests, self.peak, self._peak_before = 0, 0, 0  # peaks of _lent_size, in RECENT requests each
        self._lent: dict[int, tuple[weakref.ref[memoryview], _Block]] = {}  # by the reference's identity
        self._lock = threading.RLock()  # a tensor may be freed while this thread holds it

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialized tensor on the CPU."""
        count = math.prod(shape)
        if count * dtype.itemsize < SMALLEST:
            return torch.empty(*shape, dtype=dtype)
        block = self._take(count * dtype.itemsize)
        view = memoryview(block.memory)
        reference = weakref.ref(view, self._give_back)
        with self._lock:
            self._lent[id(reference)] = reference, block
        flat = torch.frombuffer(view, dtype=dtype, count=count)
        return flat if len(shape) == 1 else flat.view(*shape)

    def empty_like(self, tensor: Tensor) -> Tensor:
        """An uninitialized tensor of the shape and type of this contiguous one."""
        if tensor.nbytes < SMALLEST:
            return torch.empty_like(tensor)
        return self.empty(tuple(tensor.shape), tensor.dtype)

    def _take(self, size: int) -> _Block:
        """The smallest unused block that fits and is less than half wasted, or a new one."""
        with self._lock:
            best = None
            for block in self.waiting:
                if size <= block.size <= 2 * size and (best is None or block.size < best.size):
                    best = block
            if best is not None:
                self.waiting.remove(best)
                self._waiting_size -= best.size
            unit = _HUGE if size >= _HUGE else SMALLEST
            size = -(-size // unit) * unit if best is None else best.size
            self._lent_size += size
            self._requests += 1
            if self._requests % RECENT == 0:
                self._peak_before, self.peak = self.peak, 0
            self.peak = max(self.peak, self._lent_size)
            self._trim()
        if best is not None:
            return best
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        return _Block(size, memory)

    def _give_back(self, reference: weakref.ref[memoryview]) -> None:
        with self._lock:
            block = self._lent.pop(id(reference))[1]
            self.waiting.append(block)
            self._waiting_size += block.size
            self._lent_size -= block.size
            self._trim()

    def _trim(self) -> None:
        """Returns unused blocks to the system, the least recently used first."""
        most = max(MOST_WAITING, self.peak - self._lent_size, self._peak_before - self._lent_size)
        while self._waiting_size > most:
            self._waiting_size -= self.waiting.pop(0).size


_pool = MemoryPool()
empty, empty_like = _pool.empty, _pool.empty_like
