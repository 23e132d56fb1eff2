"""Probes and pictures over HTTP: what a request may ask of each probe of the registry, within the limits of a server.

Figures come as SVG for the page, whether they are of a probe or of the page's own data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.errors import WeftError
from weft.pictures.figures import DIVERGING, SEQUENTIAL, ColouredText, Curve, Curves, Figure, HeatMap, value_range
from weft.pictures.page import to_embedded
from weft.probes.parts import has_part, inspect
from weft.probes.registry import all_probes
from weft.probes.result import ProbeResult, count_values
from weft.results import to_plain
from weft.server.config import MOST_VALUES
from weft.server.errors import RequestError
from weft.server.schema import Schema, array, check_value, fields, flag, integer, object_of, optional, string
from weft.tasks.inspection import Inspection

LONGEST_SCORED, LONGEST_LOOK = 20_000, 2_000  # characters; most probes have values for every unit, or pair of tokens
SEARCHED_CHARACTERS = 60_000  # of a corpus


WIDTH = integer(240, 2000, "of the figures, in pixels")
_NUMBERS = array(optional({"type": "number"}), maxItems=MOST_VALUES)
_NAMES = array(string(), maxItems=MOST_VALUES)
_LIMITS = array({"type": "number"}, minItems=2, maxItems=2)
_COMMON = {"kind": string(), "title": string(), "label": string(), "scale": string(enum=[SEQUENTIAL, DIVERGING])}
_FIGURES: dict[str, tuple[type[Any], Schema]] = {
    "ColouredText": (
        ColouredText,
        object_of(("tokens", "values"), **_COMMON, tokens=_NAMES, values=_NUMBERS, limits=_LIMITS),
    ),
    "HeatMap": (
        HeatMap,
        object_of(
            ("values",), **_COMMON, values=array(_NUMBERS), rows=_NAMES, columns=_NAMES,
            limits=_LIMITS,
        ),
    ),
    "Curves": (
        Curves,
        object_of(
            ("curves",), kind=string(), title=string(), x_label=string(), y_label=string(), log=flag(),
            curves=array(object_of(
                ("name", "x", "y"), name=string(), x=_NUMBERS, y=_NUMBERS, best=optional(integer(0, MOST_VALUES)),
                hue=integer(0, 1000), dashed=flag(),
            )),
        ),
    ),
}  # fmt: skip
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
    text = string("the text to look at", maxLength=LONGEST_SCORED if probe.part == "scores" else LONGEST_LOOK)
    more = {"width": WIDTH} if drawn else {}
    required = ("text",) if probe.describe()["text"] == "required" else ()
    return object_of(required, text=text, options=fields(offered_options(name, drawn=drawn)), **more)


def draw_look(model: Any, name: str, text: str, options: Mapping[str, Any], width: int) -> dict[str, Any]:
    """The results of a probe and its figures, as data and as SVG."""
    results = run_look(model, name, text, options)
    figures = [to_drawn(figure, width) for figure in all_probes()[name].draw(results, options)]
    return {"results": [one.to_dict() for one in results], "figures": figures}


def to_drawn(figure: Figure, width: int) -> dict[str, Any]:
    """A figure as data, with its SVG and where its values stand in it; a text is set by the page itself."""
    data = {"kind": type(figure).__name__, **to_plain(figure)}
    if isinstance(figure, ColouredText):
        return {**data, "range": value_range(figure.values, figure.scale, figure.limits)}
    svg, frame = to_embedded(figure, width)
    return {**data, "svg": svg, "frame": frame}


def read_figure(given: Mapping[str, Any]) -> Figure:
    """A figure from the data of a request.

    Raises:
        RequestError: It is none.
    """
    kind, schema = _FIGURES[given["kind"]]
    check_value(schema, given, "figure")
    data = {name: _value(name, value) for name, value in given.items() if name != "kind"}
    found: Figure = kind(**{"title": "", **data})
    sizes = (
        [(len(found.values), len(found.tokens))] if isinstance(found, ColouredText)
        else [(len(one.x), len(one.y)) for one in found.curves] if isinstance(found, Curves)
        else [(len(row), len(given.get("columns", ()))) for row in given["values"]]
    )  # fmt: skip
    if any(one != other for one, other in sizes):
        raise RequestError(400, "the lists of the figure differ in length; expected one value for each place")
    return found


def _value(name: str, value: Any) -> Any:
    if name == "values":
        return np.array(value, dtype=np.float64)  # None is NaN
    if name == "curves":
        return tuple(
            Curve(**{**one, "x": _value("values", one["x"]), "y": _value("values", one["y"])}) for one in value
        )
    return tuple(value) if isinstance(value, list) else value


def shows_held_out(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the answer to a request is made of the held-out examples of a run."""
    return all_probes()[name].part == "labels" or "data" in options


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
    parts = Inspection()
    for text in (example, f"{example} {example}"):  # some models need two tokens or more
        try:
            parts = inspect(model, text)
            break
        except WeftError:
            continue
    return [name for name, one in all_probes().items() if has_part(model, parts, one.part)]
