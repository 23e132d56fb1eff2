"""weft's own API: models, predictions, probes, sessions, runs."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import weft
from weft.errors import WeftError
from weft.pictures import to_svg
from weft.pictures.draw_cells import FIGURE_WIDTH
from weft.probes.registry import all_probes
from weft.server.config import LONGEST_TABLE, MOST_INPUTS
from weft.server.errors import RequestError
from weft.server.guard import is_loopback
from weft.server.http import Context, Endpoint, JsonResponse, Result, large_json
from weft.server.look import (
    FIGURE,
    LANGUAGE,
    WIDTH,
    draw_look,
    look_schema,
    offered_options,
    read_figure,
    run_look,
    shows_own_data,
    to_drawn,
)
from weft.server.models import LoadedModel, find_operation, generator
from weft.server.operations import JsonRecord, ServedOperation
from weft.server.schema import Schema, array, check_value, either, fields, flag, integer, object_of, optional, string
from weft.server.sessions import SESSION_ID, Session, check_id
from weft.tasks.runs import find_runs, metric_curves, summarize_run
from weft.training.run import open_run

ANY: Schema = {"type": "object"}
_ID = string("the id of a session", pattern=SESSION_ID)
_SUMMARY: dict[str, Schema] = {
    "id": string(),
    "model": string(),
    "hash": string(),
    "length": {"type": "integer"},
    "created": {"type": "number"},
    "used": {"type": "number"},
    "saved": flag(),
}
SESSION = object_of(
    (*_SUMMARY, "text", "tokens", "logprobs", "next"),
    **_SUMMARY,
    text=string(),
    tokens=array(string()),
    logprobs=array(optional({"type": "number"})),
    next=array(array(either(string(), {"type": "number"}))),
)
LAST_STEP = 1 << 40
READ_TOKENS = 512  # of a session's text that are read before a request can be cancelled


async def list_models(context: Context, request: Request, body: None) -> Response:
    found = [await model.worker.call(lambda model=model: context.models.describe(model)) for model in context.models]
    config = context.config
    limits = {name: getattr(config, name) for name in ("max_body", "max_tokens", "max_sessions", "timeout")}
    limits["max_texts"] = MOST_INPUTS
    return JsonResponse(
        {"models": found, "runs": config.runs is not None, "limits": limits, "version": weft.__version__}
    )


async def predict(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """The records of the command line."""
    model = context.models.get(request.path_params["model"])
    operation = find_operation(model, body.get("operation"))
    options = operation.read_options(body.get("options") or {})
    found = await compute(context, model, operation, body["texts"], options)
    return await large_json(lambda: {"results": found})


async def compute(
    context: Context, model: LoadedModel, operation: ServedOperation, inputs: Sequence[Any], options: Any
) -> list[JsonRecord]:
    """The record of each input of an operation, computed together with those of other requests."""
    operation.check_inputs(inputs, options)
    return await model.worker.compute(
        lambda given: operation.predict(given, options), inputs, (operation.name, options)
    )


async def list_probes(context: Context, request: Request, body: None) -> Response:
    probes = {
        name: {"about": one.about, "options": offered_options(name, drawn=True)} for name, one in all_probes().items()
    }
    return JsonResponse(probes)


async def look(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    model, name, options = _asked(context, request, body, drawn=False)
    found = await model.worker.call(lambda: run_look(model.predictor, name, body.get("text", ""), options))
    return await large_json(lambda: [one.to_dict() for one in found])


async def look_figures(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    model, name, options = _asked(context, request, body, drawn=True)
    text, width, language = body.get("text", ""), body.get("width", FIGURE_WIDTH), body.get("language", "en")
    found = await model.worker.call(lambda: draw_look(model.predictor, name, text, options, width, language))
    return await large_json(lambda: found)


async def draw_figure(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    figure, width = read_figure(body["figure"]), body.get("width", FIGURE_WIDTH)
    found = await asyncio.to_thread(lambda: {**to_drawn(figure, width), "file": to_svg(figure)})
    return await large_json(lambda: found)


def _asked(
    context: Context, request: Request, body: Mapping[str, Any], *, drawn: bool
) -> tuple[LoadedModel, str, Mapping[str, Any]]:
    """The model, the probe and the options of a request to a probe."""
    model, name = context.models.get(request.path_params["model"]), request.path_params["probe"]
    if name not in all_probes():
        raise RequestError(404, f"there is no probe {name[:50]!r}; expected one of: {', '.join(all_probes())}")
    check_value(look_schema(name, drawn=drawn), body)
    options = body.get("options") or {}
    if shows_own_data(name, body.get("text", ""), options) and not is_loopback(context.config.host):
        raise RequestError(403, "the data of a run is shown on loopback only; expected a text of your own")
    return model, name, options


async def compare(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    first, second = context.models.get(body["first"]), context.models.get(body["second"])
    found = await context.comparisons.compare(first, second)
    tests = [{**next(one.records()), "first": first.name, "second": second.name} for one in found.tests]
    return JsonResponse({"first": first.name, "second": second.name, "tests": tests, "reason": found.reason})


async def list_sessions(context: Context, request: Request, body: None) -> Response:
    return JsonResponse({"sessions": [one.summary() for one in context.sessions]})


async def new_session(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    model = context.models.get(body["model"])
    generator(model)
    session = context.sessions.new(body.get("id") or uuid.uuid4().hex, model)
    try:
        with context.sessions.use(session):
            found = await _read(context, session, body.get("text") or "", None)
    except RequestError:
        context.sessions.delete(session.id)
        raise
    return JsonResponse(found, 201)


async def get_session(context: Context, request: Request, body: None) -> Response:
    session = context.sessions.get(request.path_params["id"])
    with context.sessions.use(session):
        return JsonResponse(await _settled(session, session.describe))


async def delete_session(context: Context, request: Request, body: None) -> Response:
    context.sessions.delete(request.path_params["id"])
    return Response(status_code=204)


async def read_session(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    session = context.sessions.get(request.path_params["id"])
    if (body.get("text") is None) == (body.get("tokens") is None):
        raise RequestError(400, "expected either a text or tokens")
    with context.sessions.use(session):
        return JsonResponse(await _read(context, session, body.get("text") or "", body.get("tokens")))


async def _read(context: Context, session: Session, text: str, tokens: list[str] | None) -> dict[str, Any]:
    """Adds a text or tokens to a session and describes it."""
    text_field, history = generator(session.model).text_field, session.history
    if tokens is None:
        ids = await _settled(session, lambda: text_field.encode(text))
    else:
        unknown = [one for one in tokens if one not in text_field.vocabulary]
        if unknown:
            raise RequestError(400, f"the token {unknown[0][:50]!r} is not in the vocabulary")
        ids = text_field.vocabulary.encode(tokens)
    if len(history.ids) + len(ids) > context.config.session_tokens:
        raise RequestError(400, f"the session would have more than {context.config.session_tokens:,} tokens")

    before = len(history.ids)

    def read(part: list[int]) -> None:
        history.append(part)
        history.read_scored(history.unread)

    try:
        for begin in range(0, len(ids), READ_TOKENS):
            await _settled(session, partial(read, ids[begin : begin + READ_TOKENS]))
        found: dict[str, Any] = await _settled(session, session.describe)
        return found
    except BaseException:
        await _settled(session, lambda: history.rewind(before))  # what cannot be read is not kept
        raise


async def _settled(session: Session, function: Callable[[], Any]) -> Any:
    """Computes with a session. A request that is cancelled ends when the worker no longer touches the session."""
    task = asyncio.ensure_future(session.model.worker.call(function))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _place(session: Session, given: int | None, name: str) -> int:
    """A number of tokens of a session, those before its text included."""
    if given is None:
        return len(session.history.ids)
    if given > session.length:
        raise RequestError(400, f"{name} is {given:,}; expected 0 to {session.length:,}, the tokens of the session")
    return given + session.history.hidden if given else 0


async def rewind_session(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    session = context.sessions.get(request.path_params["id"])

    def work() -> dict[str, Any]:
        session.history.rewind(place)
        return session.describe()

    with context.sessions.use(session):
        place = _place(session, body["to"], "to")
        return JsonResponse(await _settled(session, work))


async def fork_session(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    session = context.sessions.get(request.path_params["id"])
    id = check_id(body.get("id") or uuid.uuid4().hex)
    with context.sessions.use(session):
        place = _place(session, body.get("at"), "at")
        history = await _settled(session, lambda: session.history.copy(place))
        other = context.sessions.new(id, session.model, history)
        with context.sessions.use(other):
            return JsonResponse(await _settled(other, other.describe), 201)


async def save_session(context: Context, request: Request, body: None) -> Response:
    session = context.sessions.get(request.path_params["id"])
    with context.sessions.use(session):
        size = await _settled(session, lambda: context.sessions.save(session))
    return JsonResponse({"id": session.id, "saved": True, "bytes": size})


def _find_runs(context: Context) -> dict[str, Path]:
    """Runs by name: those below the folder of --runs, or else the served ones."""
    folder = context.config.runs
    if folder is None:
        return dict(context.models.paths)
    names = {path: os.fsencode(path.relative_to(folder).as_posix()) for path in find_runs(folder)}
    return {name.decode("utf-8", "replace"): path for path, name in names.items()}  # no name that cannot be sent


async def list_runs(context: Context, request: Request, body: None) -> Response:
    def work() -> list[dict[str, Any]]:
        found = []
        for name, path in _find_runs(context).items():
            try:
                one = next(summarize_run(path).records())
            except WeftError:
                continue  # being written, or of another version
            data = one["data"]
            one = {"name": name, **one, "data": Path(data).name if data else None}
            found.append({key: value for key, value in one.items() if key != "path"})
        return found

    return JsonResponse({"runs": await asyncio.to_thread(work)})


def _run_path(context: Context, name: str) -> Path:
    found = _find_runs(context)
    if name not in found:
        raise RequestError(404, f"there is no run {name[:100]!r}")
    return found[name]


async def run_metrics(context: Context, request: Request, body: None) -> Response:
    """The lines of metrics.jsonl after a step."""
    name = request.path_params["name"]
    path = await asyncio.to_thread(_run_path, context, name)
    given = request.query_params.get("after", "-1")
    try:
        after = int(given) if given.isascii() and len(given) < 16 else None
    except ValueError:
        after = None
    if after is None or not -1 <= after <= LAST_STEP:
        raise RequestError(400, f"after is {given[:40]!r}; expected a step")

    def work() -> dict[str, Any]:
        summary = summarize_run(path)
        records = [one for one in open_run(path).metrics() if one["step"] > after]
        return {
            "name": name,
            "state": summary.state,
            "step": summary.step,
            "metric": summary.metric,
            "records": records,
        }

    return JsonResponse(await asyncio.to_thread(work))


async def run_curves(context: Context, request: Request, body: None) -> Response:
    name = request.path_params["name"]
    path = await asyncio.to_thread(_run_path, context, name)
    curves = await asyncio.to_thread(metric_curves, path)
    return JsonResponse({key: {**one.to_dict(), "path": name, "label": one.label} for key, one in curves.items()})


_SESSION_RESULT = {200: Result("The session.", SESSION)}
NATIVE_ENDPOINTS = [
    Endpoint("GET", "/weft/models", list_models, "The models: tasks, capabilities, probes, sizes, settings.",
             results={200: Result("The models.", ANY)}),
    Endpoint("POST", "/weft/predict/{model}", predict, "Predict texts; records as the command line's --json.",
             body=object_of(("texts",), options=optional(ANY), operation=optional(string("its name")), texts=array(
                 {}, "inputs of the operation, see /weft/models", minItems=1, maxItems=MOST_INPUTS)),
             results={200: Result("A record for each text.", object_of(("results",), results=array(ANY)))},
             errors=(404,)),
    Endpoint("POST", "/weft/look/{model}/{probe}", look, "Look inside a model: a probe's results.",
             body=object_of(text=string(maxLength=LONGEST_TABLE), options=optional(ANY)),
             results={200: Result("The results of the probe.", array(ANY))}, errors=(403, 404),
             choices={"probe": list(all_probes())}),
    Endpoint("POST", "/weft/look/{model}/{probe}/figures", look_figures, "Its results, and figures of them as SVG.",
             body=object_of(text=string(maxLength=LONGEST_TABLE), options=optional(ANY), width=WIDTH,
                            language=LANGUAGE),
             results={200: Result("The results and the figures.", ANY)}, errors=(403, 404),
             choices={"probe": list(all_probes())}),
    Endpoint("GET", "/weft/probes", list_probes, "The probes: what each shows, and its options.",
             results={200: Result("The probes by name.", ANY)}),
    Endpoint("POST", "/weft/draw", draw_figure, "Draw a figure of one's own: coloured text, a heat map, curves.",
             body=object_of(("figure",), figure=FIGURE, width=WIDTH),
             results={200: Result("The figure, for a page and for a file.", ANY)}),
    Endpoint("POST", "/weft/compare", compare, "Compare two models on their held-out data: paired bootstrap tests.",
             body=object_of(("first", "second"), first=string("the name of a model"), second=string("of another")),
             results={200: Result("A test for each metric; without any, the reason.", object_of(
                 ("first", "second", "tests", "reason"), first=string(), second=string(), tests=array(ANY),
                 reason=string()))}, errors=(404,)),
    Endpoint("GET", "/weft/sessions", list_sessions, "List the sessions.",
             results={200: Result("The sessions.", object_of(("sessions",), sessions=array(fields(_SUMMARY))))}),
    Endpoint("POST", "/weft/sessions", new_session, "Begin a session.",
             body=object_of(("model",), model=string(), id=optional(_ID), text=optional(string())),
             results={201: Result("The session.", SESSION)}, errors=(404, 409)),
    Endpoint("GET", "/weft/sessions/{id}", get_session, "A session.", results=_SESSION_RESULT, errors=(404, 409)),
    Endpoint("DELETE", "/weft/sessions/{id}", delete_session, "Remove a session.",
             results={204: Result("It is removed.")}, errors=(404, 409)),
    Endpoint("POST", "/weft/sessions/{id}/read", read_session, "Read a text or tokens.",
             body=object_of(text=optional(string()), tokens=optional(array(string(), maxItems=10_000))),
             results=_SESSION_RESULT, errors=(404, 409)),
    Endpoint("POST", "/weft/sessions/{id}/rewind", rewind_session, "Return to an earlier token.",
             body=object_of(("to",), to=integer(0, 1 << 30, "how many tokens to keep")),
             results=_SESSION_RESULT, errors=(404, 409)),
    Endpoint("POST", "/weft/sessions/{id}/fork", fork_session, "Copy a session, or its first tokens.",
             body=object_of(id=optional(_ID), at=optional(integer(0, 1 << 30, "how many tokens; all unless given"))),
             results={201: Result("The new session.", SESSION)}, errors=(404, 409)),
    Endpoint("POST", "/weft/sessions/{id}/save", save_session, "Write a session to the disk.",
             results={200: Result("It is saved.", object_of(("id", "saved", "bytes"), id=string(), saved=flag(),
                                                          bytes={"type": "integer"}))}, errors=(404, 409)),
    Endpoint("GET", "/weft/runs", list_runs, "The training runs below the folder of --runs, or the served ones.",
             results={200: Result("The runs.", object_of(("runs",), runs=array(ANY)))}, errors=(404,)),
    Endpoint("GET", "/weft/runs/{name:path}/metrics", run_metrics, "What a run has reported after a step.",
             query={"after": integer(-1, LAST_STEP, "only records of later steps")},
             results={200: Result("The records.", ANY)}, errors=(404,)),
    Endpoint("GET", "/weft/runs/{name:path}/curves", run_curves, "All curves of a run.",
             results={200: Result("Curves by name.", ANY)}, errors=(404,)),
]  # fmt: skip
