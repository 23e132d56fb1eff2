"""What torchrun, or `weft train --workers`, tells a process about the group that it belongs to. Imports no torch."""

from __future__ import annotations

import os

from weft.errors import WeftError

LOST_CODE = 75  # the exit code of a worker that has lost the others (EX_TEMPFAIL: worth another try)


class LostWorkerError(WeftError):
    """Another worker, or the network to it, is gone. The run can be resumed from its last checkpoint."""


def in_group() -> bool:
    """Whether this process is one of several that train together."""
    return int(os.environ.get("WORLD_SIZE") or 1) > 1 and "RANK" in os.environ


def local_size() -> int:
    """The number of processes on this machine that train together."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or 1)


def is_first() -> bool:
    """Whether this process prints and writes: it is rank 0, or alone."""
    return not in_group() or os.environ["RANK"] == "0"


def is_first_here() -> bool:
    """Whether it is the first process on its machine, or alone."""
    return not in_group() or os.environ.get("LOCAL_RANK", "0") == "0"


def threads_of_worker(workers: int) -> int:
    """The threads of each of several workers on this machine: its cores, divided among them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)
