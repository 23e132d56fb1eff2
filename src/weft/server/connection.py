"""A connection to a client: how large the head of a request may be, and how long the client may keep it waiting.

uvicorn has a limit of neither with its parser httptools: it keeps heads, requests that are half sent and answers that
nobody reads for as long as the client is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.server.config import ServerConfig

HEAD_BYTES = 1 << 16
PIPELINED = 100  # requests that may wait for the answer to an earlier one of their connection


class Connection(HttpToolsProtocol):
    """A connection with limits. `end_overdue` is to be called now and then."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()  # when it was opened, a request began, or an answer was complete
        self._unread_since: float | None = None  # since when it has waited for the client to read
        self._in_head = True
        self._fields = 0  # bytes of the fields of a head
        self._unparsed = 0  # bytes since the parser came to the end of a head, of a part of a body, or of a message

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def on_message_begin(self) -> None:
        self._since, self._in_head, self._fields = self.loop.time(), True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += len(name) + len(value)
        if self._fields > HEAD_BYTES:
            raise ValueError("the head is too large")  # ends the parsing, which closes the connection
        if self._in_head:  # else it is a field after the body, which nothing here reads
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._unparsed = False, 0
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            raise ValueError("too many requests at once")

    def on_chunk_header(self) -> None:
        self._unparsed = 0

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        if self._fields > HEAD_BYTES:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        message = f"the head of the request has more than {HEAD_BYTES:,} bytes".encode()
        status = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Type: text/plain\r\n"
        self.transport.write(b"%sContent-Length: %d\r\n\r\n%s" % (status, len(message), message))
        self.transport.close()

    def end_if_overdue(self, now: float, config: ServerConfig) -> None:
        """Ends the connection if its client sends or reads too slowly; while a request is answered it has time."""
        waited = now - self._since
        if self._unread_since is not None and now - self._unread_since > config.timeout:
            self.transport.abort()
        elif self.transport.is_closing():  # when what was written has been read
            if waited > config.timeout:
                self.transport.abort()
        elif (self.cycle is None or self.cycle.response_complete) and waited > config.read_timeout:
            self.transport.close()


def end_overdue(connections: Iterable[asyncio.Protocol], config: ServerConfig) -> None:
    """Ends the connections whose clients take too long."""
    now = asyncio.get_running_loop().time()
    for connection in list(connections):
        assert isinstance(connection, Connection)
        connection.end_if_overdue(now, config)
