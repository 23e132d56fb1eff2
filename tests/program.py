"""The program `weft` as tests run it: in this process, in one of its own, or killed and resumed."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file

from weft.errors import WeftWarning

# Every one of the given is refused in words.
REFUSED = """
def refused(call, *given):
    for one in given:
        try:
            call(one)
        except weft.WeftError as error:
            assert "expected a" in str(error), error
        else:
            raise AssertionError(one)
"""

FIRST_SEED = 67280421310721  # of torch in a new process
Done = subprocess.CompletedProcess  # of str: returncode, stdout, stderr


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "weft", *map(str, arguments)]


@contextlib.contextmanager
def as_a_process(cwd: Path | str | None, columns: int = 80) -> Iterator[None]:
    """What a process has of its own: folder, environment, threads, handlers of messages, torch's random numbers."""
    folder, threads = Path.cwd(), torch.get_num_threads()
    root, weft_log = logging.getLogger(), logging.getLogger("weft")
    handlers, level = root.handlers[:], weft_log.level
    root.handlers.clear()
    try:
        with patch.dict(os.environ, {"COLUMNS": str(columns)}), torch.random.fork_rng([]):
            torch.manual_seed(FIRST_SEED)
            os.chdir(cwd or folder)
            yield
    finally:
        root.handlers[:] = handlers
        weft_log.setLevel(level)
        torch.set_num_threads(threads)
        os.chdir(folder)


def weft(*arguments: Any, stdin: str | None = None, cwd: Path | str | None = None, columns: int = 80) -> Done[str]:
    """Runs the program in this process, to its end; workers are processes of their own, and so is what starts them."""
    if "--workers" in arguments:
        return weft_process(*arguments, stdin=stdin, cwd=cwd)
    from weft.cli import main

    texts = ((stdin or "").encode(), b"", b"")
    stdin_stream, stdout, stderr = (io.TextIOWrapper(io.BytesIO(text), encoding="utf-8") for text in texts)
    own = {"argv": ["weft", *map(str, arguments)], "stdin": stdin_stream, "stdout": stdout, "stderr": stderr}
    code: int | str | None = 0
    with as_a_process(cwd, columns), patch.multiple(sys, **own):
        try:
            main()
        except SystemExit as end:
            code = end.code
    for stream in (stdout, stderr):
        stream.flush()
    shown = (stream.buffer.getvalue().decode() for stream in (stdout, stderr))  # type: ignore[attr-defined]
    return Done(arguments, code if isinstance(code, int) else 0, *shown)


def weft_process(*arguments: Any, stdin: str | None = None, cwd: Path | str | None = None) -> Done[str]:
    """Runs the program in a process of its own."""
    environment = {**os.environ, "PYTHONUTF8": "1"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 600}
    return subprocess.run(command(*arguments), input=stdin, cwd=cwd, env=environment, check=False, **options)


def run_script(code: str, *, cwd: Path | str | None = None) -> None:
    """Runs a user's Python code, which must succeed, in this process."""
    with as_a_process(cwd), warnings.catch_warnings():
        warnings.simplefilter("ignore", WeftWarning)  # which are printed
        exec(compile(code, "<script>", "exec"), {"__name__": "__main__"})


def start(*arguments: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def succeeds(*arguments: Any, **options: Any) -> Done[str]:
    done = weft(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def fails(*arguments: Any, **options: Any) -> str:
    """A user's mistake: exit code 2, one message, no traceback, nothing on standard output."""
    done = weft(*arguments, **options)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def check_kill_and_resume(folder: Path, *training: Any) -> None:
    """Training that is killed and resumed ends in the weights of one that is not, bit for bit."""
    straight, killed = folder / "straight", folder / "killed"
    succeeds(*training, "--out", straight)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(*training, "--out", killed), **quiet)
    metrics = killed / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") > 1):
        time.sleep(0.01)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = succeeds(*training, "--out", killed, "--resume")
    assert re.search(r"after step [1-9]", done.stderr)
    for name in ("weights.safetensors", "checkpoint.safetensors"):
        one, other = load_file(straight / name), load_file(killed / name)
        assert one.keys() == other.keys()
        assert all(one[key].equal(other[key]) for key in one), name
