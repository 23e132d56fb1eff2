"""The program `weft` in a process of its own, without the two seconds in which a new Python imports torch.

A server imports weft once. For each command it forks: the child takes over the standard streams, the folder and the
environment of the client and runs the program to its end. Exit code, output and files are those of `python -m weft`.

    python -m tests.forked serve SOCKET             the server
    python tests/forked.py SOCKET [ARGUMENT ...]    a client, in place of `python -m weft [ARGUMENT ...]`
    python tests/forked.py SOCKET --script CODE [ARGUMENT ...]    a client, in place of `python -c CODE [ARGUMENT ...]`

Where there is no fork or no server, `python -m weft` itself runs.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SCRIPT = "--script"
FROM_START = frozenset({"OMP_NUM_THREADS", "WEFT_ENGINE", "PYTHONUTF8", "PYTHONPATH", "CXX"})  # read when Python starts


def run(path: str, arguments: list[str], streams: tuple[int, int, int], cwd: str, environment: dict[str, str]) -> int:
    """Runs a command by the server; returns its exit code as the shell has it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = json.dumps({"arguments": arguments, "cwd": cwd, "environment": environment}).encode()
        socket.send_fds(connection, [len(request).to_bytes(8, "little")], list(streams))
        connection.sendall(request)
        return int.from_bytes(connection.recv(4), "little", signed=True)


def _serve(path: str) -> None:
    import weft.cli
    from weft.tasks import TASKS, get_task

    for name in TASKS:
        get_task(name)
    weft.cli.app(["train", "lm", "--show-config"], standalone_mode=False)  # what the first command imports
    gc.freeze()  # a collection in a child would copy every page that has an object
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the process of a connection
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        Path(f"{path}.ready").touch()
        parent = os.getppid()
        server.settimeout(1)
        while os.getppid() == parent:  # a killed test run leaves no server behind
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                _answer(connection)
            connection.close()


def _answer(connection: socket.socket) -> None:
    """In a process of the connection: runs its command in another one, and reports the exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.setblocking(True)
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    size, data = int.from_bytes(head, "little"), b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    child = os.fork()
    if child == 0:
        _become(json.loads(data), streams)
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(code.to_bytes(4, "little", signed=True))
    os._exit(0)


def _become(request: dict, streams: list[int]) -> None:
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 256)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        arguments = request["arguments"]
        if arguments[:1] == [SCRIPT]:
            sys.argv = ["-c", *arguments[2:]]
            sys.path.insert(0, "")
            exec(compile(arguments[1], "<script>", "exec"), {"__name__": "__main__"})
        else:
            from weft.cli import main

            sys.argv = ["weft", *arguments]
            main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


class _Server:
    """The server of this process, started when it is first needed."""

    path: str | None = None

    def start(self) -> str | None:
        if self.path is None and hasattr(os, "fork"):
            folder = tempfile.TemporaryDirectory(prefix="weft-forked-")
            path = f"{folder.name}/socket"
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", "serve", path],
                cwd=Path(__file__).parents[1],
                env={**os.environ, "PYTHONUTF8": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            while process.poll() is None and not Path(f"{path}.ready").exists():
                threading.Event().wait(0.02)
            if process.poll() is None:
                self.path = path
                atexit.register(lambda: (process.terminate(), process.wait(), folder.cleanup()))
        return self.path


SERVER = _Server()


def command(arguments: list[str], environment: dict[str, str]) -> list[str]:
    """The command line that runs `weft` with these arguments; by the server unless the environment prevents it."""
    path = None if FROM_START & environment.keys() else SERVER.start()
    return [sys.executable, "-m", "weft", *arguments] if path is None else [*client(path), *arguments]


def client(path: str) -> list[str]:
    return [sys.executable, "-S", str(Path(__file__)), path]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(sys.argv[2])
    else:
        ended = run(sys.argv[1], sys.argv[2:], (0, 1, 2), str(Path.cwd()), dict(os.environ))
        if ended < 0:  # ended by a signal: so does the client
            signal.signal(-ended, signal.SIG_DFL)
            os.kill(os.getpid(), -ended)
        sys.exit(ended)
