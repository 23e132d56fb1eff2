"""Calls of clients that have no meaning here: refused with the reason and with what the model can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.server.errors import RequestError
from weft.server.http import Context, Endpoint
from weft.server.models import capabilities
from weft.server.schema import Schema

ANYTHING: Schema = {"type": "object", "properties": {}}


async def chat(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """No model here was trained on the turns of a conversation."""
    name = request.path_params.get("name", body.get("model"))
    able = "the models here continue, fill, label and translate texts"
    if isinstance(name, str):
        model = context.models.get(name.removesuffix(":latest"))
        able = f"the model {model.name} can: {', '.join(capabilities(model))}"
    raise RequestError(400, f"there is no chat here; {able}")


async def change(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """Models are those of the command line."""
    raise RequestError(400, "models are not changed by requests; expected them as arguments of `weft serve`")


REFUSED_ENDPOINTS = [
    *(
        Endpoint("POST", path, chat, "Refused: no model here chats.", body=ANYTHING, results={}, errors=(404,))
        for path in ("/v1/chat/completions", "/v1/responses", "/models/{name}/v1/chat/completions", "/api/chat")
    ),
    *(
        Endpoint(method, f"/api/{name}", change, "Refused: `weft serve` has its models.", body=ANYTHING, results={})
        for method, name in (("POST", "pull"), ("POST", "push"), ("POST", "create"), ("POST", "copy"),
                             ("DELETE", "delete"))
    ),
]  # fmt: skip
