"""Requests as JSON schemas: the same schema checks a body and stands in /openapi.json.

`check_value` knows the keywords that the server's own schemas use. A message names the value's place, what was
given and what was expected.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

from weft.config import setting_schema
from weft.errors import listed, short_repr
from weft.server.errors import RequestError

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}


def integer(low: int, high: int | None, help: str = "", **more: Any) -> Schema:
    """An integer; without a highest value, `ServerConfig` has one."""
    limits = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
    return {"type": "integer", **limits, "description": help, **more}


def real(low: float, high: float, help: str = "", **more: Any) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high, "description": help, **more}


def string(help: str = "", **more: Any) -> Schema:
    return {"type": "string", "description": help, **more}


def flag(help: str = "", **more: Any) -> Schema:
    return {"type": "boolean", "description": help, **more}


def array(items: Schema, help: str = "", **more: Any) -> Schema:
    return {"type": "array", "items": items, "description": help, **more}


def either(*schemas: Schema, help: str = "") -> Schema:
    return {"anyOf": list(schemas), "description": help}


def optional(schema: Schema) -> Schema:
    """The schema, or null, which stands for a field that is left out."""
    return {"anyOf": [schema, NULL], "description": schema.get("description", "")}


def ignored() -> Schema:
    """A field that clients send and that means nothing here: any value is accepted, see `ignored_fields`."""
    return {"description": "accepted, and ignored", "x-ignored": True}


def object_of(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object with these fields and no others."""
    return fields(properties, required)


def fields(properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """The same, for fields that stand in a mapping."""
    found: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def options_schema(kind: type[Any]) -> Schema:
    """The schema of a dataclass of settings."""
    types = get_type_hints(kind)
    properties = {
        entry.name: setting_schema(types[entry.name], entry.default, entry.metadata)
        for entry in dataclasses.fields(kind)
    }
    return fields(properties)


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a string"),
    "integer": ((int,), "an integer"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
    "array": ((list,), "a list"),
    "object": ((dict,), "an object"),
    "null": ((type(None),), "null"),
}


def check_value(schema: Schema, value: Any, place: str = "the body") -> None:
    """Compares a value with a schema."""
    if "anyOf" in schema:
        _check_any(schema, value, place)
        return
    if "type" not in schema:
        return
    accepted, _ = _KINDS[schema["type"]]
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
        raise _wrong(place, value, _expected(schema))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        if not low <= value <= high or value in (math.inf, -math.inf):
            raise _wrong(place, value, _expected(schema))
    elif isinstance(value, str):
        size = len(value)
        if not schema.get("minLength", 0) <= size <= schema.get("maxLength", size):
            raise _wrong(place, value, _expected(schema))
        if "enum" in schema and value not in schema["enum"]:
            raise _wrong(place, value, _expected(schema))
        if "pattern" in schema and not re.search(schema["pattern"], value):
            raise _wrong(place, value, _expected(schema))
    elif isinstance(value, list):
        size = len(value)
        if not schema.get("minItems", 0) <= size <= schema.get("maxItems", size):
            raise RequestError(400, f"{place} has {size:,} items; expected {_expected(schema)}")
        if schema["items"] == {"type": "integer"} and all(type(part) is int for part in value):
            return  # token ids: there may be many
        for at, part in enumerate(value):
            check_value(schema["items"], part, f"{place}[{at}]")
    elif isinstance(value, dict):
        _check_fields(schema, value, place)


def ignored_fields(schema: Schema, value: Any) -> list[str]:
    """The names of the fields of a checked value that have no effect."""
    known: Schema = next((one["properties"] for one in schema.get("anyOf", [schema]) if "properties" in one), {})
    given = [name for name in known if isinstance(value, dict) and value.get(name) is not None]
    inner = [name for field in given for name in ignored_fields(known[field], value[field])]
    return [name for name in given if known[name].get("x-ignored")] + inner


def _check_any(schema: Schema, value: Any, place: str) -> None:
    fitting = [one for one in schema["anyOf"] if "anyOf" in one or isinstance(value, _KINDS[one["type"]][0])]
    errors = []
    for one in fitting:
        try:
            check_value(one, value, place)
            return
        except RequestError as error:
            errors.append(error)
    raise errors[0] if errors else _wrong(place, value, " or ".join(_expected(one) for one in schema["anyOf"]))


def _check_fields(schema: Schema, value: Mapping[str, Any], place: str) -> None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise RequestError(400, f"{place} has no {name!r}; expected {_expected(known[name])}")
    for name, part in value.items():
        if name in known:
            check_value(known[name], part, name if place == "the body" else f"{place}.{name}")
        elif schema.get("additionalProperties") is False:
            near = difflib.get_close_matches(name[:60], known, n=1, cutoff=0.5)
            hint = f". Try: {near[0]}" if near else ""
            raise RequestError(
                400, f"{place} has a field {short_repr(name)}; expected only: {', '.join(known) or 'none'}{hint}"
            )
        elif isinstance(schema.get("additionalProperties"), dict):
            check_value(schema["additionalProperties"], part, f"{place}.{name}")


def _expected(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_expected(one) for one in schema["anyOf"])
    words = _KINDS[schema["type"]][1]
    if "enum" in schema:
        return f"one of: {listed(schema['enum'])}"
    if "minimum" in schema:
        low, high = schema["minimum"], schema.get("maximum")
        if low == high:
            return f"{low:,}"
        return f"{words} of {low:,} or more" if high is None else f"{words} from {low:,} to {high:,}"
    if schema["type"] == "array" and ("maxItems" in schema or "minItems" in schema):
        most = f"{schema.get('minItems', 0):,} to {schema['maxItems']:,}" if "maxItems" in schema else "at least 1"
        return f"a list of {most} items"
    if "maxLength" in schema:
        return f"{words} of {schema.get('minLength', 0)} to {schema['maxLength']:,} characters"
    return f"{words} that fits {schema['pattern']}" if "pattern" in schema else words


def _wrong(place: str, value: Any, expected: str) -> RequestError:
    return RequestError(400, f"{place} is {short_repr(value)}; expected {expected}")


def parse_json(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:  # only an escape can give half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(400, "the body has half of a surrogate pair; expected valid Unicode text") from error
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body is no UTF-8 at byte {error.start}; expected JSON in UTF-8") from error
    except RecursionError as error:
        raise RequestError(400, "the body is nested too deeply; expected a JSON object") from error
    except ValueError as error:
        raise RequestError(400, f"the body is no JSON: {error}; expected a JSON object") from error
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
