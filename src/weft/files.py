"""Files that are written completely or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file beside its place and renames it: a kill at any moment leaves the old file or the new one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "note", b"one")
    ...     os.listdir(folder)
    ['note']
    """
    beside = path.with_name(f"{path.name}.partial")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def file_hash(path: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
