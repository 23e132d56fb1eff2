"""Where a command's results go: standard output, or a file."""

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
    """Standard output, or a file that appears when it is whole.

    A link is followed to the file it stands for. What is no regular file, such as a pipe or a device, is written into.
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
        # A name such as /dev/stdout may stand for a file that has none of its own any more.
        if mode is None or (stat.S_ISREG(mode) and real.exists()):
            with _beside(real, mode) as stream:
                yield stream
        else:
            with path.open("w", encoding="utf-8") as stream:
                yield stream
    except BrokenPipeError:
        raise  # whoever read the pipe has gone, as behind standard output
    except OSError as error:
        raise WeftError(
            f"{path} cannot be written: {error.strerror or error}", expected="a file I may write"
        ) from error


def _mode(path: Path) -> int | None:
    """What stands at the end of the path, links followed; nothing, if it is yet to be made."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


@contextmanager
def _beside(path: Path, mode: int | None) -> Iterator[TextIO]:
    """A file that is written beside its place and renamed into it, with the rights of the one that it replaces."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("w", encoding="utf-8") as stream:
            yield stream
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
