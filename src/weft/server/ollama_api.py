"""Ollama's API: `/api/generate`, `/api/embed`, and what its clients ask about models."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import weft
from weft.server.completion import SAMPLING, SEED, Completion, CompletionRequest, check_stop, read_sample
from weft.server.config import MOST_INPUTS
from weft.server.errors import RequestError
from weft.server.generation import TokenInfo
from weft.server.http import Context, Endpoint, JsonResponse, Result
from weft.server.models import LoadedModel, generator, weight_count
from weft.server.native_api import ANY
from weft.server.openai_api import stream_response
from weft.server.schema import Schema, array, either, fields, flag, ignored, integer, object_of, optional, real, string
from weft.server.state_vectors import state_vectors

MODEL = string("the name of a language model")
NEVER = "9999-12-31T23:59:59Z"  # when a model is unloaded
# Options of loading and computing, which are those of `weft serve`, and of samplers that are off.
IGNORED_OPTIONS = (
    "embedding_only", "f16_kv", "logits_all", "low_vram", "main_gpu", "mirostat_eta", "mirostat_tau", "num_batch",
    "num_ctx", "num_gpu", "num_keep", "num_thread", "numa", "penalize_newline", "use_mlock", "use_mmap", "vocab_only",
)  # fmt: skip
OPTIONS: Schema = fields({
    **SAMPLING,
    "num_predict": optional(integer(-2, None, "the most tokens to generate; 128 unless given; -1: many")),
    "repeat_penalty": SAMPLING["repetition_penalty"],
    "repeat_last_n": optional(integer(-1, -1, "-1: the penalty counts the whole text")),
    "seed": SEED,
    "stop": optional(either(string(), array(string(), maxItems=16))),
    "mirostat": optional(integer(0, 0, "not supported: 0")),
    "tfs_z": optional(real(1, 1, "not supported: 1")),
    **{name: ignored() for name in IGNORED_OPTIONS},
})  # fmt: skip
# Fields that would change the text or the answer. They may be empty, as clients send them.
UNSUPPORTED = ("context", "format", "height", "images", "steps", "suffix", "system", "template", "think", "width")
GENERATE: Schema = object_of(
    ("model",),
    model=MODEL,
    prompt=optional(string("the beginning of the text")),
    stream=optional(flag("one JSON line for each piece; true unless given")),
    raw=optional(flag("no effect: a prompt is read as it is")),
    logprobs=optional(flag("return the log-probabilities of the tokens")),
    top_logprobs=optional(integer(0, 20, "and of this many alternatives of each")),
    options=optional(OPTIONS),
    keep_alive=ignored(),
    **{name: {"description": "not supported; may be empty"} for name in UNSUPPORTED},
)


def _model(context: Context, body: Mapping[str, Any]) -> LoadedModel:
    """The language model that a body names."""
    name: str = body["model"]
    model = context.models.get(name.removesuffix(":latest"))
    generator(model)  # refuses others
    return model


async def generate(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    began = time.perf_counter_ns()
    model = _model(context, body)
    if given := [name for name in UNSUPPORTED if body.get(name)]:
        raise RequestError(400, f"{given[0]} is not supported by a model that continues a text; expected it left out")
    options = {name: value for name, value in (body.get("options") or {}).items() if value is not None}
    tokens = options.get("num_predict", 128)
    if not body.get("prompt"):  # clients ask to load the model, and all are loaded
        return JsonResponse({**_head(model.name), "response": "", "done": True, "done_reason": "load"})
    wanted = CompletionRequest(
        (body["prompt"],),
        context.config.max_tokens if tokens < 0 else tokens,
        sample=read_sample({"temperature": 0.8, "repetition_penalty": options.get("repeat_penalty"), **options}),
        seed=options.get("seed"),
        stop=check_stop(options.get("stop")),
        log_probs=(body.get("top_logprobs") or 0) if body.get("logprobs") or body.get("top_logprobs") else None,
    )
    completion = await Completion.prepare(context, model, wanted)
    if body.get("stream", True) is not False:
        lines = _lines(completion, model.name, began)
        return stream_response(context, completion, lines, "application/x-ndjson")
    (found,) = await completion.whole()
    last = _last(completion, len(found.tokens), found.finish, began)
    answer = {**_head(model.name), "response": found.text, **_log_probs(completion, found.tokens), **last}
    return JsonResponse(answer)


async def _lines(completion: Completion, name: str, began: int) -> AsyncIterator[bytes]:
    count = 0
    try:
        async for _, piece in completion.pieces():
            count += len(piece.tokens)
            value: dict[str, Any] = {**_head(name), "response": piece.text, "done": False}
            value |= _log_probs(completion, piece.tokens)
            if piece.finish:
                value |= _last(completion, count, piece.finish, began)
            yield (json.dumps(value, ensure_ascii=False) + "\n").encode()
    except RequestError as error:
        yield (json.dumps({"error": error.message}, ensure_ascii=False) + "\n").encode()


def _head(name: str) -> dict[str, Any]:
    return {"model": name, "created_at": datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")}


def _log_probs(completion: Completion, tokens: tuple[TokenInfo, ...]) -> dict[str, Any]:
    if completion.request.log_probs is None:
        return {}
    names = completion.predictor.text_field.vocabulary.tokens
    return {
        "logprobs": [
            {
                "token": names[one.id],
                "logprob": one.log_prob,
                "top_logprobs": [{"token": names[other.id], "logprob": other.log_prob} for other in one.top],
            }
            for one in tokens
        ]
    }


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


EMBED: Schema = object_of(
    ("model", "input"),
    model=MODEL,
    input=either(string(), array(string(), minItems=1, maxItems=MOST_INPUTS), help="a text, or several"),
    dimensions=optional(integer(1, 1 << 20, "accepted if it is the size of the state")),
    truncate=ignored(),
    options=ignored(),
    keep_alive=ignored(),
)


async def embed(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """Vectors of length 1, as Ollama's."""
    began = time.perf_counter_ns()
    model, given = _model(context, body), body["input"]
    texts = [given] if isinstance(given, str) else given
    vectors, count = await state_vectors(context, model, texts, size=body.get("dimensions"), unit=True)
    return JsonResponse(
        {
            "model": model.name,
            "embeddings": [vector.tolist() for vector in vectors],
            "total_duration": time.perf_counter_ns() - began,
            "load_duration": 0,
            "prompt_eval_count": count,
        }
    )


EMBEDDINGS: Schema = object_of(
    ("model",), model=MODEL, prompt=optional(string("a text")), options=ignored(), keep_alive=ignored()
)


async def embeddings(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """The older call: one vector as it is."""
    (vector,), _ = await state_vectors(context, _model(context, body), [body.get("prompt") or ""])
    return JsonResponse({"embedding": vector.tolist()})


def _details(model: LoadedModel) -> dict[str, Any]:
    task, count = model.run.task, weight_count(model)
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": task,
        "families": [task],
        "parameter_size": f"{count / 1e6:.1f}M" if count >= 1e5 else f"{count / 1e3:.1f}K",
        "quantization_level": "",
    }


def _listed(model: LoadedModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "model": model.name,
        "size": sum(one.stat().st_size for one in model.run.path.glob("*.safetensors")),
        "digest": model.hash,
        "details": _details(model),
    }


def _changed(model: LoadedModel) -> str:
    return datetime.fromtimestamp(model.changed, timezone.utc).isoformat().replace("+00:00", "Z")


async def tags(context: Context, request: Request, body: None) -> Response:
    """The language models."""
    found = [{**_listed(model), "modified_at": _changed(model)} for model in context.models if model.generator]
    return JsonResponse({"models": found})


async def running(context: Context, request: Request, body: None) -> Response:
    """The same models, since all of them are loaded."""
    found = [{**_listed(model), "expires_at": NEVER, "size_vram": 0} for model in context.models if model.generator]
    return JsonResponse({"models": found})


async def show(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    model = _model(context, body)
    task, text_field = model.run.task, generator(model).text_field
    return JsonResponse(
        {
            "modelfile": f"FROM {model.name}",
            "parameters": "",
            "template": "{{ .Prompt }}",
            "details": _details(model),
            "model_info": {
                "general.architecture": task,
                "general.basename": model.name,
                "general.parameter_count": weight_count(model),
                "tokenizer.model": text_field.tokenizer.name,
                f"{task}.vocab_size": len(text_field.vocabulary),
            },
            "capabilities": ["completion"] if task == "ngram" else ["completion", "embedding"],
            "modified_at": _changed(model),
        }
    )


async def version(context: Context, request: Request, body: None) -> Response:
    return JsonResponse({"version": weft.__version__})


_MODELS = {200: Result("The models.", object_of(("models",), models=array(ANY)))}
OLLAMA_ENDPOINTS = [
    Endpoint("POST", "/api/generate", generate, "Continue a text, as Ollama does.", body=GENERATE,
             results={200: Result("The text; unless `stream` is false, JSON lines.")}, errors=(404,),
             streams=("application/x-ndjson",)),
    Endpoint("POST", "/api/embed", embed, "The states of a language model after texts, of length 1.", body=EMBED,
             results={200: Result("The vectors.", ANY)}, errors=(404,)),
    Endpoint("POST", "/api/embeddings", embeddings, "The state of a language model after a text.", body=EMBEDDINGS,
             results={200: Result("The vector.", object_of(("embedding",), embedding=array({"type": "number"})))},
             errors=(404,)),
    Endpoint("GET", "/api/tags", tags, "The language models, as Ollama lists them.", results=_MODELS),
    Endpoint("GET", "/api/ps", running, "The language models that are loaded: all.", results=_MODELS),
    Endpoint("POST", "/api/show", show, "A language model.",
             body=object_of(("model",), model=MODEL, verbose=ignored()),
             results={200: Result("The model.", ANY)}, errors=(404,)),
    Endpoint("GET", "/api/version", version, "The version of weft.",
             results={200: Result("The version.", object_of(("version",), version=string()))}),
]  # fmt: skip
