"""The probes by name, and the options of each: what `/weft/look` answers and `weft look --json` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft import probes
from weft.errors import WeftError
from weft.probes.labels import LABELS
from weft.probes.parts import inspect
from weft.server.schema import Schema, array, fields, integer, object_of, string
from weft.tasks.inspection import Inspection

LONGEST_SCORED, LONGEST_LOOK = 20_000, 2_000  # characters; most probes have values for every unit, or pair of tokens
HELD_OUT_TEXT = "held-out"  # the corpus of the run's own held-out text
SEARCHED_CHARACTERS = 60_000  # of a corpus
MOST_VALUES = 2_000_000  # of a result

_LAYER: dict[str, Schema] = {
    "layer": integer(-1000, 1000, "only this layer, from 0; -1 is the top"),
    "direction": string("only this direction", enum=["forward", "backward"]),
    "stack": string("only this stack, such as encoder", maxLength=100),
}
_POSITION = {"position": integer(-100_000, 100_000, "the position or prediction; -1 is the last")}


@dataclass(frozen=True)
class Look:
    """A probe.

    Attributes:
        part: The part of an `Inspection` that it needs.
        run: A loaded model, a text and options to the results of `weft.probes`.
        options: The schemas of its options.
    """

    part: str
    run: Callable[..., Any]
    options: Mapping[str, Schema]


def _activations(model: Any, text: str, **options: Any) -> Any:
    found = probes.activations(model, text, **options)
    values = sum(one.size for layer in found.layers for part in (layer.gates, layer.states) for one in part.values())
    if values > MOST_VALUES:
        raise WeftError(f"the layers have {values:,} values for this text", expected=f"at most {MOST_VALUES:,}",
                        hint="a shorter text, or the option `layer`")  # fmt: skip
    return found


def _surprisal(model: Any, text: str, **options: Any) -> Any:
    top = options.get("top", 0)
    if len(text) * top > MOST_VALUES // 4:  # an alternative has two values and a name
        raise WeftError(f"the text has {len(text):,} characters", expected=f"at most {MOST_VALUES // 4 // top:,} with "
                        f"{top} alternatives of each token")  # fmt: skip
    return probes.surprisal(model, text, **options)


def _units(model: Any, text: str, **options: Any) -> Any:
    phrase, label, unit = options.pop("phrase", None), options.pop("label", None), options.pop("unit", None)
    corpus = _corpus(model, text, options.pop("texts", None), options.pop("data", None))
    if phrase is not None:
        return probes.select_units(model, text, phrase)
    if label is not None:
        return probes.correlate_units(model, corpus, label)
    if unit is None:
        raise WeftError("the units probe has no unit, label or phrase", expected="one of them")
    return probes.top_passages(model, corpus, unit=unit, **options)


def _corpus(model: Any, text: str, texts: list[str] | None, data: str | None) -> list[str]:
    if data is None:
        given = texts if texts is not None else [text]
        if (size := sum(map(len, given))) > SEARCHED_CHARACTERS:
            raise WeftError(f"the texts have {size:,} characters", expected=f"at most {SEARCHED_CHARACTERS:,}")
        return given
    found, size = [], 0
    for one in model.held_out_texts():
        found.append(one)
        size += len(one)
        if size >= SEARCHED_CHARACTERS:
            break
    if not found:
        raise WeftError("the run has no held-out text", expected="`texts` to search")
    return found


LOOKS: dict[str, Look] = {
    "surprisal": Look("scores", _surprisal, {"top": integer(0, 50, "how many alternatives of each token")}),
    "gates": Look("network", _activations, _LAYER),
    "states": Look("network", _activations, _LAYER),
    "gradient": Look("network", probes.gradient_flow, {}),
    "jacobian": Look("network", probes.step_jacobians, _LAYER),
    "terms": Look("network", probes.gradient_terms, {**_LAYER, **_POSITION}),
    "connectivity": Look(
        "network", probes.connectivity, {"method": string("the method", enum=["gradient", "integrated"])}
    ),
    "attention": Look("attention", probes.attention, {}),
    "beam": Look(
        "search",
        probes.beam,
        {
            "width": integer(1, 32, "the beam width"),
            "prefix": array(string(), "tokens that every hypothesis begins with", maxItems=1000),
        },
    ),
    "posterior": Look("chain", probes.posterior, {}),
    "units": Look(
        "network",
        _units,
        {
            **_LAYER,
            "unit": integer(0, 1 << 20, "the passages that activate this unit most"),
            "count": integer(1, 50, "how many passages"),
            "label": string("units that correlate with this label of each token", enum=list(LABELS)),
            "phrase": string("units that are on throughout this part of the text only", maxLength=1000),
            "texts": array(string(), "the corpus to search, in place of the text", maxItems=1000),
            "data": string("search the run's own held-out text", enum=[HELD_OUT_TEXT]),
        },
    ),
    "evidence": Look(
        "network",
        lambda model, text, position=-1: probes.evidence(model, text, prediction=position),
        _POSITION,
    ),
}


def look_schema(name: str) -> Schema:
    """The schema of a request to a probe."""
    text = string("the text to look at", maxLength=LONGEST_SCORED if LOOKS[name].part == "scores" else LONGEST_LOOK)
    return object_of(("text",), text=text, options=fields(LOOKS[name].options))


def run_look(model: Any, name: str, text: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results of a probe, as `weft look --json` prints them."""
    found = LOOKS[name].run(model, text, **options)
    results = found if isinstance(found, (tuple, list)) else [found]
    return [one.to_dict() for one in results]


def supported(model: Any, example: str) -> list[str]:
    """The names of the probes that a model supports."""
    parts = Inspection()
    for text in (example, f"{example} {example}"):  # some models need two tokens or more
        try:
            parts = inspect(model, text)
            break
        except WeftError:
            continue
    return [name for name, one in LOOKS.items() if getattr(parts, one.part) is not None]
