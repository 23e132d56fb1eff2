"""Errors of requests: a status, a message, and the shape that each client expects."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

LOGGER = logging.getLogger("weft.server")


class RequestError(Exception):
    """A request that is refused or fails: the status and our message."""

    def __init__(self, status: int, message: str, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})
        self.code = code or CODES.get(status, "error")


CODES = {
    400: "invalid_request",
    401: "invalid_api_key",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "slow_request",
    409: "conflict",
    413: "body_too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    500: "internal_error",
    501: "not_implemented",
    503: "overloaded",
    504: "timeout",
}

# Paths whose clients expect {"error": "message"}.
PLAIN = ("/api/", "/models/", "/translate", "/languages", "/detect", "/download_file", "/frontend")


def error_body(path: str, status: int, message: str, code: str) -> dict[str, Any]:
    """The body of an error as the clients of a path expect it."""
    if path.startswith(PLAIN):
        return {"error": message}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def overloaded(message: str, seconds: int = 1) -> RequestError:
    """503 with Retry-After."""
    return RequestError(503, message, headers={"Retry-After": str(seconds)})
