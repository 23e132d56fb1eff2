"""Connections whose clients send too much, send slowly or do not read; each by a socket to a small application."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
import uvicorn
from uvicorn.server import ServerState

from weft.server.config import ServerConfig
from weft.server.connection import HEAD_BYTES, PIPELINED, Connection, end_overdue

LONG = ServerConfig()
SHORT = ServerConfig(read_timeout=1.0, timeout=1.0)
LARGE = 12_000_000  # bytes: more than the kernel keeps for a client that does not read
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Served:
    """A server whose application reads no body."""

    def __init__(self, size: int) -> None:
        self.size, self.answered, self.state = size, 0, ServerState()
        self.headers: list[tuple[bytes, bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def app(self, scope, receive, send):
        self.answered += 1
        await asyncio.sleep(0.02)
        self.headers = scope["headers"]
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"%d" % self.size)]})
        await send({"type": "http.response.body", "body": b"x" * self.size})

    async def connect(self):
        reader, writer = await asyncio.open_connection(sock=self.socket())
        self.writers.append(writer)
        return reader, writer

    def socket(self):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", self.port))
        return one

    async def ended(self, seconds=8.0):
        """Whether all connections end by themselves."""
        end = asyncio.get_running_loop().time() + seconds
        while self.state.connections and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        return not self.state.connections


def serve(test, size=10, limits=LONG):
    """Runs a test in the loop of a server, which looks at its connections often."""

    async def run():
        served = Served(size)
        options = {"http": Connection, "interface": "asgi3", "ws": "none", "lifespan": "off", "log_level": "error"}
        settings = uvicorn.Config(served.app, **options)
        settings.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(settings, served.state, {}), "127.0.0.1", 0)
        served.port = server.sockets[0].getsockname()[1]

        async def watch():
            while True:
                end_overdue(served.state.connections, limits)
                await asyncio.sleep(0.05)

        watching = asyncio.ensure_future(watch())
        try:
            await asyncio.wait_for(test(served), 30)
        finally:
            watching.cancel()
            server.close()
            for connection in list(served.state.connections):
                connection.transport.abort()
            for writer in served.writers:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    asyncio.run(run())


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (HEAD, b"a: " + b"b" * 1000 + b"\r\n"),
        (HEAD, b"a:\r\n" * 200),
        (HEAD + b"a: ", b"b" * 1000),
        (HEAD, b"b" * 1000),
        (b"GET /", b"b" * 1000),
        (b"", b"\r\n" * 500),
        (CHUNKED + b"1;", b"b" * 1000),
        (CHUNKED + b"0\r\n", b"a: " + b"b" * 1000 + b"\r\n"),
    ],
    ids=["fields", "empty fields", "value", "name", "path", "nothing", "chunk extension", "trailer"],
)
@pytest.mark.parametrize("times", [1, 40], ids=["slowly", "at once"])
def test_a_head_without_end_is_refused(begin, part, times):
    async def test(served):
        _, writer = await served.connect()
        writer.write(begin)
        sent = 0
        while served.state.connections or not sent:  # that is, long before it is late
            writer.write(part * times)
            sent += len(part) * times
            await asyncio.sleep(0.001)
            assert sent < 4 * HEAD_BYTES + (1 << 20), "it is kept"

    serve(test)


def test_a_head_that_is_too_large_is_refused_with_the_limit():
    async def test(served):
        fields = b"".join(b"%d: %s\r\n" % (number, b"b" * 995) for number in range(100, 200))
        for head in (HEAD + fields[: HEAD_BYTES - len(HEAD) + 1], HEAD + b"a: " + b"b" * (HEAD_BYTES - len(HEAD) - 2)):
            reader, writer = await served.connect()
            writer.write(head)
            found = await reader.read()
            assert found.startswith(b"HTTP/1.1 431 ")
            assert found.endswith(b"the head of the request has more than 65,536 bytes")
        assert not served.answered

    serve(test)


def test_a_large_head_is_answered_and_a_field_after_the_body_is_no_header():
    async def test(served):
        reader, writer = await served.connect()
        writer.write(HEAD + b"a: " + b"b" * 60_000 + b"\r\n\r\n")
        assert b" 401 " in await reader.readline()
        await asyncio.sleep(0.1)
        assert dict(served.headers)[b"a"] == b"b" * 60_000
        writer.write(CHUNKED + b"3\r\nabc\r\n0\r\nHost: evil.example\r\n\r\n")
        while served.answered < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert [value for name, value in served.headers if name == b"host"] == [b"localhost"]

    serve(test)


def test_a_connection_ends_whatever_comes_after_the_answer():
    """A byte of the body, or a line end, stops uvicorn's timer."""

    async def test(served):
        connections = [await served.connect() for _ in range(30)]
        for number, (_, writer) in enumerate(connections):
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (999 * (number % 2)))
        for reader, _ in connections:
            assert b" 401 " in await reader.readline()
        await asyncio.sleep(0.1)
        for number, (_, writer) in enumerate(connections):
            writer.write((b"\r\n", b"a", b"")[number % 3])
        assert await served.ended()

    serve(test, limits=SHORT)


def test_a_body_that_comes_after_the_answer_keeps_the_connection():
    async def test(served):
        reader, writer = await served.connect()
        for count in (1, 2):
            writer.write(HEAD + b"Content-Length: 200000\r\n\r\n")
            while served.answered < count:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            writer.write(b"a" * 200_000)
            await writer.drain()
        await asyncio.sleep(0.1)
        writer.write_eof()
        assert (await reader.read()).count(b" 401 ") == 2

    serve(test)


def test_an_answer_that_nobody_reads_is_not_kept():
    async def test(served):
        sockets = [served.socket() for _ in range(6)]
        for number, one in enumerate(sockets):  # alone, pipelined, and where the connection ends after it
            one.sendall((GET, GET * 3, GET.replace(b"1.1", b"1.0"))[number % 3])
        while served.answered < 6:
            await asyncio.sleep(0.02)
        assert len(served.state.connections) == 6
        assert await served.ended()
        for one in sockets:
            one.close()

    serve(test, LARGE, SHORT)


def test_an_answer_that_is_read_arrives_whole():
    async def test(served):
        reader, writer = await served.connect()
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        found = await reader.read()
        assert found.endswith(b"x" * LARGE)

    serve(test, LARGE)


def test_many_requests_at_once_are_refused():
    async def test(served):
        _, writer = await served.connect()
        writer.write(GET * (PIPELINED // 2))
        while served.answered < PIPELINED // 2:
            await asyncio.sleep(0.01)
        writer.write(GET * 1000)
        assert await served.ended()
        assert served.answered < PIPELINED + 10

    serve(test)
