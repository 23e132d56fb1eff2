"""The APIs of other clients: Hugging Face's inference, LibreTranslate, Ollama."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.server.completion import SAMPLING, Completion, CompletionRequest, check_stop, read_sample
from weft.server.errors import RequestError
from weft.server.http import Context, Endpoint, JsonResponse, Result
from weft.server.models import LoadedModel, text_service
from weft.server.native_api import ANY, check_count
from weft.server.openai_api import stream_response
from weft.server.schema import Schema, array, either, flag, integer, object_of, optional, string
from weft.tasks.service import UNKNOWN_LANGUAGES

INFERENCE: Schema = object_of(
    ("inputs",),
    inputs=either(string(), array(string(), minItems=1, maxItems=10_000), help="a text, or several"),
    parameters=optional(ANY),
    options=optional(ANY),
)
MOST_ALTERNATIVES = 10


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


TRANSLATION: Schema = object_of(
    ("q",),
    q=either(string(), array(string(), minItems=1, maxItems=10_000), help="a text, or several"),
    source=optional(string("the language of the text, or auto")),
    target=optional(string("the language to translate to")),
    format=optional(string("text only", enum=["text"])),
    alternatives=optional(integer(0, MOST_ALTERNATIVES, "how many other translations of each text")),
    api_key=optional(string("the API key, where the server has one")),
)


async def translate(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """`/translate`: every line of a text is a sentence."""
    model = _translator(context, body.get("source") or "auto", body.get("target") or "")
    service = text_service(model, "translate")
    count = body.get("alternatives") or 0
    options = service.read_options({"n_best": 1 + count})
    texts = [body["q"]] if isinstance(body["q"], str) else body["q"]
    lines = [line for text in texts for line in text.split("\n")]
    check_count(context, lines)
    found = iter(
        await model.worker.compute(lambda given: service.predict(given, options), lines, ("translate", options))
    )
    ranked = []  # of each text its translations, best first
    for text in texts:
        rows = [[one["text"] for one in next(found)["translations"]] or [""] for _ in text.split("\n")]
        most = max(map(len, rows))
        ranked.append(["\n".join(row[min(at, len(row) - 1)] for row in rows) for at in range(most)])
    best, others = [one[0] for one in ranked], [one[1:] for one in ranked]
    single = isinstance(body["q"], str)
    answer: dict[str, Any] = {"translatedText": best[0] if single else best}
    if count:
        answer["alternatives"] = others[0] if single else others
    return JsonResponse(answer)


def _translator(context: Context, source: str, target: str) -> LoadedModel:
    able = [model for model in context.models if model.service.languages is not None]
    if not able:
        raise RequestError(404, "no model here translates")
    for model in able:
        languages = model.service.languages
        assert languages is not None
        if languages == UNKNOWN_LANGUAGES or (
            source in ("auto", languages.source) and target in ("", languages.target)
        ):
            return context.models.get(model.name)
    pairs = ", ".join(f"{one.service.languages.source} to {one.service.languages.target}" for one in able)
    raise RequestError(400, f"no model translates {source[:20]} to {target[:20]}; expected {pairs}")


async def languages(context: Context, request: Request, body: None) -> Response:
    """`/languages`."""
    targets: dict[str, list[str]] = {}
    for model in context.models:
        if model.service.languages is not None:
            source, target = model.service.languages
            targets.setdefault(source, []).append(target)
            targets.setdefault(target, [])
    return JsonResponse(
        [{"code": code, "name": code, "targets": list(dict.fromkeys(to))} for code, to in targets.items()]
    )


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
            "seed": optional(integer(0, (1 << 63) - 1, "equal seeds give equal texts")),
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
    if tokens > context.config.max_tokens:
        raise RequestError(400, f"num_predict is {tokens:,}; expected at most {context.config.max_tokens:,}")
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


CLIENT_ENDPOINTS = [
    Endpoint("POST", "/models/{name}", infer, "Predict as Hugging Face's pipelines do.", body=INFERENCE,
             results={200: Result("The result of the pipeline.")}, errors=(404,)),
    Endpoint("POST", "/translate", translate, "Translate, as LibreTranslate does.", body=TRANSLATION, form=True,
             results={200: Result("The translation.", object_of(
                 ("translatedText",), translatedText=either(string(), array(string())),
                 alternatives=array(either(string(), array(string()))))),
             }, errors=(404,)),
    Endpoint("GET", "/languages", languages, "The languages of the translators.",
             results={200: Result("The languages.", array(object_of(
                 ("code", "name", "targets"), code=string(), name=string(), targets=array(string()))))}),
    Endpoint("POST", "/api/generate", generate, "Continue a text, as Ollama does.", body=GENERATE,
             results={200: Result("The text; unless `stream` is false, JSON lines.")}, errors=(404,),
             streams=("application/x-ndjson",)),
    Endpoint("GET", "/api/tags", tags, "The language models, as Ollama lists them.",
             results={200: Result("The models.", object_of(("models",), models=array(ANY)))}),
]  # fmt: skip
