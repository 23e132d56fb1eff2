"""Ollama's API: `/api/generate`, `/api/tags`."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.server.completion import SAMPLING, SEED, Completion, CompletionRequest, check_stop, read_sample
from weft.server.errors import RequestError
from weft.server.http import Context, Endpoint, JsonResponse, Result
from weft.server.native_api import ANY
from weft.server.openai_api import stream_response
from weft.server.schema import Schema, array, flag, integer, object_of, optional, string

_IGNORED = ("system", "template", "format", "keep_alive", "images", "raw", "context", "think", "suffix")
GENERATE: Schema = object_of(
    ("model",),
    model=string("the name of a language model"),
    prompt=optional(string("the beginning of the text")),
    stream=optional(flag("one JSON line for each piece; true unless given")),
    options=optional({
        "type": "object",
        "properties": {
            "num_predict": optional(integer(-2, 1_000_000, "the most tokens to generate; 128 unless given")),
            **SAMPLING,
            "repeat_penalty": SAMPLING["repetition_penalty"],
            "seed": SEED,
            "stop": optional(array(string(), maxItems=16)),
        },
        "additionalProperties": True,
    }),
    **{name: {"description": "ignored"} for name in _IGNORED},
)  # fmt: skip


async def generate(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """`/api/generate`."""
    began = time.perf_counter_ns()
    model = context.models.get(body["model"].removesuffix(":latest"))
    options = {name: value for name, value in (body.get("options") or {}).items() if value is not None}
    tokens = options.get("num_predict", 128)
    tokens = context.config.max_tokens if tokens < 0 else tokens
    sample = read_sample({"temperature": 0.8, "repetition_penalty": options.get("repeat_penalty"), **options})
    wanted = CompletionRequest(
        (body.get("prompt") or "",),
        tokens,
        sample=sample,
        seed=options.get("seed"),
        stop=check_stop(options.get("stop")),
    )
    completion = Completion(context, model, wanted)
    if body.get("stream", True) is not False:
        lines = _lines(completion, model.name, began)
        return stream_response(context, completion, lines, "application/x-ndjson")
    (found,) = await completion.whole()
    last = _last(completion, len(found.tokens), found.finish, began)
    return JsonResponse({**_head(model.name), "response": found.text, **last})


async def _lines(completion: Completion, name: str, began: int) -> AsyncIterator[bytes]:
    count = 0
    try:
        async for piece in completion.pieces(completion.rows[0]):
            count += len(piece.tokens)
            value: dict[str, Any] = {**_head(name), "response": piece.text, "done": False}
            if piece.finish:
                value |= _last(completion, count, piece.finish, began)
            yield (json.dumps(value, ensure_ascii=False) + "\n").encode()
    except RequestError as error:
        yield (json.dumps({"error": error.message}, ensure_ascii=False) + "\n").encode()


def _head(name: str) -> dict[str, Any]:
    return {"model": name, "created_at": datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")}


def _last(completion: Completion, count: int, reason: str, began: int) -> dict[str, Any]:
    spent = time.perf_counter_ns() - began
    return {
        "done": True,
        "done_reason": reason,
        "total_duration": spent,
        "load_duration": 0,
        "prompt_eval_count": completion.prompt_tokens,
        "prompt_eval_duration": 0,
        "eval_count": count,
        "eval_duration": spent,
    }


async def tags(context: Context, request: Request, body: None) -> Response:
    """`/api/tags`: the language models."""
    found = []
    for model in context.models:
        if model.service.generator is not None:
            time_of = datetime.fromtimestamp(model.changed, timezone.utc).isoformat().replace("+00:00", "Z")
            details = {"format": "safetensors", "family": model.run.task, "families": [model.run.task]}
            found.append(
                {
                    "name": model.name,
                    "model": model.name,
                    "modified_at": time_of,
                    "size": sum(one.stat().st_size for one in model.run.path.glob("*.safetensors")),
                    "digest": model.hash,
                    "details": details,
                }
            )
    return JsonResponse({"models": found})


OLLAMA_ENDPOINTS = [
    Endpoint("POST", "/api/generate", generate, "Continue a text, as Ollama does.", body=GENERATE,
             results={200: Result("The text; unless `stream` is false, JSON lines.")}, errors=(404,),
             streams=("application/x-ndjson",)),
    Endpoint("GET", "/api/tags", tags, "The language models, as Ollama lists them.",
             results={200: Result("The models.", object_of(("models",), models=array(ANY)))}),
]  # fmt: skip
