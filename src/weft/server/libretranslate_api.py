"""LibreTranslate's API: `/translate`, `/translate_file`, `/detect`, `/languages`, `/frontend/settings`."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from weft.errors import short_repr
from weft.server.config import LONGEST_INPUT, MOST_INPUTS
from weft.server.errors import RequestError
from weft.server.http import Context, Endpoint, JsonResponse, Result
from weft.server.models import LoadedModel, find_operation
from weft.server.native_api import compute
from weft.server.operations import UNKNOWN_LANGUAGES, Languages, Profile
from weft.server.schema import Schema, array, either, integer, object_of, optional, string

MOST_ALTERNATIVES = 10


MOST_FILES, FILE_SECONDS = 20, 1800  # translated files that are kept, and for how long
TEXT_FILE = re.compile(r"[^/\\]{0,200}\.txt")


class Detected(NamedTuple):
    """A language and the probability that a text is in it."""

    language: str
    probability: float

    def to_json(self) -> dict[str, Any]:
        return {"confidence": round(100 * self.probability, 1), "language": self.language}


KEY = optional(string("the API key, where the server has one"))
SOURCE = optional(string("the language of the text, or auto"))
TARGET = optional(string("the language to translate to"))
TRANSLATION: Schema = object_of(
    ("q",),
    q=either(string(), array(string(), minItems=1, maxItems=MOST_INPUTS), help="a text, or several"),
    source=SOURCE,
    target=TARGET,
    format=optional(string("text only", enum=["text"])),
    alternatives=optional(integer(0, MOST_ALTERNATIVES, "how many other translations of each text")),
    api_key=KEY,
)
DETECTED: Schema = object_of(("confidence", "language"), confidence={"type": "number"}, language=string())


async def translate(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """Every line of a text is a sentence."""
    texts = [body["q"]] if isinstance(body["q"], str) else body["q"]
    model, found = await find_translator(context, body, texts)
    count = body.get("alternatives") or 0
    ranked = await _translations(context, model, texts, count)
    best, others = [one[0] for one in ranked], [one[1:] for one in ranked]
    single = isinstance(body["q"], str)
    answer: dict[str, Any] = {"translatedText": best[0] if single else best}
    if found:
        answer["detectedLanguage"] = found[0].to_json() if single else [one.to_json() for one in found]
    if count:
        answer["alternatives"] = others[0] if single else others
    return JsonResponse(answer)


async def _translations(context: Context, model: LoadedModel, texts: Sequence[str], count: int) -> list[list[str]]:
    """Of each text the best translation, and `count` others."""
    operation = find_operation(model, "translate")
    options = operation.read_options({"n_best": 1 + count})
    lines = [line for text in texts for line in text.split("\n")]
    found = iter(await compute(context, model, operation, lines, options))
    ranked = []
    for text in texts:
        rows = [[one["text"] for one in next(found)["translations"]] or [""] for _ in text.split("\n")]
        most = max(map(len, rows))
        ranked.append(["\n".join(row[min(at, len(row) - 1)] for row in rows) for at in range(most)])
    return ranked


def _translators(context: Context) -> list[tuple[LoadedModel, Languages]]:
    able = [(model, model.languages) for model in context.models if model.languages is not None]
    if not able:
        raise RequestError(404, "no model here translates")
    return able


async def find_translator(
    context: Context, body: Mapping[str, Any], texts: Sequence[str]
) -> tuple[LoadedModel, list[Detected] | None]:
    """The translator that a body asks for; where the source is "auto", also the detected language of each text."""
    source, target = body.get("source") or "auto", body.get("target") or ""
    able = _translators(context)
    fitting = [
        (model, languages)
        for model, languages in able
        if languages == UNKNOWN_LANGUAGES or (source in ("auto", languages.source) and target in ("", languages.target))
    ]
    if not fitting:
        pairs = ", ".join(f"{one.source} to {one.target}" for _, one in able)
        raise RequestError(400, f"no model translates {source[:20]} to {target[:20]}; expected {pairs}")
    profiles = _profiles(fitting)
    if source != "auto" or not profiles:
        return fitting[0][0], None
    found = await asyncio.to_thread(lambda: [_detect(profiles, text) for text in ("\n".join(texts), *texts)])
    ranks = [one.language for one in found[0]]
    best = min(fitting, key=lambda one: ranks.index(one[1].source) if one[1].source in ranks else len(ranks))
    return best[0], [one[0] for one in found[1:]]


def _profiles(models: Sequence[tuple[LoadedModel, Languages]]) -> list[tuple[str, Profile]]:
    """The languages of translators, with what their texts look like, as far as their runs know it."""
    return [pair for model, languages in models for pair in zip(languages, model.profiles, strict=False)]


def _detect(profiles: Sequence[tuple[str, Profile]], text: str) -> list[Detected]:
    """The languages, the most probable one of a text first."""
    scores: dict[str, float] = {}
    for language, profile in profiles:
        scores[language] = max(profile.log_prob(text), scores.get(language, -math.inf))
    best = max(scores.values())
    weights = {language: math.exp(score - best) for language, score in scores.items()}
    found = [Detected(language, weight / sum(weights.values())) for language, weight in weights.items()]
    return sorted(found, key=lambda one: -one.probability)


async def detect(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """One of the languages of the translators."""
    able = _translators(context)
    if not body["q"].strip():
        raise RequestError(400, "the text is empty; expected a text whose language is to be detected")
    profiles = _profiles(able)
    if not profiles:
        names = ", ".join(model.name for model, _ in able)
        raise RequestError(
            501, f"{names} cannot detect languages: the run has no languages.json; expected a whole run directory"
        )
    return JsonResponse([one.to_json() for one in _detect(profiles, body["q"])])


async def translate_file(context: Context, request: Request, body: Mapping[str, Any]) -> Response:
    """A text file; the answer has the address of its translation, which is kept for half an hour."""
    name = body.get("filename") or "text.txt"
    if not TEXT_FILE.fullmatch(name):
        raise RequestError(400, f"the file is {short_repr(name)}; expected a text file, .txt")
    text = body["file"].replace("\r\n", "\n")
    model, _ = await find_translator(context, body, [text])
    ((translation, *_),) = await _translations(context, model, [text], 0)
    place = f"{secrets.token_urlsafe(24)}.txt"
    _drop_files(context, MOST_FILES - 1)
    context.files[place] = (time.monotonic(), translation)
    return JsonResponse({"translatedFileUrl": f"{request.base_url}download_file/{place}"})


async def download_file(context: Context, request: Request, body: None) -> Response:
    """A translated file. Nobody can know its name but who sent the file, so no key is asked for."""
    _drop_files(context, MOST_FILES)
    found = context.files.get(request.path_params["file"])
    if found is None:
        raise RequestError(404, "there is no such file; translations of files are kept for half an hour")
    headers = {"Content-Disposition": 'attachment; filename="translation.txt"', "X-Content-Type-Options": "nosniff"}
    return Response(found[1], media_type="text/plain", headers=headers)


def _drop_files(context: Context, most: int) -> None:
    """Forgets old files, and the oldest where there are more than `most`."""
    before = time.monotonic() - FILE_SECONDS
    for place, (made, _) in list(context.files.items()):
        if made < before or len(context.files) > most:
            del context.files[place]


async def frontend_settings(context: Context, request: Request, body: None) -> Response:
    """What a page of LibreTranslate asks first."""
    pairs = [model.languages for model in context.models if model.languages is not None]
    source, target = pairs[0] if pairs else ("", "")
    keyed = context.config.api_key is not None
    return JsonResponse(
        {
            "apiKeys": keyed,
            "keyRequired": keyed,
            "charLimit": LONGEST_INPUT,
            "frontendTimeout": 500,
            "filesTranslation": True,
            "supportedFilesFormat": [".txt"],
            "suggestions": False,
            "language": {
                "source": {"code": source, "name": source},
                "target": {"code": target, "name": target},
            },
        }
    )


async def languages(context: Context, request: Request, body: None) -> Response:
    targets: dict[str, list[str]] = {}
    for model in context.models:
        if model.languages is not None:
            source, target = model.languages
            targets.setdefault(source, []).append(target)
            targets.setdefault(target, [])
    return JsonResponse(
        [{"code": code, "name": code, "targets": list(dict.fromkeys(to))} for code, to in targets.items()]
    )


LIBRETRANSLATE_ENDPOINTS = [
    Endpoint("POST", "/translate", translate, "Translate, as LibreTranslate does.", body=TRANSLATION, form=True,
             results={200: Result("The translation.", object_of(
                 ("translatedText",), translatedText=either(string(), array(string())),
                 alternatives=array(either(string(), array(string()))),
                 detectedLanguage=either(DETECTED, array(DETECTED)))),
             }, errors=(404,)),
    Endpoint("GET", "/languages", languages, "The languages of the translators.", public=True,
             results={200: Result("The languages.", array(object_of(
                 ("code", "name", "targets"), code=string(), name=string(), targets=array(string()))))}),
    Endpoint("POST", "/detect", detect, "The language of a text, one of those of the translators.", form=True,
             body=object_of(("q",), q=string("a text"), api_key=KEY),
             results={200: Result("The languages, the most probable one first.", array(DETECTED))},
             errors=(404, 501)),
    Endpoint("POST", "/translate_file", translate_file, "Translate a text file.", form=True,
             body=object_of(("file",), file=string("the text"), filename=optional(string("its name: .txt")),
                            source=SOURCE, target=TARGET, api_key=KEY),
             results={200: Result("Where its translation is.", object_of(
                 ("translatedFileUrl",), translatedFileUrl=string()))}, errors=(404,)),
    Endpoint("GET", "/download_file/{file}", download_file, "The translation of a file.", public=True,
             results={200: Result("The text.", media="text/plain")}, errors=(404,)),
    Endpoint("GET", "/frontend/settings", frontend_settings, "Limits, for pages of LibreTranslate.", public=True,
             results={200: Result("The settings.", {"type": "object"})}),
]  # fmt: skip
