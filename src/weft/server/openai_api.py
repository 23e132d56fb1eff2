"""OpenAI's API: `/v1/models`, `/v1/completions`, `/v1/embeddings`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from torch import Tensor

from weft.server.completion import SAMPLING, Completion, CompletionRequest, check_stop, read_sample
from weft.server.errors import RequestError, error_body
from weft.server.generation import Piece, TokenInfo
from weft.server.http import Context, Endpoint, EventResponse, JsonResponse, Result
from weft.server.models import LoadedModel, generator, text_service
from weft.server.schema import NULL, Schema, array, either, flag, integer, object_of, optional, string
from weft.server.sessions import SESSION_ID

MOST_LOG_PROBS = 20
LoggedToken = tuple[str, float | None, dict[str, float] | None, int]  # name, log-probability, alternatives, offset
FILL_TOKENS = 8  # the most tokens of a blank in /v1/completions

_PROMPT = either(string(), array(string(), minItems=1, maxItems=64), help="the beginning of the text, or several")
COMPLETION: Schema = object_of(
    ("model",),
    model=string("the name of a model"),
    prompt=optional(_PROMPT),
    suffix=optional(string("the text after a blank; for models that fill blanks")),
    max_tokens=optional(integer(0, 1_000_000, "the most tokens to generate; 16 unless given")),
    **SAMPLING,
    n=optional(integer(1, 64, "how many continuations of each prompt")),
    best_of=optional(integer(1, 64, "accepted if it equals n")),
    seed=optional(integer(0, (1 << 63) - 1, "equal seeds give equal texts")),
    stop=optional(either(string(), array(string(), maxItems=16), help="end before this text")),
    echo=optional(flag("return the prompt, too")),
    logprobs=optional(integer(0, MOST_LOG_PROBS, "log-probabilities of the tokens and of this many alternatives")),
    stream=optional(flag("send the text as it is generated, as server-sent events")),
    stream_options=optional(object_of(include_usage=optional(flag()), include_obfuscation=optional(flag()))),
    session=optional(string("the session that the text continues; made if it does not exist", pattern=SESSION_ID)),
    logit_bias=optional(object_of()),
    user=optional(string("ignored")),
)

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
    """`/v1/completions`."""
    given = {name: value for name, value in body.items() if value is not None}
    model = context.models.get(given["model"])
    head = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model.name,
    }
    if given.get("best_of") not in (None, given.get("n", 1)):
        raise RequestError(400, "best_of differs from n; expected equal values, as texts are not ranked")
    if "suffix" in given:
        return await _fill(model, given, head)
    wanted = read_completion(context, given)
    completion = Completion(context, model, wanted)
    if given.get("stream"):
        usage = bool((given.get("stream_options") or {}).get("include_usage"))
        return stream_response(context, completion, _chunks(completion, head, usage), "text/event-stream")
    found = await completion.whole()
    choices = [_choice(completion, number, piece, whole=True) for number, piece in enumerate(found)]
    return JsonResponse(
        {**head, "choices": choices, "usage": _usage(completion, sum(len(one.tokens) for one in found))}
    )


def read_completion(context: Context, given: Mapping[str, Any]) -> CompletionRequest:
    """What a checked body asks for."""
    prompts = given.get("prompt", "")
    tokens = given.get("max_tokens", 16)
    if tokens > context.config.max_tokens:
        raise RequestError(400, f"max_tokens is {tokens:,}; expected at most {context.config.max_tokens:,}")
    return CompletionRequest(
        prompts=(prompts,) if isinstance(prompts, str) else tuple(prompts),
        tokens=tokens,
        choices=given.get("n", 1),
        sample=read_sample(given),
        seed=given.get("seed"),
        stop=check_stop(given.get("stop")),
        log_probs=given.get("logprobs"),
        echo=bool(given.get("echo")),
        session=given.get("session"),
    )


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
                yield _event({**head, "choices": [_plain_choice(number, text)]})
        async for number, piece in merged(completion):
            count += len(piece.tokens)
            yield _event({**head, "choices": [_choice(completion, number, piece, whole=False)]})
        if usage:
            yield _event({**head, "choices": [], "usage": _usage(completion, count)})
    except RequestError as error:
        yield _event(error_body("/v1/completions", error.status, error.message, error.code))
    yield b"data: [DONE]\n\n"


async def merged(completion: Completion) -> AsyncIterator[tuple[int, Piece]]:
    """The pieces of all rows with their numbers, as they come."""
    if len(completion.rows) == 1:
        async for piece in completion.pieces(completion.rows[0]):
            yield 0, piece
        return
    queue: asyncio.Queue[tuple[int, Piece | Exception | None]] = asyncio.Queue()

    async def forward(number: int) -> None:
        try:
            async for piece in completion.pieces(completion.rows[number]):
                queue.put_nowait((number, piece))
            queue.put_nowait((number, None))
        except RequestError as error:
            queue.put_nowait((number, error))

    tasks = [asyncio.ensure_future(forward(number)) for number in range(len(completion.rows))]
    try:
        left = len(tasks)
        while left:
            number, found = await queue.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                left -= 1
            else:
                yield number, found
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


def _event(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _prompt_text(completion: Completion, number: int) -> str:
    prompt: str = completion.request.prompts[number // completion.request.choices]
    text: str = completion.predictor.codec.normalizer(prompt)
    return text


def _plain_choice(number: int, text: str) -> dict[str, Any]:
    return {"index": number, "text": text, "logprobs": None, "finish_reason": None}


def _choice(completion: Completion, number: int, piece: Piece, *, whole: bool) -> dict[str, Any]:
    request, row = completion.request, completion.rows[number]
    before = _prompt_text(completion, number) if request.echo else ""
    found = None
    if request.log_probs is not None:
        tokens, start = list(piece.tokens), len(before)
        names = completion.predictor.codec.vocabulary.tokens
        listed = [_token(one, names, start) for one in tokens]
        if whole and request.echo:
            listed = [*_prompt_tokens(completion, number), *listed]
        found = {
            "tokens": [one[0] for one in listed],
            "token_logprobs": [one[1] for one in listed],
            "top_logprobs": [one[2] for one in listed],
            "text_offset": [one[3] for one in listed],
        }
    text = before + piece.text if whole else piece.text
    return {"index": number, "text": text, "logprobs": found, "finish_reason": row.finish if piece.finish else None}


def _token(one: TokenInfo, names: Sequence[str], start: int) -> LoggedToken:
    top = {names[other.id]: other.log_prob for other in one.top} if one.top else None
    if top is not None and one.log_prob is not None:
        top.setdefault(names[one.id], one.log_prob)
    return names[one.id], one.log_prob, top, start + one.offset


def _prompt_tokens(completion: Completion, number: int) -> list[LoggedToken]:
    """The tokens of an echoed prompt; offsets are those of the decoded prompt."""
    history, codec = completion.rows[number].history, completion.predictor.codec
    if not _prompt_text(completion, number):
        return []
    found: list[LoggedToken] = []
    at = 0
    for place in range(completion.rows[number].prompt):
        name = codec.vocabulary.tokens[history.ids[place]]
        found.append((name, history.log_probs[place], None, at))
        at = len(codec.decode(history.ids[: place + 1]))
    return found


def _usage(completion: Completion, count: int) -> dict[str, int]:
    prompt = completion.prompt_tokens
    return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}


async def _fill(model: LoadedModel, given: Mapping[str, Any], head: Mapping[str, Any]) -> Response:
    """A prompt, a blank and a suffix: the most probable tokens of the blank."""
    service = text_service(model, "fill")
    prompt = given.get("prompt", "")
    if not isinstance(prompt, str):
        raise RequestError(400, "the prompt is a list; expected one text where there is a suffix")
    if given.get("stream") or given.get("session"):
        raise RequestError(400, "a blank is filled at once; expected no stream and no session")
    count = given.get("n", 1)
    tokens = max(1, min(FILL_TOKENS, given.get("max_tokens", 1)))
    options = service.read_options({"n_best": count, "tokens": tokens})
    text = f"{prompt}___{given['suffix']}"
    (found,) = await model.worker.compute(lambda texts: service.predict(texts, options), [text], ("fill", options))
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
    return JsonResponse({**head, "choices": choices, "usage": usage})


EMBEDDING: Schema = object_of(
    ("model", "input"),
    model=string("the name of a language model"),
    input=either(string(), array(string(), minItems=1, maxItems=256), help="a text, or several"),
    encoding_format=optional(string("how vectors are written", enum=["float", "base64"])),
    dimensions=optional(integer(1, 1 << 20, "accepted if it is the size of the state")),
    user=optional(string("ignored")),
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
    """`/v1/embeddings`: h of the top layer after the last token; of an HMM, the probabilities of its states."""
    model = context.models.get(body["model"])
    predictor, engine = generator(model), model.engine
    assert engine is not None
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    ids = [predictor.prompt_ids(text) for text in texts]

    def run(rows: Sequence[Sequence[int]]) -> list[Any]:
        return [_state_vector(engine.read(row, engine.start())) for row in rows]

    vectors = await model.worker.compute(run, ids, "embed")
    size = len(vectors[0])
    if body.get("dimensions") not in (None, size):
        raise RequestError(400, f"dimensions is {body['dimensions']}; expected {size}, the size of the state")
    text = body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": number,
            "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode() if text else vector.tolist(),
        }
        for number, vector in enumerate(vectors)
    ]
    count = sum(map(len, ids))
    usage = {"prompt_tokens": count, "total_tokens": count}
    return JsonResponse({"object": "list", "data": data, "model": model.name, "usage": usage})


def _state_vector(state: Any) -> Any:
    found = state if isinstance(state, Tensor) else state[-1][0]
    if not found.is_floating_point():
        raise RequestError(400, "an n-gram model has no state vector; expected a model of the task lm or hmm")
    return found[0].detach().cpu().double().numpy()


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
