"""Commands of weft in processes of their own, for the checks that run several of them at a time."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 300  # seconds for any training


def weft(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "weft", *arguments]


def torchrun(options: list[str], *arguments: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", "weft", *arguments]


def finish(arguments: list[str]) -> str:
    """Runs a command to its end; returns what it wrote to standard error."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stderr


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def count_lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


def wait_for_lines(file: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Waits until a training has reported so often, or has ended."""
    while process.poll() is None and count_lines(file) < count:
        time.sleep(0.01)
