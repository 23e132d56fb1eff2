"""`weft train --workers N`: the same command in N processes of this machine, restarted when one of them is killed.

It does what `torchrun --standalone --nproc-per-node=N --max-restarts=3` does, with two differences: a user's mistake
ends it at once, and nothing but weft's own output is printed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from weft.training.environment import LOST_CODE, threads_of_worker

RESTARTS = 3  # of all workers, after one of them was killed
END_SECONDS = 15.0  # for the others to end after one has
_POLL_SECONDS = 0.05


def run_workers(count: int, threads: int | None) -> int:
    """Runs this command in so many processes; each has its share of the cores, or `threads`. Returns the exit code."""
    for restart in range(RESTARTS + 1):
        workers = _start(count, threads, restart)
        with handling_signals(partial(_forward, workers)):
            code = _supervise(workers)
        if code >= 0 and code != LOST_CODE:
            return code
        if restart < RESTARTS:
            print(f"weft: a worker was lost ({_reason(code)}): restart {restart + 1} of {RESTARTS}", file=sys.stderr)
    print(f"weft: a worker was lost ({_reason(code)}) after {RESTARTS} restarts", file=sys.stderr)
    return 1


def _start(count: int, threads: int | None, restart: int) -> list[subprocess.Popen[bytes]]:
    common = {
        **os.environ,
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "TORCHELASTIC_RESTART_COUNT": str(restart),
        "OMP_NUM_THREADS": str(threads or threads_of_worker(count)),
    }
    command = [sys.executable, "-m", "weft", *sys.argv[1:]]
    return [
        subprocess.Popen(command, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(count)
    ]


def _supervise(workers: list[subprocess.Popen[bytes]]) -> int:
    """Waits until all have ended, or one has failed. Returns the exit code; negative: the signal that ended one."""
    while True:
        codes = [worker.poll() for worker in workers]
        failed = [code for code in codes if code]
        if failed or None not in codes:
            break
        time.sleep(_POLL_SECONDS)
    _end(workers)
    # A worker that is killed makes the others lose contact, which is not the cause.
    causes = [code for code in failed if code != LOST_CODE]
    return (causes or failed or [0])[0]


def _end(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        if worker.poll() is None:
            worker.terminate()
    deadline = time.monotonic() + END_SECONDS
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _forward(workers: list[subprocess.Popen[bytes]]) -> None:
    """Passes Ctrl-C and SIGTERM on to the workers, which finish their step and save."""
    for worker in workers:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)


@contextmanager
def handling_signals(handle: Callable[[], None], *, once: bool = False) -> Iterator[None]:
    """Calls `handle` when Ctrl-C or SIGTERM comes in the block; with `once`, a second one ends the program."""

    def handler(number: int, frame: object) -> None:
        handle()
        if once:
            signal.signal(number, previous[signal.Signals(number)])

    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def _reason(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else "no contact"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
