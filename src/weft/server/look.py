"""Probes and pictures over HTTP: what a request may ask of each probe of the registry, within the limits of a server.

Figures come as SVG for the page, whether they are of a probe or of the page's own data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.errors import WeftError
from weft.pictures.figures import (
    DIVERGING,
    SEQUENTIAL,
    Alignment,
    Bars,
    ColouredText,
    Curve,
    Curves,
    Figure,
    HeatMap,
    Interval,
    Intervals,
    value_range,
)
from weft.pictures.page import to_embedded
from weft.probes.parts import has_part, inspect, unknown_tokens
from weft.probes.registry import all_probes
from weft.probes.result import ProbeResult, count_values
from weft.results import to_plain
from weft.server.config import LONGEST_TABLE, MOST_VALUES
from weft.server.errors import RequestError
from weft.server.figure_words import PAGE_LANGUAGES, translate_figure
from weft.server.schema import Schema, array, check_value, fields, flag, integer, object_of, optional, string
from weft.tasks.inspection import Inspection

LONGEST_LOOK = 2_000  # characters; most probes have values for every unit, or pair of tokens
LONGEST_BY_PART = {"scores": 20_000, "series": LONGEST_TABLE}  # of the probes of other parts
SEARCHED_CHARACTERS = 60_000  # of a corpus


WIDTH = integer(240, 2000, "of the figures, in pixels")
LANGUAGE = string("of the words in the figures", enum=list(PAGE_LANGUAGES))
_NUMBERS = array(optional({"type": "number"}), maxItems=MOST_VALUES)
_NAMES = array(string(), maxItems=MOST_VALUES)
_NUMBER: Schema = {"type": "number"}
_FIELDS: dict[str, Schema] = {  # of figures and their parts; fields of a name are alike, but for those of values
    **dict.fromkeys(("kind", "title", "label", "x_label", "y_label", "name", "note", "mark"), string()),
    **dict.fromkeys(("tokens", "notes", "rows", "columns", "names"), _NAMES),
    **dict.fromkeys(("x", "y"), _NUMBERS),
    **dict.fromkeys(("value", "low", "high"), _NUMBER),
    **dict.fromkeys(("log", "dashed", "marked"), flag()),
    "scale": string(enum=[SEQUENTIAL, DIVERGING]),
    "limits": array(_NUMBER, minItems=2, maxItems=2),
    "best": optional(integer(0, MOST_VALUES)),
    "hue": integer(0, 1000),
}


def _drawn(required: str, others: str, **own: Schema) -> Schema:
    """The schema of a figure, or of a part of one, by the names of its fields; some have schemas of their own."""
    names = f"{others} {required}".split()
    return fields({name: own[name] if name in own else _FIELDS[name] for name in names}, tuple(required.split()))


_FIGURES: dict[str, tuple[type[Any], Schema]] = {
    kind.__name__: (kind, schema)
    for kind, schema in {
        ColouredText: _drawn("tokens values", "kind title label scale notes limits", values=_NUMBERS),
        HeatMap: _drawn("values", "kind title label scale rows columns limits", values=array(_NUMBERS)),
        Curves: _drawn(
            "curves", "kind title x_label y_label log", curves=array(_drawn("name x y", "best hue dashed mark"))
        ),
        Alignment: _drawn("values rows columns", "kind title", values=array(_NUMBERS)),
        Bars: _drawn("names values", "kind title best", values=array(_NUMBER)),
        Intervals: _drawn("intervals", "kind title", intervals=array(_drawn("name value low high", "note marked"))),
    }.items()
}
FIGURE = object_of(("kind",), kind=string("the kind of figure", enum=list(_FIGURES)))
FIGURE["additionalProperties"] = True


def offered_options(name: str, *, drawn: bool) -> dict[str, Schema]:
    """The options of a probe that a request may give; with `drawn`, those of its figures too."""
    described = all_probes()[name].describe()
    options = {**described["options"], **(described["drawing"] if drawn else {})}
    found = {}
    for key, schema in options.items():
        if schema.get("x-requests") != []:
            found[key] = {word: value for word, value in schema.items() if not word.startswith("x-")}
            if "x-requests" in schema:
                found[key]["enum"] = schema["x-requests"]
    return found


def look_schema(name: str, *, drawn: bool) -> Schema:
    """The schema of a request to a probe, or for its figures."""
    probe = all_probes()[name]
    text = string("the text to look at", maxLength=LONGEST_BY_PART.get(probe.part, LONGEST_LOOK))
    more = {"width": WIDTH, "language": LANGUAGE} if drawn else {}
    required = ("text",) if probe.describe()["text"] == "required" else ()
    return object_of(required, text=text, options=fields(offered_options(name, drawn=drawn)), **more)


def draw_look(
    model: Any, name: str, text: str, options: Mapping[str, Any], width: int, language: str
) -> dict[str, Any]:
    """The results of a probe and its figures, as data and as SVG, and the tokens of the text that are unknown."""
    results = run_look(model, name, text, options)
    drawn = [translate_figure(figure, language) for figure in all_probes()[name].draw(results, options)]
    return {
        "results": [one.to_dict() for one in results],
        "figures": [to_drawn(figure, width) for figure in drawn],
        "unknown": unknown_tokens(model, text),
    }


def to_drawn(figure: Figure, width: int) -> dict[str, Any]:
    """A figure as data, with its SVG and where its values stand in it; a text is set by the page itself."""
    data = {"kind": type(figure).__name__, **to_plain(figure)}
    if isinstance(figure, ColouredText):
        return {**data, "range": value_range(figure.values, figure.scale, figure.limits)}
    svg, frame = to_embedded(figure, width)
    return {**data, "svg": svg, "frame": frame}


def read_figure(given: Mapping[str, Any]) -> Figure:
    """A figure from the data of a request."""
    kind, schema = _FIGURES[given["kind"]]
    check_value(schema, given, "figure")
    data = {name: _value(name, value) for name, value in given.items() if name != "kind"}
    found: Figure = kind(**{"title": "", **data})
    if any(one != other for one, other in _sizes(found, given)):
        raise RequestError(400, "the lists of the figure differ in length; expected one value for each place")
    return found


def _sizes(figure: Figure, given: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Pairs of lengths that have to be equal."""
    match figure:
        case ColouredText():
            notes = len(figure.notes) or len(figure.tokens)
            return [(len(figure.values), len(figure.tokens)), (notes, len(figure.tokens))]
        case Bars():
            return [
                (len(figure.values), len(figure.names)),
                (max(figure.best or 0, len(figure.names) - 1) + 1, len(figure.names)),
            ]
        case Curves():
            return [(len(one.x), len(one.y)) for one in figure.curves]
        case HeatMap() | Alignment():
            rows = [(len(given["values"]), len(figure.rows))] if isinstance(figure, Alignment) else []
            return [*rows, *((len(row), len(figure.columns)) for row in given["values"])]
    return []


def _value(name: str, value: Any) -> Any:
    if name == "intervals":
        return tuple(Interval(**one) for one in value)
    if name == "values":
        return np.array(value, dtype=np.float64)  # None is NaN
    if name == "curves":
        return tuple(
            Curve(**{**one, "x": _value("values", one["x"]), "y": _value("values", one["y"])}) for one in value
        )
    return tuple(value) if isinstance(value, list) else value


def shows_own_data(name: str, text: str, options: Mapping[str, Any]) -> bool:
    """Whether the answer to a request is made of the data of a run."""
    part = all_probes()[name].part
    return part == "labels" or "data" in options or (part == "series" and not text.strip())


def run_look(model: Any, name: str, text: str, options: Mapping[str, Any]) -> tuple[ProbeResult, ...]:
    """The results of a probe, within the limits of a server."""
    top, size = options.get("top", 0), sum(map(len, options.get("texts", ())))
    if len(text) * top > MOST_VALUES // 4:  # an alternative has two values and a name
        raise WeftError(f"the text has {len(text):,} characters", expected=f"at most {MOST_VALUES // 4 // top:,} with "
                        f"{top} alternatives of each token")  # fmt: skip
    if size > SEARCHED_CHARACTERS:
        raise WeftError(f"the texts have {size:,} characters", expected=f"at most {SEARCHED_CHARACTERS:,}")
    found = all_probes()[name].look(model, text, options)
    if (values := count_values(found)) > MOST_VALUES:
        raise WeftError(f"the layers have {values:,} values for this text", expected=f"at most {MOST_VALUES:,}",
                        hint="a shorter text, or the option `layer`")  # fmt: skip
    return found


def supported(model: Any, example: str) -> list[str]:
    """The names of the probes that a model supports."""
    parts = inspect_example(model, example)
    return [name for name, one in all_probes().items() if has_part(model, parts, one.part)]


def inspect_example(model: Any, example: str) -> Inspection:
    """What there is to look at in a model, on its example."""
    for text in (example, f"{example} {example}"):  # some models need two tokens or more
        with contextlib.suppress(WeftError):
            return inspect(model, text)
    return Inspection()
