"""Hugging Face's API: `/models/{name}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.server.http import Context, Endpoint, JsonResponse, Result
from weft.server.models import text_service
from weft.server.native_api import ANY, check_count
from weft.server.schema import Schema, array, either, object_of, optional, string

INFERENCE: Schema = object_of(
    ("inputs",),
    inputs=either(string(), array(string(), minItems=1, maxItems=10_000), help="a text, or several"),
    parameters=optional(ANY),
    options=optional(ANY),
)


async def infer(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """`/models/{name}`: the pipeline of the model's task."""
    model = context.models.get(request.path_params["name"])
    service = text_service(model)
    parameters = body.get("parameters") or {}
    options = service.read_parameters(parameters)
    single = isinstance(body["inputs"], str)
    texts = [body["inputs"]] if single else body["inputs"]
    check_count(context, texts)
    found = await model.worker.compute(
        lambda given: service.predict(given, options), texts, (service.capability, options)
    )
    results = [service.to_pipeline(one, parameters) for one in found]
    return JsonResponse(results[0] if single and not service.listed else results)


HUGGING_FACE_ENDPOINTS = [
    Endpoint("POST", "/models/{name}", infer, "Predict as Hugging Face's pipelines do.", body=INFERENCE,
             results={200: Result("The result of the pipeline.")}, errors=(404,)),
]  # fmt: skip
