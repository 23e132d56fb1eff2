"""One process trains a run at a time: a lock of the operating system on a file of the run.

The system releases the lock when its holder ends, a kill included. The file names the holder, for messages; it stays
behind and means nothing by itself.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
import weakref
from pathlib import Path

from weft.errors import WeftError, warn

if sys.platform != "win32":
    import fcntl

LOCK = "lock"
_UNSUPPORTED = (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)

# The locks of this process by the identity of their file, so that it can resume a run that it has itself started.
_held: weakref.WeakValueDictionary[tuple[int, int, int], RunLock] = weakref.WeakValueDictionary()


class RunLock:
    """The right to train a run. It is held until `release`, or until nobody refers to it any more."""

    def __init__(self, descriptor: int) -> None:
        self._close = weakref.finalize(self, os.close, descriptor)

    @property
    def held(self) -> bool:
        return self._close.alive

    def release(self) -> None:
        """Let other processes train the run."""
        self._close()


def lock_run(folder: Path) -> RunLock:
    """Takes the lock of a run directory, which stays with a folder that is renamed.

    Returns:
        The lock; the same one if this process holds it already.

    Raises:
        WeftError: Another process holds it.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    status = os.fstat(descriptor)
    identity = (os.getpid(), status.st_dev, status.st_ino)
    held = _held.get(identity)
    if held is not None and held.held:
        os.close(descriptor)
        return held
    try:
        _lock(descriptor)
    except OSError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
        os.close(descriptor)
        raise WeftError(
            f"{folder} is being trained by {holder}",
            expected="one process at a time",
            hint="wait until it has ended, or a new run in another `out`",
        ) from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())
    lock = _held[identity] = RunLock(descriptor)
    return lock


def is_locked(folder: Path) -> bool:
    """Whether a process trains the run now."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _UNSUPPORTED
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        _warn("weft cannot lock files on this system")
    else:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            _warn(f"the file system cannot lock files ({error.strerror})")


def _warn(reason: str) -> None:
    warn(f"{reason}: do not train one run in two processes at a time")
