"""LibreTranslate's API: `/translate`, `/languages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.server.errors import RequestError
from weft.server.http import Context, Endpoint, JsonResponse, Result
from weft.server.models import LoadedModel, text_service
from weft.server.native_api import check_count
from weft.server.schema import Schema, array, either, integer, object_of, optional, string
from weft.tasks.service import UNKNOWN_LANGUAGES

MOST_ALTERNATIVES = 10


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


LIBRETRANSLATE_ENDPOINTS = [
    Endpoint("POST", "/translate", translate, "Translate, as LibreTranslate does.", body=TRANSLATION, form=True,
             results={200: Result("The translation.", object_of(
                 ("translatedText",), translatedText=either(string(), array(string())),
                 alternatives=array(either(string(), array(string()))))),
             }, errors=(404,)),
    Endpoint("GET", "/languages", languages, "The languages of the translators.",
             results={200: Result("The languages.", array(object_of(
                 ("code", "name", "targets"), code=string(), name=string(), targets=array(string()))))}),
]  # fmt: skip
