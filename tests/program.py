"""The program `weft` as tests run it: in a process of its own, to its end, or killed and resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

from safetensors.torch import load_file

from tests import forked


def command(*arguments):
    return [sys.executable, "-m", "weft", *map(str, arguments)]


def weft(*arguments, stdin=None, cwd=None, **environment):
    return subprocess.run(
        forked.command([*map(str, arguments)], environment),
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        timeout=120,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
    )


def run_script(code, **options):
    """Runs Python code in a process of its own; it must succeed."""
    subprocess.run(forked.command([forked.SCRIPT, code], {}), check=True, timeout=60, **options)


def start(*arguments):
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def succeeds(*arguments, **options):
    done = weft(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def fails(*arguments, **options):
    """A user's mistake: exit code 2, one message, no traceback, nothing on standard output."""
    done = weft(*arguments, **options)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def check_kill_and_resume(folder, *training):
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
