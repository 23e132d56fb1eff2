"""The application: routes, checks and errors around the handlers."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import re
import time
import traceback
from collections.abc import AsyncIterator, Mapping
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from weft.errors import WeftError
from weft.pictures.palette import page_sheet, style_sheet
from weft.server.comparison import Comparisons
from weft.server.config import ServerConfig
from weft.server.errors import LOGGER, RequestError, error_body, overloaded
from weft.server.guard import check_host, check_key, check_origin
from weft.server.http import ClientGoneError, Context, Endpoint, JsonResponse, Result, read_body, while_connected
from weft.server.hugging_face_api import HUGGING_FACE_ENDPOINTS
from weft.server.libretranslate_api import LIBRETRANSLATE_ENDPOINTS
from weft.server.metrics import Metrics
from weft.server.models import Models
from weft.server.native_api import NATIVE_ENDPOINTS
from weft.server.ollama_api import OLLAMA_ENDPOINTS
from weft.server.openai_api import OPENAI_ENDPOINTS
from weft.server.openapi import openapi, openapi_page
from weft.server.refused_api import REFUSED_ENDPOINTS
from weft.server.schema import ignored_fields, object_of, string
from weft.server.sessions import SessionStore

# The page works without a network: nothing is loaded from elsewhere, and no other site may show it in a frame.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
STYLE_SHEETS = {"style/palette.css": page_sheet, "style/saved.css": style_sheet}  # of the page, of figures in files
_STATUS = object_of(("status",), status=string())


async def health(context: Context, request: Request, body: None) -> Response:
    return JsonResponse({"status": "ok"})


async def metrics(context: Context, request: Request, body: None) -> Response:
    return Response(context.metrics.text(), media_type="text/plain; version=0.0.4")


async def description(context: Context, request: Request, body: None) -> Response:
    return JsonResponse(_description(context, request))


def _description(context: Context, request: Request) -> dict[str, Any]:
    """With the names of the models only for those who may use them."""
    try:
        check_key(request.headers, context.config)
        names = [model.name for model in context.models]
    except RequestError:
        names = []
    return openapi(ENDPOINTS, names, key=context.config.api_key is not None)


async def description_page(context: Context, request: Request, body: None) -> Response:
    """The same for people."""
    return Response(openapi_page(_description(context, request)), media_type="text/html", headers=PAGE_HEADERS)


async def page(context: Context, request: Request, body: None) -> Response:
    """The files of the package's folder `page`."""
    name = request.path_params.get("file", "index.html")
    if name in STYLE_SHEETS:
        return Response(STYLE_SHEETS[name](), media_type="text/css", headers=PAGE_HEADERS)
    path = _page_files().get(name)
    if path is None:
        raise RequestError(404, "there is no such file")
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    kind = "text/javascript" if path.suffix in (".js", ".mjs") else kind
    return Response(await asyncio.to_thread(path.read_bytes), media_type=kind, headers=PAGE_HEADERS)


@cache
def _page_files() -> dict[str, Path]:
    """The files of the page by their names: no name of a request becomes a path."""
    root = Path(str(files("weft.server"))) / "page"
    return {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}


_PAGE = {200: Result("The file.", media="text/html")}
ENDPOINTS = [
    *OPENAI_ENDPOINTS,
    *HUGGING_FACE_ENDPOINTS,
    *LIBRETRANSLATE_ENDPOINTS,
    *OLLAMA_ENDPOINTS,
    *REFUSED_ENDPOINTS,
    *NATIVE_ENDPOINTS,
    *(
        Endpoint(
            "GET", path, health, "Whether the server answers.", results={200: Result("It does.", _STATUS)}, public=True
        )
        for path in ("/health", "/v2/health/live", "/v2/health/ready")
    ),
    Endpoint("GET", "/metrics", metrics, "Metrics for Prometheus.", results={200: Result("Text.", media="text/plain")}),
    *(Endpoint("GET", path, description, "This description.", public=True) for path in ("/openapi.json", "/spec")),
    Endpoint(
        "GET",
        "/docs",
        description_page,
        "The same for people.",
        results={200: Result("The page.", media="text/html")},
        public=True,
    ),
]
PAGES = [
    Endpoint("GET", "/", page, "The page.", results=_PAGE, public=True),
    Endpoint("GET", "/page/{file:path}", page, "A file of the page.", results=_PAGE, errors=(404,), public=True),
]


class Server:
    """The application of some models, and whether it still takes requests."""

    def __init__(self, runs: Mapping[str, Path], config: ServerConfig) -> None:
        self.config, self.stopping, self.running = config, False, 0
        self.metrics = Metrics()
        self.models = Models(dict(runs), config, self.metrics)
        self.context = Context(config, self.models, SessionStore(config, self.models), Comparisons(), self.metrics)
        self.metrics.sessions.set_function(lambda: len(self.context.sessions))
        for model in self.models:
            self.metrics.queue.labels(model.name).set_function(partial(self._waiting, model.name))
            if model.generation is not None:
                self.metrics.sequences.labels(model.name).set_function(partial(self._generating, model.name))
        self._private = _private_paths(runs, config)
        routes = [
            Route(endpoint.path, _Handler(self, endpoint), methods=[endpoint.method])
            for endpoint in [*ENDPOINTS, *PAGES]
        ]
        handlers: Any = {HTTPException: self._not_routed, Exception: self._failed}
        self.app = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)
        self.app.router.redirect_slashes = False

    def _waiting(self, name: str) -> int:
        return self.models.get(name).worker.waiting

    def _generating(self, name: str) -> int:
        return len(self.models.get(name).generation or ())

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """Ends the threads of the models, after what they compute."""
        self.models.stop()
        self.context.comparisons.stop()

    async def _not_routed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"there is no {request.method} {request.scope['path'][:200]}"
        if error.headers and "Allow" in error.headers:
            message += f"; expected {error.headers['Allow']}"
        return self.refuse(request.scope["path"], RequestError(error.status_code, message, headers=error.headers))

    async def _failed(self, request: Request, error: Exception) -> Response:
        return self.refuse(request.scope["path"], RequestError(500, "internal error"))

    def refuse(self, path: str, error: RequestError) -> Response:
        """The response to an error, without paths of this machine."""
        message = error.message
        for private, shown in self._private:
            message = message.replace(private, shown)
        return JsonResponse(error_body(path, error.status, message, error.code), error.status, error.headers)


class _Handler:
    """Serves one endpoint."""

    def __init__(self, server: Server, endpoint: Endpoint) -> None:
        self.server, self.endpoint = server, endpoint
        self.route = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server, began = self.server, time.perf_counter()
        server.running += 1
        request, status = Request(scope, receive), 499  # 499: the client went away before there was a response

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            response = await self._respond(request)
            await response(scope, receive, send_noting)
        except (ClientGoneError, ClientDisconnect):
            server.metrics.cancelled.labels("").inc()
        finally:
            server.running -= 1
            route, method = self.route, self.endpoint.method
            server.metrics.requests.labels(route, method, str(status)).inc()
            server.metrics.latency.labels(route, method).observe(time.perf_counter() - began)
            if server.config.log_requests:
                LOGGER.info(
                    "%s %s %d %.1f ms", scope["method"], self.route, status, 1e3 * (time.perf_counter() - began)
                )

    async def _respond(self, request: Request) -> Response:
        server, config, path = self.server, self.server.config, request.scope["path"]
        try:
            check_host(request.headers, config)
            check_origin(request.headers)
            if server.stopping:
                raise overloaded("the server is stopping", 5)
            if server.running > config.max_requests and not self.endpoint.public:
                raise overloaded(f"{server.running:,} requests are answered; expected at most {config.max_requests:,}")
            if not self.endpoint.public and not self.endpoint.form:
                check_key(request.headers, config)
            body = await read_body(request, self.endpoint, config)
            if server.models.due():
                await asyncio.to_thread(server.models.refresh)
            if self.endpoint.form:  # LibreTranslate's clients send the key in the body
                check_key(request.headers, config, body.get("api_key"))
            response = await while_connected(request, self.endpoint.handler(server.context, request, body), config)
            names = ignored_fields(self.endpoint.body, body) if self.endpoint.body is not None else []
            if names:
                others = response.headers.get("Weft-Ignored")  # those of the handler
                response.headers["Weft-Ignored"] = ", ".join([*([others] if others else []), *names])
            return response
        except RequestError as error:
            return server.refuse(path, error)
        except WeftError as error:
            return server.refuse(path, RequestError(400, str(error)))
        except asyncio.CancelledError:
            if not server.stopping:
                raise
            return server.refuse(path, overloaded("the server has stopped before the request was answered", 5))
        except (ClientGoneError, ClientDisconnect):
            raise
        except Exception as error:
            frames = "".join(traceback.format_tb(error.__traceback__))  # no message: it may have parts of a request
            LOGGER.error("%s failed: %s\n%s", self.route, type(error).__name__, frames)
            return server.refuse(path, RequestError(500, "internal error"))


def _private_paths(runs: Mapping[str, Path], config: ServerConfig) -> list[tuple[str, str]]:
    """Paths of this machine and what stands for them in messages, the longest first."""
    found = {str(form): name for name, path in runs.items() for form in (path, path.resolve(), path.absolute())}
    for path in (config.runs, config.sessions, Path.cwd(), Path.home()):
        if path is not None:
            found |= {f"{form}/": "" for form in (path, path.resolve()) if len(str(form)) > 1}
    return sorted(found.items(), key=lambda pair: -len(pair[0]))
