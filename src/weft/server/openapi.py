"""`/openapi.json`, from the table of routes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import weft
from weft.server.errors import CODES, PLAIN
from weft.server.http import FORM, JSON, MULTIPART, Endpoint
from weft.server.schema import NULL, Schema, object_of, string

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_ERROR = object_of(
    ("error",),
    error=object_of(("message", "type", "param", "code"), message=string(), type=string(), param=NULL, code=string()),
)
_PLAIN_ERROR = object_of(("error",), error=string())
_WORDS = {
    400: "The request is not usable; the message says what was expected.",
    401: "The API key is missing or wrong.",
    403: "The request comes from a page of another origin.",
    404: "There is no such model, session or run.",
    408: "The body did not arrive in time.",
    409: "The session is in use, exists already, or belongs to another model.",
    413: "The body is too large.",
    415: "The content type is not supported.",
    421: "The Host header is not one of this server.",
    501: "The run has not what this needs.",
    503: "Too many requests wait, or the server is stopping; see Retry-After.",
    504: "The request took too long.",
}


def openapi(endpoints: Sequence[Endpoint], models: Sequence[str], *, key: bool) -> dict[str, Any]:
    """The description of all routes; with the names of models, where these are given."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, models, key=key)
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "weft", "version": weft.__version__, "description": "Recurrent sequence models over HTTP."},
        "paths": paths,
    }
    if key:
        found["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
    return found


def openapi_page(description: Mapping[str, Any]) -> str:
    """The description as a page that needs no script."""
    parts = []
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>")
            found = [("Parameters", operation.get("parameters")), ("Body", operation.get("requestBody")),
                     ("Responses", operation["responses"])]  # fmt: skip
            for title, value in found:
                if value is not None:
                    text = escape(json.dumps(value, indent=2, ensure_ascii=False), quote=False)
                    parts.append(f"<details><summary>{title}</summary><pre>{text}</pre></details>")
    title = f"{description['info']['title']} {description['info']['version']}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font:1rem/1.5 sans-serif;max-width:60rem;margin:auto;padding:1rem}pre{overflow:auto}</style>"
        f"</head><body><main><h1>{escape(title)}</h1><p>{escape(description['info']['description'])} "
        f'<a href="openapi.json">openapi.json</a></p>{"".join(parts)}</main></body></html>'
    )


def _operation(endpoint: Endpoint, models: Sequence[str], *, key: bool) -> dict[str, Any]:
    errors = {400, 403, 421, 503, *endpoint.errors}
    errors |= {408, 413, 415} if endpoint.body is not None else set()
    errors |= {401} if key and not endpoint.public else set()
    errors |= {504}
    plain = endpoint.path.startswith(PLAIN)
    responses: dict[str, Any] = {}
    for status, result in endpoint.results.items():
        responses[str(status)] = {"description": result.description}
        if status != 204:
            schema = {} if result.schema is None else {"schema": result.schema}
            responses[str(status)]["content"] = {result.media: schema, **{other: {} for other in endpoint.streams}}
    for status in sorted(errors):
        assert status in CODES
        responses[str(status)] = {
            "description": _WORDS[status],
            "content": {JSON: {"schema": _PLAIN_ERROR if plain else _ERROR}},
        }
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}{re.sub(r'[^a-z0-9]+', '_', endpoint.path.lower())}".rstrip("_"),
        "responses": responses,
    }
    if parameters := _parameters(endpoint, models):
        found["parameters"] = parameters
    if endpoint.body is not None:
        schema = endpoint.body
        if models and "model" in schema["properties"]:
            schema = {
                **schema,
                "properties": {**schema["properties"], "model": {"type": "string", "enum": list(models)}},
            }
        content = {JSON: {"schema": schema}}
        if endpoint.form:
            content |= {FORM: {"schema": schema}, MULTIPART: {"schema": schema}}
        found["requestBody"] = {"required": True, "content": content}
    if key and not endpoint.public:
        found["security"] = [{"key": []}]
    return found


def _parameters(endpoint: Endpoint, models: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for name in _PARAMETER.findall(endpoint.path):
        schema: Schema = {"type": "string"}
        if name in endpoint.choices:
            schema["enum"] = list(endpoint.choices[name])
        elif models and (name == "model" or (name == "name" and "runs" not in endpoint.path)):
            schema["enum"] = list(models)
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    for name, schema in endpoint.query.items():
        found.append({"name": name, "in": "query", "required": False, "schema": schema})
    return found
