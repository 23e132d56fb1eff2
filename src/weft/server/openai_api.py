"""OpenAI's API: `/v1/models`, `/v1/completions`, `/v1/embeddings`."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from weft.errors import short_repr
from weft.server.completion import (
    MOST_SEQUENCES,
    SAMPLING,
    SEED,
    Completion,
    CompletionRequest,
    Prompt,
    check_ids,
    check_stop,
    read_sample,
)
from weft.server.config import MOST_INPUTS
from weft.server.errors import RequestError, error_body
from weft.server.generation import Piece, TokenInfo
from weft.server.http import Context, Endpoint, EventResponse, JsonResponse, Result, large_json
from weft.server.models import LoadedModel, find_operation, generator
from weft.server.native_api import compute
from weft.server.schema import NULL, Schema, array, either, flag, ignored, integer, object_of, optional, real, string
from weft.server.sessions import SESSION_ID
from weft.server.state_vectors import state_vectors
from weft.text.text_field import StreamingDecoder

MOST_LOG_PROBS = 20
LoggedToken = tuple[str, float | None, dict[str, float] | None, int]  # name, log-probability, alternatives, offset
FILL_TOKENS = 8  # the most tokens of a blank in /v1/completions

MOST_IDS = 1_000_000  # of an array of tokens; the size of a body is limited besides
_IDS = array({"type": "integer"}, minItems=1, maxItems=MOST_IDS)
IGNORED_FIELDS = {
    name: ignored() for name in ("metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user")
}


def _texts(most: int, help: str) -> Schema:
    """A text or several, as strings or as lists of token ids."""
    lists = (array(kind, minItems=1, maxItems=most) for kind in (string(), _IDS))
    return either(string(), *lists, _IDS, help=help)


def _read_texts(given: Any) -> tuple[Prompt, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given[0], int):
        return (tuple(given),)
    return tuple(one if isinstance(one, str) else tuple(one) for one in given)


COMPLETION: Schema = object_of(
    ("model",),
    model=string("the name of a model"),
    prompt=optional(_texts(MOST_SEQUENCES, "the beginning of the text, or several; or lists of token ids")),
    suffix=optional(string("the text after a blank; for models that fill blanks")),
    max_tokens=optional(integer(0, None, "the most tokens to generate; 16 unless given")),
    **SAMPLING,
    n=optional(integer(1, MOST_SEQUENCES, "how many continuations of each prompt")),
    best_of=optional(integer(1, MOST_SEQUENCES, "generate so many; return the n of the highest mean log-probability")),
    seed=SEED,
    stop=optional(either(string(), array(string(), maxItems=16), help="end before this text")),
    echo=optional(flag("return the prompt, too")),
    logprobs=optional(integer(0, MOST_LOG_PROBS, "log-probabilities of the tokens and of this many alternatives")),
    stream=optional(flag("send the text as it is generated, as server-sent events")),
    stream_options=optional(object_of(include_usage=optional(flag()), include_obfuscation=optional(flag()))),
    session=optional(string("the session that the text continues; made if it does not exist", pattern=SESSION_ID)),
    logit_bias=optional({
        "type": "object",
        "additionalProperties": real(-100, 100),
        "description": "token ids, and what is added to their log-probabilities",
    }),
    **IGNORED_FIELDS,
)  # fmt: skip

_LOG_PROBS = object_of(
    ("tokens", "token_logprobs", "top_logprobs", "text_offset"),
    tokens=array(string()),
    token_logprobs=array(optional({"type": "number"})),
    top_logprobs=array(optional({"type": "object", "additionalProperties": {"type": "number"}})),
    text_offset=array({"type": "integer"}),
)
_CHOICE = object_of(
    ("index", "text", "logprobs", "finish_reason"),
    index={"type": "integer"},
    text=string(),
    logprobs=either(_LOG_PROBS, NULL),
    finish_reason=optional(string(enum=["stop", "length"])),
)
_USAGE = object_of(
    ("prompt_tokens", "completion_tokens", "total_tokens"),
    prompt_tokens={"type": "integer"},
    completion_tokens={"type": "integer"},
    total_tokens={"type": "integer"},
)
COMPLETED = object_of(
    ("id", "object", "created", "model", "choices"),
    id=string(),
    object=string(enum=["text_completion"]),
    created={"type": "integer"},
    model=string(),
    choices=array(_CHOICE),
    usage=optional(_USAGE),
)
_MODEL = object_of(
    ("id", "object", "created", "owned_by"),
    id=string(), object=string(enum=["model"]), created={"type": "integer"}, owned_by=string(),
)  # fmt: skip


async def list_models(context: Context, request: Request, body: None) -> Response:
    return JsonResponse({"object": "list", "data": [_model(one) for one in context.models]})


async def get_model(context: Context, request: Request, body: None) -> Response:
    return JsonResponse(_model(context.models.get(request.path_params["name"])))


def _model(model: LoadedModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "weft"}


async def complete(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    given = {name: value for name, value in body.items() if value is not None}
    model = context.models.get(given["model"])
    head = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model.name,
    }
    if "suffix" in given:
        return await _fill(context, model, given, head)
    count = given.get("n", 1)
    wanted = read_completion(model, given)
    completion = await Completion.prepare(context, model, wanted)
    if given.get("stream"):
        if wanted.ranked:
            raise RequestError(400, "best_of is more than n; expected no stream, as ended texts are ranked")
        with_usage = bool((given.get("stream_options") or {}).get("include_usage"))
        return stream_response(context, completion, _chunks(completion, head, with_usage), "text/event-stream")
    found = await completion.whole()
    order = [row for rows in completion.ranked() for row in rows[:count]] if wanted.ranked else range(len(found))
    usage = _usage(completion, sum(len(one.tokens) for one in found))

    def answer() -> dict[str, Any]:
        choices = [_choice(completion, row, found[row], index, whole=True) for index, row in enumerate(order)]
        return {**head, "choices": choices, "usage": usage}

    return await large_json(answer)


def read_completion(model: LoadedModel, given: Mapping[str, Any]) -> CompletionRequest:
    """What a checked body asks for."""
    count, best_of = given.get("n", 1), given.get("best_of", given.get("n", 1))
    if best_of < count:
        raise RequestError(400, f"best_of is {best_of}; expected at least n, which is {count}")
    return CompletionRequest(
        prompts=_read_texts(given.get("prompt", "")),
        tokens=given.get("max_tokens", 16),
        choices=best_of,
        ranked=best_of > count,
        sample=read_sample(given),
        bias=_read_bias(model, given.get("logit_bias", {})),
        seed=given.get("seed"),
        stop=check_stop(given.get("stop")),
        log_probs=given.get("logprobs"),
        echo=bool(given.get("echo")),
        session=given.get("session"),
    )


def _read_bias(model: LoadedModel, given: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    wrong = [name for name in given if not (name.isascii() and name.isdigit() and len(name) < 16)]
    if wrong:
        raise RequestError(400, f"logit_bias has {short_repr(wrong[0])}; expected token ids")
    check_ids(generator(model), map(int, given))
    return tuple((int(name), float(value)) for name, value in given.items())


def stream_response(
    context: Context, completion: Completion, events: AsyncIterator[bytes], media: str
) -> EventResponse:
    """A response that is sent while its text is generated."""
    completion.start()
    return EventResponse(events, completion.close, media, context.config.timeout)


async def _chunks(completion: Completion, head: Mapping[str, Any], usage: bool) -> AsyncIterator[bytes]:
    """Server-sent events: pieces of all rows in the order in which they come."""
    count = 0
    try:
        if completion.request.echo:
            for number in range(len(completion.rows)):
                text = _prompt_text(completion, number)
                choice = {"index": number, "text": text, "logprobs": None, "finish_reason": None}
                yield _event({**head, "choices": [choice]})
        async for number, piece in completion.pieces():
            count += len(piece.tokens)
            yield _event({**head, "choices": [_choice(completion, number, piece, number, whole=False)]})
        if usage:
            yield _event({**head, "choices": [], "usage": _usage(completion, count)})
    except RequestError as error:
        yield _event(error_body("/v1/completions", error.status, error.message, error.code))
    yield b"data: [DONE]\n\n"


def _event(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _prompt_text(completion: Completion, number: int) -> str:
    prompt, text_field = (
        completion.request.prompts[number // completion.request.choices],
        completion.predictor.text_field,
    )
    text: str = text_field.normalizer(prompt) if isinstance(prompt, str) else text_field.decode(prompt)
    return text


def _choice(completion: Completion, number: int, piece: Piece, index: int, *, whole: bool) -> dict[str, Any]:
    request, row = completion.request, completion.rows[number]
    before = _prompt_text(completion, number) if request.echo else ""
    found = None
    if request.log_probs is not None:
        tokens, start = list(piece.tokens), len(before)
        names = completion.predictor.text_field.vocabulary.tokens
        listed = [_token(one, names, start) for one in tokens]
        if whole and request.echo:
            listed = [*logged_prompt(completion, number), *listed]
        found = {
            "tokens": [one[0] for one in listed],
            "token_logprobs": [one[1] for one in listed],
            "top_logprobs": [one[2] for one in listed],
            "text_offset": [one[3] for one in listed],
        }
    text = before + piece.text if whole else piece.text
    return {"index": index, "text": text, "logprobs": found, "finish_reason": row.finish if piece.finish else None}


def _token(one: TokenInfo, names: Sequence[str], start: int) -> LoggedToken:
    top = {names[other.id]: other.log_prob for other in one.top} if one.top else None
    if top is not None and one.log_prob is not None:
        top.setdefault(names[one.id], one.log_prob)
    return names[one.id], one.log_prob, top, start + one.offset


def logged_prompt(completion: Completion, number: int) -> list[LoggedToken]:
    """The tokens of an echoed prompt; offsets are those of the decoded prompt."""
    history, text_field = completion.rows[number].history, completion.predictor.text_field
    if not _prompt_text(completion, number):
        return []
    found, decoder, final = list[LoggedToken](), StreamingDecoder(text_field, []), 0
    for place in range(completion.rows[number].prompt):
        name = text_field.vocabulary.tokens[history.ids[place]]
        found.append((name, history.log_probs[place], None, final + len(decoder.text) - decoder.shown))
        final += len(decoder.push(history.ids[place]))
    return found


def _usage(completion: Completion, count: int) -> dict[str, int]:
    prompt = completion.prompt_tokens
    return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}


async def _fill(context: Context, model: LoadedModel, given: Mapping[str, Any], head: Mapping[str, Any]) -> Response:
    """A prompt, a blank and a suffix: the most probable tokens of the blank."""
    operation = find_operation(model, "fill")
    prompt = given.get("prompt", "")
    if not isinstance(prompt, str):
        raise RequestError(400, "the prompt is a list; expected one text where there is a suffix")
    if given.get("stream") or given.get("session"):
        raise RequestError(400, "a blank is filled at once; expected no stream and no session")
    count = given.get("n", 1)
    tokens = max(1, min(FILL_TOKENS, given.get("max_tokens", 1)))
    options = operation.read_options({"n_best": count, "tokens": tokens})
    text = f"{prompt}___{given['suffix']}"
    (found,) = await compute(context, model, operation, [text], options)
    choices = []
    for place, answer in enumerate(found["answers"]):
        score = float(np.log(max(answer["probability"], 1e-300)))
        scores = {"tokens": [answer["fills"][0]], "token_logprobs": [score], "top_logprobs": [None], "text_offset": [0]}
        text = "".join([prompt, answer["fills"][0], given["suffix"]]) if given.get("echo") else answer["fills"][0]
        choices.append(
            {
                "index": place,
                "text": text,
                "logprobs": scores if given.get("logprobs") is not None else None,
                "finish_reason": "stop",
            }
        )
    usage = {"prompt_tokens": 0, "completion_tokens": tokens * len(choices), "total_tokens": tokens * len(choices)}
    response = JsonResponse({**head, "choices": choices, "usage": usage})
    if sampling := [name for name in given if name in SAMPLING or name in ("best_of", "logit_bias", "seed", "stop")]:
        response.headers["Weft-Ignored"] = ", ".join(sampling)  # nothing is sampled: these are the most probable fills
    return response


EMBEDDING: Schema = object_of(
    ("model", "input"),
    model=string("the name of a language model"),
    input=_texts(MOST_INPUTS, "a text, or several; or lists of token ids"),
    encoding_format=optional(string("how vectors are written", enum=["float", "base64"])),
    dimensions=optional(integer(1, 1 << 20, "accepted if it is the size of the state")),
    **IGNORED_FIELDS,
)
EMBEDDED = object_of(
    ("object", "data", "model", "usage"),
    object=string(enum=["list"]),
    data=array(
        object_of(
            ("object", "index", "embedding"),
            object=string(enum=["embedding"]),
            index={"type": "integer"},
            embedding=either(array({"type": "number"}), string()),
        )
    ),
    model=string(),
    usage=object_of(
        ("prompt_tokens", "total_tokens"), prompt_tokens={"type": "integer"}, total_tokens={"type": "integer"}
    ),
)


async def embed(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """h of the top layer after the last token; of an HMM, the probabilities of its states."""
    model = context.models.get(body["model"])
    vectors, count = await state_vectors(context, model, _read_texts(body["input"]), size=body.get("dimensions"))
    text = body.get("encoding_format") == "base64"
    usage = {"prompt_tokens": count, "total_tokens": count}

    def answer() -> dict[str, Any]:
        data = [
            {
                "object": "embedding",
                "index": number,
                "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode() if text else vector.tolist(),
            }
            for number, vector in enumerate(vectors)
        ]
        return {"object": "list", "data": data, "model": model.name, "usage": usage}

    return await large_json(answer)


OPENAI_ENDPOINTS = [
    Endpoint(
        "GET", "/v1/models", list_models, "List the models.",
        results={200: Result("The models.", object_of(("object", "data"), object=string(), data=array(_MODEL)))},
    ),
    Endpoint(
        "GET", "/v1/models/{name}", get_model, "One model.", results={200: Result("The model.", _MODEL)}, errors=(404,)
    ),
    Endpoint(
        "POST", "/v1/completions", complete, "Continue a text, or fill the blank before a suffix.", body=COMPLETION,
        results={200: Result("The continuations; with `stream`, server-sent events.", COMPLETED)},
        errors=(404, 409), streams=("text/event-stream",),
    ),
    Endpoint(
        "POST", "/v1/embeddings", embed, "The state of a language model after a text.", body=EMBEDDING,
        results={200: Result("The vectors.", EMBEDDED)}, errors=(404,),
    ),
]  # fmt: skip
