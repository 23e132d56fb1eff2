"""Hugging Face's API: `/models/{name}` is the pipeline of the model's task.

A language model generates text (as Text Generation Inference does) where a body has `parameters` or `stream`, as
`InferenceClient.text_generation` sends them; a body with `inputs` alone, as `feature_extraction` sends it, asks for the
state after the text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from weft.errors import WeftError, short_repr, unknown_name
from weft.server.completion import (
    MOST_SEQUENCES,
    SAMPLING,
    SEED,
    Completion,
    CompletionRequest,
    check_stop,
    prompt_ids,
    read_sample,
)
from weft.server.config import MOST_INPUTS
from weft.server.errors import RequestError
from weft.server.generation import Piece, TokenInfo
from weft.server.http import Context, Endpoint, JsonResponse, Result, large_json
from weft.server.models import LoadedModel, find_operation
from weft.server.native_api import ANY, compute
from weft.server.openai_api import stream_response
from weft.server.operations import JsonRecord, ServedOperation
from weft.server.schema import (
    Schema,
    array,
    check_value,
    either,
    flag,
    ignored,
    integer,
    object_of,
    optional,
    string,
)
from weft.server.state_vectors import state_vectors
from weft.text.spans import OUTSIDE

INFERENCE: Schema = object_of(
    ("inputs",),
    inputs=either(string(), array(string(), minItems=1, maxItems=MOST_INPUTS), help="a text, or several"),
    parameters=optional(ANY),
    options=ignored(),
    stream=optional(flag("send the tokens of a generated text as server-sent events")),
    normalize=optional(flag("divide the state of a language model by its length")),
    dimensions=optional(integer(1, 1 << 20, "accepted if it is the size of the state")),
    encoding_format=optional(string("how a state is written", enum=["float"])),
    truncate=ignored(),
    truncation_direction=ignored(),
)
VECTOR_FIELDS = ("normalize", "dimensions", "encoding_format")
PARAMETERS: Schema = object_of(
    (),
    **SAMPLING,
    max_new_tokens=optional(integer(1, None, "the most tokens to generate; 100 unless given")),
    do_sample=optional(flag("sample even where no option of sampling is given; else the most probable tokens")),
    seed=SEED,
    stop=optional(array(string(), maxItems=16)),
    stop_sequences=optional(array(string(), maxItems=16)),
    best_of=optional(
        integer(1, MOST_SEQUENCES, "generate this many, and return the one with the highest mean log-probability")
    ),
    return_full_text=optional(flag("return the prompt, too")),
    truncate=optional(integer(1, 1 << 30, "read only so many of the last tokens of the prompt")),
    details=optional(flag("return the tokens and their log-probabilities")),
    decoder_input_details=optional(flag("return the tokens of the prompt, too")),
    top_n_tokens=optional(integer(0, 20, "alternatives of each token")),
    watermark=optional(flag("not supported: false")),
)
WARPERS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}  # and what stands for none


async def infer(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """The pipeline of the model's task."""
    model = context.models.get(request.path_params["name"])
    fill = model.operations.get("fill")
    if model.generator is not None and not (fill is not None and fill.predictor.is_input(body["inputs"])):
        if body.get("parameters") is None and body.get("stream") is None:
            texts, unit = (
                [body["inputs"]] if isinstance(body["inputs"], str) else body["inputs"],
                bool(body.get("normalize")),
            )
            vectors, _ = await state_vectors(context, model, texts, size=body.get("dimensions"), unit=unit)
            return JsonResponse([vector.tolist() for vector in vectors])
        return await _generate(context, model, body)
    if given := [name for name in ("stream", *VECTOR_FIELDS) if body.get(name) not in (None, False)]:
        raise RequestError(400, f"the body has {given[0]!r}; expected it for language models only")
    operation = find_operation(model)
    pipeline = PIPELINES.get(operation.name, Pipeline())
    if "parameters" not in body and "hf_hub" in request.headers.get("user-agent", ""):  # no other call of it has none
        raise RequestError(400, f"feature_extraction is for language models; the model {model.name} {pipeline.answers}")
    parameters = body.get("parameters") or {}
    options = _read_parameters(model, operation, pipeline, parameters)
    single = isinstance(body["inputs"], str)
    texts = [body["inputs"]] if single else body["inputs"]
    found = await compute(context, model, operation, texts, options)

    def answer() -> Any:
        results = [pipeline.to_result(model, one, parameters) for one in found]
        return results[0] if single and not pipeline.listed else results

    return await large_json(answer)


class Pipeline(NamedTuple):
    """What an operation is to such a client."""

    # parameters of the client: name to the option it stands for; None: it is accepted and ignored
    parameters: Mapping[str, str | None] = {}
    # a record, and the parameters of the request, to the result that the client expects
    to_result: Callable[[LoadedModel, JsonRecord, Mapping[str, Any]], Any] = lambda model, record, parameters: record
    listed: bool = False  # whether that result stands in a list where the request has one text
    call: str = ""  # what huggingface_hub calls it

    @property
    def answers(self) -> str:
        return f"answers {self.call or 'requests with its own options'}"


def _read_parameters(
    model: LoadedModel, operation: ServedOperation, pipeline: Pipeline, given: Mapping[str, Any]
) -> Any:
    """The options that parameters of a client stand for; the operation's own options are accepted, too."""
    own = [entry.name for entry in dataclasses.fields(operation.options)]
    options = {}
    for name, value in given.items():
        if name not in pipeline.parameters and name not in own:
            kind = f"the model {model.name} {pipeline.answers}: the parameter"
            raise unknown_name(kind, name, [*pipeline.parameters, *own])
        option = pipeline.parameters.get(name, name)
        if option is not None and value is not None:
            options[option] = value
    return operation.read_options(options)


def _to_labels(model: LoadedModel, record: JsonRecord, parameters: Mapping[str, Any]) -> list[JsonRecord]:
    """[{label, score}], the most probable label first."""
    ordered = sorted(record["probabilities"].items(), key=lambda pair: -pair[1])
    count = parameters.get("top_k")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise WeftError(f"top_k is {short_repr(count)}", expected="a number of labels, 1 or more")
    return [{"label": label, "score": score} for label, score in ordered[:count]]


def _to_entities(model: LoadedModel, record: JsonRecord, parameters: Mapping[str, Any]) -> list[JsonRecord]:
    """[{entity_group, score, word, start, end}] of the spans, or of every word where tags are no spans.

    The score of a span is the smallest probability of its tags. Offsets are code points of the text as it was sent.
    """
    text, offsets, confidence = record["text"], record["offsets"], record["confidence"]
    ignored = parameters.get("ignore_labels")
    ignored = [OUTSIDE] if ignored is None else ignored
    if not isinstance(ignored, list) or not all(isinstance(label, str) for label in ignored):
        raise WeftError(f"ignore_labels is {short_repr(ignored)}", expected="a list of labels")
    if "spans" in record:
        spans = [(one["label"], one["start"], one["end"]) for one in record["spans"]]
    else:
        tags = record.get("tags") or ["word"] * len(offsets)
        spans = [(tag, at, at + 1) for at, tag in enumerate(tags)]
    found = []
    for label, first, last in spans:
        if label in ignored:
            continue
        start, end = offsets[first][0], offsets[last - 1][1]
        score = min(confidence[first:last])
        found.append({"entity_group": label, "score": score, "word": text[start:end], "start": start, "end": end})
    return found


def _to_fills(model: LoadedModel, record: JsonRecord, parameters: Mapping[str, Any]) -> list[JsonRecord]:
    """[{score, token, token_str, sequence}]; of several blanks, the token of the first."""
    return [
        {
            "score": answer["probability"],
            "token": model.predictor.text_field.vocabulary.id(answer["fills"][0]),
            "token_str": answer["fills"][0],
            "sequence": answer["text"],
        }
        for answer in record["answers"]
    ]


def _to_translation(model: LoadedModel, record: JsonRecord, parameters: Mapping[str, Any]) -> JsonRecord:
    best = record["translations"]
    return {"translation_text": best[0]["text"] if best else ""}


_TAGGING = Pipeline(
    dict.fromkeys(("aggregation_strategy", "ignore_labels", "stride")), _to_entities, call="token_classification"
)
PIPELINES = {
    "classify": Pipeline(
        {"top_k": None, "function_to_apply": None}, _to_labels, listed=True, call="text_classification"
    ),
    "tag": _TAGGING,
    "segment": _TAGGING,
    "fill": Pipeline({"top_k": "n_best", "targets": None}, _to_fills, call="fill_mask"),
    "translate": Pipeline(
        dict.fromkeys(("src_lang", "tgt_lang", "clean_up_tokenization_spaces", "truncation", "generate_parameters")),
        _to_translation,
        listed=True,
        call="translation",
    ),
}


async def _generate(context: Context, model: LoadedModel, body: Mapping[str, Any]) -> Response:
    given = {name: value for name, value in (body.get("parameters") or {}).items() if value is not None}
    check_value(PARAMETERS, given, "parameters")
    inputs, stream, best_of = body["inputs"], bool(body.get("stream")), given.get("best_of", 1)
    if not isinstance(inputs, str):
        raise RequestError(400, "inputs is a list; expected one text to continue")
    if given.get("watermark"):
        raise RequestError(400, "watermark is true; expected false, as texts have no watermark")
    if stream and best_of > 1:
        raise RequestError(400, "best_of is more than 1; expected no stream, as ended texts are ranked")
    samples = given.get("do_sample") or any(given.get(name, none) != none for name, none in WARPERS.items())
    details = bool(given.get("details"))
    (ids,) = await prompt_ids(model, [inputs])
    request = CompletionRequest(
        (tuple(ids[-given.get("truncate", 0) :]),),
        given.get("max_new_tokens", 100),
        choices=best_of,
        ranked=best_of > 1,
        sample=read_sample(given if samples else {**given, "temperature": 0}),
        seed=given.get("seed"),
        stop=check_stop([*given.get("stop", []), *given.get("stop_sequences", [])]),
        log_probs=given.get("top_n_tokens", 0) if details else None,
        echo=details and bool(given.get("decoder_input_details")),
    )
    completion = await Completion.prepare(context, model, request)
    before = inputs if given.get("return_full_text") else ""
    if stream:
        return stream_response(context, completion, _events(completion, before), "text/event-stream")
    found = await completion.whole()
    best, *others = completion.ranked()[0]
    answer: dict[str, Any] = {"generated_text": before + found[best].text}
    if details:
        answer["details"] = _details(completion, best, found[best])
        if others:
            answer["details"]["best_of_sequences"] = [
                {"generated_text": before + found[row].text, **_details(completion, row, found[row])} for row in others
            ]
    return JsonResponse([answer])


def _details(completion: Completion, row: int, piece: Piece) -> dict[str, Any]:
    """How a text was generated."""
    history, vocabulary = completion.rows[row].history, completion.predictor.text_field.vocabulary
    prompt = zip(history.ids[: completion.rows[row].prompt], history.log_probs, strict=False)
    prefill = [{"id": id, "text": vocabulary.tokens[id], "logprob": value} for id, value in prompt]
    found = {
        "finish_reason": _reason(completion, row),
        "generated_tokens": len(piece.tokens),
        "seed": completion.seed,
        "prefill": prefill if completion.request.echo else [],
        "tokens": [_token(token, text) for token, text in _with_texts(piece)],
    }
    if completion.request.log_probs:
        found["top_tokens"] = [_alternatives(completion, token) for token in piece.tokens]
    return found


def _reason(completion: Completion, row: int) -> str:
    if completion.rows[row].finish == "length":
        return "length"
    return "stop_sequence" if completion.rows[row].stop.ended else "eos_token"


def _with_texts(piece: Piece) -> list[tuple[TokenInfo, str]]:
    """Tokens with their parts of the text; the parts joined are the text."""
    ends = [*(token.offset for token in piece.tokens[1:]), len(piece.text)]
    return [(token, piece.text[token.offset : end]) for token, end in zip(piece.tokens, ends, strict=True)]


def _token(token: TokenInfo, text: str) -> dict[str, Any]:
    return {"id": token.id, "text": text, "logprob": token.log_prob, "special": False}


def _alternatives(completion: Completion, token: TokenInfo) -> list[dict[str, Any]]:
    names = completion.predictor.text_field.vocabulary.tokens
    return [{"id": one.id, "text": names[one.id], "logprob": one.log_prob, "special": False} for one in token.top]


async def _events(completion: Completion, before: str) -> AsyncIterator[bytes]:
    """Server-sent events, one for each token as soon as its text is final; the last one has the whole text."""
    text, waiting, sent = "", list[TokenInfo](), 0

    def event(token: dict[str, Any], top: list[dict[str, Any]], last: Mapping[str, Any]) -> bytes:
        nonlocal sent
        sent += 1
        value = {"index": sent, "token": token, "generated_text": None, "details": None, **last}
        if completion.request.log_probs:
            value["top_tokens"] = top
        return f"data:{json.dumps(value, ensure_ascii=False)}\n\n".encode()

    try:
        async for _, piece in completion.pieces():
            text += piece.text
            waiting += piece.tokens
            while len(waiting) > 1 and (piece.finish or waiting[1].offset <= len(text)):
                token = waiting.pop(0)
                part = text[token.offset : waiting[0].offset]
                yield event(_token(token, part), _alternatives(completion, token), {})
        details = {
            "finish_reason": _reason(completion, 0),
            "generated_tokens": completion.rows[0].count,
            "input_length": completion.prompt_tokens,
            "seed": completion.seed,
        }
        last = {"generated_text": before + text, "details": details}
        if waiting:
            yield event(_token(waiting[0], text[waiting[0].offset :]), _alternatives(completion, waiting[0]), last)
        else:  # the text is empty
            end = {
                "id": completion.predictor.text_field.vocabulary.eos_id,
                "text": "",
                "logprob": None,
                "special": True,
            }
            yield event(end, [], last)
    except RequestError as error:
        value = {"error": error.message, "error_type": "generation"}
        yield f"data:{json.dumps(value, ensure_ascii=False)}\n\n".encode()


HUGGING_FACE_ENDPOINTS = [
    Endpoint("POST", "/models/{name}", infer, "Predict as Hugging Face's pipelines do.", body=INFERENCE,
             results={200: Result("The result of the pipeline; with `stream`, server-sent events.")}, errors=(404,),
             streams=("text/event-stream",)),
]  # fmt: skip
