"""Probes over HTTP: what a request may ask of each probe of the registry, within the limits of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import WeftError
from weft.probes.parts import has_part, inspect
from weft.probes.registry import all_probes
from weft.probes.result import ProbeResult, count_values
from weft.server.schema import Schema, fields, object_of, string
from weft.tasks.inspection import Inspection

LONGEST_SCORED, LONGEST_LOOK = 20_000, 2_000  # characters; most probes have values for every unit, or pair of tokens
SEARCHED_CHARACTERS = 60_000  # of a corpus
MOST_VALUES = 2_000_000  # of a result


def look_schema(name: str) -> Schema:
    """The schema of a request to a probe."""
    probe = all_probes()[name]
    described = probe.describe()
    options = {key: _offered(one) for key, one in described["options"].items() if one.get("x-requests") != []}
    text = string("the text to look at", maxLength=LONGEST_SCORED if probe.part == "scores" else LONGEST_LOOK)
    required = ("text",) if described["text"] == "required" else ()
    return object_of(required, text=text, options=fields(options))


def _offered(schema: Schema) -> Schema:
    found = {key: value for key, value in schema.items() if not key.startswith("x-")}
    return {**found, "enum": schema["x-requests"]} if "x-requests" in schema else found


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
