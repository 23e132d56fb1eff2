"""Where a command writes its results: standard output, or a file."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from weft.errors import WeftError


@contextmanager
def output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is complete.

    Links are followed. Pipes and devices are written to directly.
    """
    if path is None:
        if sys.stdout is None:
            raise WeftError("standard output is closed", expected="somewhere to write", hint="--out FILE")
        yield sys.stdout
        return
    try:
        mode = _mode(path)
        if mode is not None and stat.S_ISDIR(mode):
            raise WeftError(f"--out {path} is a folder", expected="a file", hint=f"--out {path / 'out.txt'}")
        real = Path(os.path.realpath(path))
        # /dev/stdout may be a link to a file that has been deleted.
        if mode is None or (stat.S_ISREG(mode) and real.exists()):
            with _beside(real, mode) as stream:
                yield stream
        else:
            with path.open("w", encoding="utf-8") as stream:
                yield stream
    except BrokenPipeError:
        raise  # the reader of the pipe has gone, as with standard output
    except OSError as error:
        raise WeftError(f"{path} cannot be written: {error.strerror or error}", expected="a writable file") from error


def _mode(path: Path) -> int | None:
    """The file mode at the path, links followed; None if nothing exists there."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


@contextmanager
def _beside(path: Path, mode: int | None) -> Iterator[TextIO]:
    """A temporary file beside the path, renamed when complete, with the permissions of the file that it replaces."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("w", encoding="utf-8") as stream:
            yield stream
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
