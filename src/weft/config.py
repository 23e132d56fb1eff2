"""Settings: frozen dataclasses, read strictly from a TOML file and from `--set section.key=value`.

Every setting has a default, a type, a line of help and, where it matters, a range or a list of choices. An
unknown key, a wrong type or a value out of range is an error that names the key and the nearest right one.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from weft.errors import WeftError, unknown_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Config = TypeVar("Config")
Value = TypeVar("Value", bool, int, float, str)


def setting(
    default: Value,
    help: str,
    *,
    choices: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
) -> Value:
    """A dataclass field with its help and the values it takes (`low` and `high` included)."""
    metadata = {"help": help, "choices": tuple(choices), "low": low, "high": high}
    return field(default=default, metadata=metadata)


def load_config(
    kind: type[Config], file: Path | None = None, sets: Iterable[str] = (), *, base: Mapping[str, Any] | None = None
) -> Config:
    """Defaults, then `base`, then the TOML file, then each `section.key=value` in turn."""
    values: dict[str, Any] = copy.deepcopy(dict(base or {}))
    for section, part in ({} if file is None else _read_toml(file)).items():
        values[section] = {**values.get(section, {}), **part} if isinstance(part, dict) else part
    for assignment in sets:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise WeftError(
                f"--set {assignment!r} has no key and value", expected="section.key=value", hint="--set train.rate=0.01"
            )
        _put(values, key.strip().split("."), _parse_value(text.strip()), assignment)
    return from_dict(kind, values)


def from_dict(kind: type[Config], values: Mapping[str, Any], prefix: str = "") -> Config:
    """The nested mapping as the dataclass, strictly: no unknown key, no wrong type, nothing out of range."""
    types = get_type_hints(kind)
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown_name("setting", prefix + name, [prefix + known for known in fields])
        if dataclasses.is_dataclass(types[name]):
            if not isinstance(value, Mapping):
                raise WeftError(f"{prefix}{name} is {value!r}", expected=f"a section, such as [{prefix}{name}]")
            made[name] = from_dict(types[name], value, f"{prefix}{name}.")
        else:
            made[name] = _checked(prefix + name, value, types[name], fields[name].metadata)
    return kind(**made)


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as nested plain values, for JSON."""
    return dataclasses.asdict(config)


def to_toml(config: Any) -> str:
    """The configuration as a commented TOML file, ready to be edited and given to `--config`."""
    lines = []
    for section in dataclasses.fields(config):
        lines.append(f"[{section.name}]")
        part = getattr(config, section.name)
        for entry in dataclasses.fields(part):
            value = getattr(part, entry.name)
            text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else value
            choices = f" ({', '.join(entry.metadata['choices'])})" if entry.metadata["choices"] else ""
            lines.append(f"{entry.name} = {text}  # {entry.metadata['help']}{choices}")
        lines.append("")
    return "\n".join(lines)


def changed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """The keys whose values differ, as {"section.key": (old, new)}."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found.update(changed(before, after, f"{prefix}{name}."))
        elif before != after:
            found[prefix + name] = (before, after)
    return found


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        return values
    except OSError as error:
        raise WeftError(f"configuration file {file}: {error.strerror}", expected="a readable TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WeftError(f"configuration file {file}: {error}", expected="TOML") from error


def _parse_value(text: str) -> Any:
    """The text as a TOML value where it is one (3, 0.1, true, "x"), else as it stands (lstm)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(values: dict[str, Any], path: Sequence[str], value: Any, assignment: str) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise WeftError(f"--set {assignment!r} goes below {name!r}, which is a value", expected="section.key=value")
    values[path[-1]] = value


_TYPES: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    int | str: ((int, str), "a name or a whole number"),  # such as a column
}


def _checked(key: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> Any:
    accepted, words = _TYPES[kind]
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise WeftError(f"{key} is {value!r}", expected=words)
    if limits["choices"] and value not in limits["choices"]:
        raise unknown_name(key, str(value), limits["choices"])
    low, high = limits["low"], limits["high"]
    too_low, too_high = low is not None and not value >= low, high is not None and not value <= high
    if too_low or too_high or (kind is float and value in (float("inf"), float("-inf"))):
        bounds = f"{low} to {high}" if high is not None else f"{low} or more"
        raise WeftError(f"{key} is {value}", expected=bounds if low is not None else "a finite number")
    return float(value) if kind is float else value  # type: ignore[arg-type]
