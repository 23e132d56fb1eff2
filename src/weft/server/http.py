"""One request: its body within limits, its computation as long as the client is there, its response.

An `Endpoint` is a row of the table of routes; `/openapi.json` is made from the same rows.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weft.server.comparison import Comparisons
from weft.server.config import ServerConfig
from weft.server.errors import RequestError
from weft.server.metrics import Metrics
from weft.server.models import Models
from weft.server.schema import Schema, check_value, parse_json
from weft.server.sessions import SessionStore

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FORM_PARTS, LONGEST_HEAD = 100, 1000  # of a multipart form: parts, bytes of the head of each


class ClientGoneError(Exception):
    """The client closed the connection; nobody reads a response."""


@dataclass(frozen=True)
class Context:
    """What handlers work with."""

    config: ServerConfig
    models: Models
    sessions: SessionStore
    comparisons: Comparisons
    metrics: Metrics
    files: dict[str, tuple[float, str]] = field(default_factory=dict)  # translated files: when they were made, and text


class Result(NamedTuple):
    """A kind of response: what it is, its schema, its media type."""

    description: str
    schema: Schema | None = None
    media: str = JSON


Handler = Callable[[Context, Request, Any], Coroutine[Any, Any, Response]]


@dataclass(frozen=True)
class Endpoint:
    """A route."""

    method: str  # GET, POST or DELETE
    path: str  # with parameters in braces
    handler: Handler  # context, request and checked body to a response
    summary: str  # one line
    body: Schema | None = None  # the schema of its JSON body; None: it has none
    form: bool = False  # whether the body may also be a form
    results: Mapping[int, Result] = field(default_factory=lambda: {200: Result("The result.")})  # by status
    errors: tuple[int, ...] = ()  # statuses of its own errors
    query: Mapping[str, Schema] = field(default_factory=dict)  # schemas of query parameters
    # for a path parameter the values it may have, where they are few
    choices: Mapping[str, list[str]] = field(default_factory=dict)
    public: bool = False  # whether it needs no API key
    streams: tuple[str, ...] = ()  # other media types of the response, which is then sent while it is computed


class JsonResponse(Response):
    """A JSON value. NaN is refused: it is no JSON."""

    media_type = JSON

    def render(self, content: Any) -> bytes:
        return ENCODE(content).encode("utf-8")


async def large_json(value: Callable[[], Any]) -> Response:
    """A JSON value that may be large: made, and encoded part by part, by another thread.

    One call of `json` for all of it holds the interpreter, and every other request, until it ends.
    """

    def encode() -> bytes:
        text = io.StringIO()
        _write_json(value(), text.write)
        return text.getvalue().encode("utf-8")

    return Response(await asyncio.to_thread(encode), media_type=JSON)


ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _write_json(value: Any, write: Callable[[str], Any]) -> None:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    if not any(isinstance(one, (dict, list, tuple)) for one in parts):
        write(ENCODE(value))
    elif isinstance(value, dict):
        for number, (name, part) in enumerate(value.items()):
            write(f"{',' if number else '{'}{ENCODE(name)}:")
            _write_json(part, write)
        write("}")
    else:
        for number, part in enumerate(value):
            write("," if number else "[")
            _write_json(part, write)
        write("]")


async def read_body(request: Request, endpoint: Endpoint, config: ServerConfig) -> Any:
    """The checked body of a request, or None where the endpoint has none.

    Raises:
        RequestError: 400, 408, 413 or 415.
    """
    if endpoint.body is None:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and not (endpoint.form and kind in (FORM, MULTIPART)):
        expected = f"{JSON}, {FORM} or {MULTIPART}" if endpoint.form else JSON
        raise RequestError(415, f"the content type is {kind[:100] or 'missing'}; expected {expected}")
    try:
        body = await asyncio.wait_for(_read(request, config.max_body), config.read_timeout)
    except asyncio.TimeoutError:
        raise RequestError(
            408, f"the body did not arrive within {config.read_timeout:g} seconds", headers={"Connection": "close"}
        ) from None
    if kind == MULTIPART:
        value = _read_parts(body, request.headers["content-type"])
    else:
        value = parse_json(body) if kind == JSON else _read_form(body)
    check_value(endpoint.body, value)
    return value


async def _read(request: Request, most: int) -> bytes:
    given = request.headers.get("content-length", "")
    if given.isdigit() and int(given) > most:
        raise _too_large(most)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _too_large(most: int) -> RequestError:
    return RequestError(413, f"the body has more than {most:,} bytes", headers={"Connection": "close"})


def _read_form(body: bytes) -> dict[str, Any]:
    from urllib.parse import parse_qsl

    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except (UnicodeError, ValueError) as error:
        raise RequestError(400, f"the form cannot be read: {error}") from error
    return _fields(pairs)


def _fields(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a form; one that comes several times is a list."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), value]
        else:
            found[name] = int(value) if name == "alternatives" and re.fullmatch("[0-9]{1,9}", value) else value
    return found


def _read_parts(body: bytes, content_type: str) -> dict[str, Any]:
    """The fields of a multipart form; the name of a file is the field `filename`."""
    found = re.search(r'boundary="?([^";,\s]{1,70})"?', content_type[:LONGEST_HEAD])
    parts = (b"\r\n" + body).split(b"\r\n--" + found[1].encode("latin-1")) if found else []
    if not 2 < len(parts) <= MOST_FORM_PARTS + 2 or not parts[-1].startswith(b"--"):
        raise RequestError(400, f"the form cannot be read; expected 1 to {MOST_FORM_PARTS} parts between boundaries")
    pairs = []
    for part in parts[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        try:
            lines, text = head[:LONGEST_HEAD].decode("utf-8", "replace"), content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestError(400, f"a part of the form is no UTF-8 at byte {error.start}; expected text") from error
        names = {key: re.search(rf'\b{key}="([^"]*)"', lines) for key in ("name", "filename")}
        if names["name"] is None:
            raise RequestError(400, "a part of the form has no name; expected Content-Disposition: form-data; name=...")
        pairs += [(names["name"][1], text)] + ([("filename", names["filename"][1])] if names["filename"] else [])
    return _fields(pairs)


async def while_connected(request: Request, work: Coroutine[Any, Any, Response], config: ServerConfig) -> Response:
    """Runs a handler; cancels it when the client goes away, or when its time is up.

    Raises:
        ClientGoneError: The client went away.
        RequestError: 504.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(disconnected(request.receive))
    try:
        done, _ = await asyncio.wait({task, watch}, timeout=config.timeout, return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            return task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    if watch in done:
        raise ClientGoneError
    raise RequestError(504, f"the request took more than {config.timeout:g} seconds")


async def disconnected(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventResponse(Response):
    """A response that is sent while it is computed. `close` is called at its end, also when the client goes away."""

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[bool], None], media: str, seconds: float) -> None:
        self.events, self.close, self.seconds = events, close, seconds
        self.status_code, self.background = 200, None
        self.media_type, self.body = media, b""
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        watch = asyncio.ensure_future(disconnected(receive))
        try:
            # A client that does not read is cut off with the rest.
            await asyncio.wait({sending, watch}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone = not sending.done()
            watch.cancel()
            sending.cancel()
            await asyncio.gather(sending, watch, return_exceptions=True)
            self.close(gone)
        if not gone and not sending.cancelled() and sending.exception() is not None:
            raise sending.exception()  # type: ignore[misc]

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for event in self.events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
