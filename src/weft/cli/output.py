"""Where a command's results go: standard output, or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from weft.errors import WeftError


@contextmanager
def output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is whole."""
    if path is None:
        yield sys.stdout
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("w", encoding="utf-8") as stream:
            yield stream
        beside.replace(path)
    except OSError as error:
        raise WeftError(
            f"{path} cannot be written: {error.strerror or error}", expected="a file I may write"
        ) from error
    finally:
        beside.unlink(missing_ok=True)
