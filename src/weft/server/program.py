"""Runs the server: uvicorn, signals, and the line that says where it listens."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import warnings
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn

from weft.errors import WeftError, WeftWarning
from weft.server.app import Server
from weft.server.config import ServerConfig
from weft.server.connection import Connection, end_overdue
from weft.server.guard import is_loopback

SWITCH_SECONDS = 0.0005  # so that a computing thread does not keep the event loop waiting for 5 ms
BACKLOG = 2048  # connections that wait to be accepted
TICKS = 10  # of uvicorn, a tenth of a second each, between two looks at the connections
GRACE_SECONDS = 30  # for requests that run when the server is asked to stop


class _Uvicorn(uvicorn.Server):
    """Ends with code 0 on SIGTERM and SIGINT, after the running requests."""

    def __init__(self, config: uvicorn.Config, server: Server, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self.server, self.ready = server, ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for one in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(one, self._stop)
        yield

    def _stop(self) -> None:
        """Finishes the running requests; asked again, cuts them off."""
        if self.should_exit:
            self.force_exit = True
        elif running := len(self.server_state.tasks):
            print(f"weft: finishing requests: {running}; a second signal cuts them off", file=sys.stderr, flush=True)
        self.server.stopping = self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            end_overdue(self.server_state.connections, self.server.config)
        return await super().on_tick(counter)

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self.ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")


def _is_no_cut(record: logging.LogRecord) -> bool:
    """Whether a record of uvicorn's says something else than that a request or a stream was cut off."""
    cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and not record.getMessage().rstrip().endswith(
        ("CancelledError", "without completing response.")
    )


def run_server(
    runs: Mapping[str, Path], config: ServerConfig, *, open_page: bool = False, insecure: bool = False
) -> None:
    """Serves models, by their names, until the process is asked to stop.

    Raises:
        WeftError: A run cannot be loaded, or the address is not free or needs a key, unless `insecure`.
    """
    if not is_loopback(config.host) and config.api_key is None and not insecure:
        raise WeftError(
            f"the host {config.host} can be reached from other machines",
            expected="--api-key-file FILE, or --insecure if everyone there may use the models",
        )
    with _bound(config) as sockets:  # before the models are loaded, which takes seconds
        _run(runs, config, sockets, open_page=open_page)


def _run(runs: Mapping[str, Path], config: ServerConfig, sockets: list[socket.socket], *, open_page: bool) -> None:
    """Loads the models and serves them on bound sockets."""
    sys.setswitchinterval(SWITCH_SECONDS)
    server = Server(runs, config)
    warnings.simplefilter("ignore", WeftWarning)  # of texts of requests
    if not config.reload:
        # The modules and models stay as long as the process: a garbage collection need not visit them, and is short.
        gc.collect()
        gc.freeze()

    def ready(address: str) -> None:
        names = ", ".join(runs)
        print(f"weft: serving {names} at {address}", file=sys.stderr, flush=True)
        if open_page:
            # The page takes the key out of its address at once; a browser does not send this part to a server.
            webbrowser.open(address + (f"#key={quote(config.api_key)}" if config.api_key else ""))

    settings = uvicorn.Config(
        server.app,
        http=Connection,
        ws="none",
        proxy_headers=False,
        access_log=False,
        log_level="error",
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_cut)
    program = _Uvicorn(settings, server, ready)
    try:
        program.run(sockets)
    except OSError as error:  # another process began to listen while the models were loaded
        raise _cannot_listen(config, error) from error
    finally:
        # After a second signal uvicorn has not: a thread that computes while the interpreter ends aborts the process.
        server.stop()


@contextlib.contextmanager
def _bound(config: ServerConfig) -> Iterator[list[socket.socket]]:
    """Sockets on every address of the host, which do not listen yet."""
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as opened:
        try:
            found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in found:
                one = opened.enter_context(socket.socket(family, kind, protocol))
                if os.name == "posix":  # a port of a server that has just ended is free
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # Where any free port will do, all addresses have the same.
                one.bind((address[0], sockets[0].getsockname()[1] if sockets else address[1], *address[2:]))
                sockets.append(one)
        except OSError as error:
            raise _cannot_listen(config, error) from error
        yield sockets


def _cannot_listen(config: ServerConfig, error: OSError) -> WeftError:
    given = f"the server cannot listen on {config.host}:{config.port}: {error.strerror}"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return WeftError(given, expected="an address of this machine", hint="--host 127.0.0.1")
    return WeftError(given, expected="a free port", hint="--port 0")
