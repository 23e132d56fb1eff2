"""Typed settings: frozen dataclasses, read strictly from TOML files, `--set section.key=value` and Python values.

Each setting has a default, a type, one line of help and, where it applies, a range or a list of choices. An unknown
key, a wrong type or a value out of range raises a `WeftError` that names the key and suggests the closest valid one.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from weft.errors import WeftError, check_path, short_repr, unknown_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Config = TypeVar("Config")
LARGEST_INTEGER = 2**31 - 1  # of settings without a limit of their own
AUTO = -1  # "auto" as a number: the task chooses the setting when it knows its data
Value = TypeVar("Value", bool, int, float, str, tuple[str, ...])


class Settings:
    """Base of a section of settings. A subclass changes a default by assigning it; all else is inherited.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Train(Settings):
    ...     epochs: int = setting(20, "passes over the data", low=0)
    >>> @dataclasses.dataclass(frozen=True)
    ... class Short(Train):
    ...     epochs: int = 2
    >>> Short(), dataclasses.fields(Short)[0].metadata["help"]
    (Short(epochs=2), 'passes over the data')
    """

    def __init_subclass__(cls) -> None:
        inherited = getattr(cls, "__dataclass_fields__", {})
        for name in vars(cls).keys() & inherited.keys():
            value, metadata = vars(cls)[name], inherited[name].metadata
            if isinstance(value, dataclasses.Field):
                metadata = {**value.metadata, "option": value.metadata.get("option") or metadata.get("option", "")}
                value = value.default
            setattr(cls, name, field(default=value, metadata=metadata))


def setting(
    default: Value,
    help: str,
    *,
    choices: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    auto: bool = False,
    fixed: bool = False,
    option: str = "",
) -> Value:
    """A dataclass field for one setting.

    Args:
        default: the value when nothing is set.
        help: one line for `--show-config`.
        choices: the allowed values; empty: any.
        low: the smallest allowed value.
        high: the largest allowed value.
        auto: whether the setting may be "auto" (`AUTO`): the task then chooses its value.
        fixed: whether a resume cannot change it, though it stands under `train.`
        option: the option of `weft train` that sets it, such as "--epochs"; "--segment=segments" sets this value.
    """
    metadata = {"help": help, "choices": tuple(choices), "low": low, "high": high, "auto": auto, "fixed": fixed,
                "option": option}  # fmt: skip
    return field(default=default, metadata=metadata)


def load_config(
    kind: type[Config],
    file: str | Path | None = None,
    sets: Iterable[str] | Mapping[str, Any] = (),
    *,
    base: Mapping[str, Any] | None = None,
    **sections: Mapping[str, Any],
) -> Config:
    """Build a configuration from, in order of increasing priority: defaults, `base`, `file`, `sections`, `sets`.

    Args:
        kind: the configuration dataclass, such as `LmConfig`.
        file: a TOML file.
        sets: assignments such as `"train.epochs=3"`, or a mapping of dotted keys such as `{"train.epochs": 3}`.
        base: nested values, as `to_dict` returns them.
        sections: settings by section, such as `train={"epochs": 3}`.

    Returns:
        A `kind` with all its settings.

    Raises:
        WeftError: for an unreadable file, an unknown key, a wrong type or a value out of range.
    """
    values: dict[str, Any] = copy.deepcopy(dict(base or {}))
    for source in ({} if file is None else _read_toml(check_path(file, "the configuration file")), sections):
        for section, part in source.items():
            values[section] = {**values.get(section, {}), **part} if isinstance(part, Mapping) else part
    assignments = sets if isinstance(sets, Mapping) else parse_assignments(sets)
    for key, value in assignments.items():
        _put(values, key.split("."), value)
    return from_dict(kind, values)


def as_config(kind: type[Config], config: Config | Mapping[str, Any] | None) -> Config:
    """The configuration that an argument `config` gives.

    Args:
        kind: the configuration dataclass, such as `LmConfig`.
        config: a configuration; a mapping of sections or dotted keys, such as `{"train": {"epochs": 3}}` or
            `{"train.epochs": 3}`; None: the defaults.

    Raises:
        WeftError: for anything else, an unknown key, a wrong type or a value out of range.
    """
    if config is None:
        return kind()
    if isinstance(config, Mapping):
        dotted = {key: value for key, value in config.items() if "." in str(key)}
        return load_config(kind, None, dotted, base={key: config[key] for key in config.keys() - dotted.keys()})
    if not isinstance(config, kind):
        raise WeftError(
            f"`config` is a {type(config).__name__}",
            expected=f"a {kind.__name__}, or a dict of settings",
            hint='{"train.epochs": 3}',
        )
    return config


def from_dict(kind: type[Config], values: Mapping[str, Any], *, whole: Any = None, prefix: str = "") -> Config:
    """Convert a nested mapping to the dataclass `kind`, or to a section of `whole`; the inverse of `to_dict`.

    Raises:
        WeftError: for an unknown key, a wrong type or a value out of range.
    """
    types = get_type_hints(kind)
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            if named := settings_named(whole or kind, name):
                raise WeftError(
                    f"setting {prefix + name!r} is not known",
                    expected="a setting with its section",
                    hint=" or ".join(f"`{setting}=VALUE`" for setting in named),
                )
            known = [prefix + known for known in fields]
            raise unknown_name("setting", prefix + name, known, "`{}=VALUE`" if prefix else "{}")
        if dataclasses.is_dataclass(types[name]):
            if not isinstance(value, Mapping):
                raise WeftError(
                    f"{prefix}{name} is {short_repr(value)}", expected=f"a section, such as [{prefix}{name}]"
                )
            made[name] = from_dict(types[name], value, whole=whole or kind, prefix=f"{prefix}{name}.")
        else:
            made[name] = _checked(prefix + name, value, types[name], fields[name].metadata)
    return kind(**made)


def settings_named(kind: Any, name: str) -> list[str]:
    """The settings of a configuration class that have this name in any section, by their dotted names."""
    sections = {section: part for section, part in get_type_hints(kind).items() if dataclasses.is_dataclass(part)}
    return [f"{section}.{name}" for section, part in sections.items() if name in get_type_hints(part)]


_JSON_TYPES = {bool: "boolean", int: "integer", float: "number"}


def setting_schema(kind: Any, default: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a setting or an option of a type; a default of None is left out."""
    found: dict[str, Any] = {"description": metadata["help"]}
    kind = without_none(kind)
    choices = get_args(kind) if get_origin(kind) is Literal else metadata.get("choices")
    if get_args(kind) in ((str,), (str, ...)):
        found |= {"type": "array", "items": {"type": "string"}}
    else:
        found["type"] = _JSON_TYPES.get(kind, "string")
    if default is not None:
        found["default"] = list(default) if isinstance(default, tuple) else default
    for name, keyword in (("low", "minimum"), ("high", "maximum")):
        if metadata.get(name) is not None:
            found[keyword] = metadata[name]
    if choices:
        found["enum"] = list(choices)
    return found


def without_none(kind: Any) -> Any:
    """The type of a value that may be left out: of `int | None` it is int."""
    kinds = [one for one in get_args(kind) if one is not type(None)]
    return kinds[0] if get_origin(kind) in (Union, types.UnionType) and len(kinds) == 1 else kind


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a configuration to nested plain values, ready for JSON."""
    return dataclasses.asdict(config)


def to_toml(config: Any) -> str:
    """Format a configuration as a commented TOML file for `--config`."""
    lines = []
    for section in dataclasses.fields(config):
        lines.append(f"[{section.name}]")
        part = getattr(config, section.name)
        for entry in dataclasses.fields(part):
            value = getattr(part, entry.name)
            if is_auto(value, entry.metadata):
                value = "auto"
            text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else value
            choices = f" ({', '.join(entry.metadata['choices'])})" if entry.metadata["choices"] else ""
            lines.append(f"{entry.name} = {text}  # {entry.metadata['help']}{choices}")
        lines.append("")
    return "\n".join(lines)


def assignment(key: str, value: Any) -> str:
    """A setting and its value in a message, as --set takes them.

    >>> assignment("text.lower", True)
    '`text.lower=true`'
    """
    return f"`{key}={value if isinstance(value, str) else json.dumps(value)}`"


def is_auto(value: Any, metadata: Mapping[str, Any]) -> bool:
    """Whether the value of a setting with this metadata is left to the task."""
    return bool(metadata.get("auto")) and (value == "auto" or value == AUTO)


def auto_settings(config: Any) -> list[str]:
    """The dotted names of the settings that are left to the task."""
    return [
        f"{section.name}.{entry.name}"
        for section in dataclasses.fields(config)
        for entry in dataclasses.fields(getattr(config, section.name))
        if is_auto(getattr(getattr(config, section.name), entry.name), entry.metadata)
    ]


def resolve_auto(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with every "auto" setting that `values`, by dotted names, has a value for."""
    chosen = {name: values[name] for name in auto_settings(config) if name in values}
    return load_config(type(config), sets=chosen, base=to_dict(config)) if chosen else config


def dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their dotted keys."""
    sections = {key: value for key, value in config.items() if isinstance(value, Mapping)}
    found = {key: value for key, value in config.items() if key not in sections}
    return found | {f"{section}.{key}": value for section, part in sections.items() for key, value in part.items()}


def changed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Compare two nested configurations: `{"section.key": (old value, new value)}` for every difference."""
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


def parse_assignments(sets: Iterable[str]) -> dict[str, Any]:
    """The settings of assignments by their dotted names.

    >>> parse_assignments(["train.epochs=3", "model.cell=gru"])
    {'train.epochs': 3, 'model.cell': 'gru'}
    """
    found = {}
    for assignment in sets:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not key:
            raise WeftError(
                f"the setting {assignment!r} has no key and value",
                expected="section.key=value",
                hint="`train.learning_rate=0.01`",
            )
        found[key] = _parse_value(text)
    return found


def _parse_value(text: str) -> Any:
    """Parse a TOML value (3, 0.1, true, "x"); anything else is taken as a string (lstm)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise WeftError(f"{'.'.join(path)}: {name!r} is a value, not a section", expected="section.key=value")
    values[path[-1]] = value


_TYPES: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
    int | str: ((int, str), "a name or an integer"),  # such as a column
    tuple[str, ...]: ((list, tuple), "a list of strings"),
}


def _checked(key: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> Any:
    if is_auto(value, limits):
        return "auto" if kind is str else kind(AUTO)
    accepted, words = _TYPES[kind]
    if limits.get("auto"):
        words += " or auto"
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise WeftError(f"{key} is {short_repr(value)}", expected=words)
    if isinstance(value, list | tuple):
        if not all(isinstance(part, str) for part in value):
            raise WeftError(f"{key} is {short_repr(value)}", expected=words)
        return tuple(value)
    if limits["choices"] and value not in limits["choices"]:
        raise unknown_name(key, str(value), limits["choices"], f"`{key}={{}}`")
    low, high = limits["low"], limits["high"]
    if kind is int and high is None:
        high = LARGEST_INTEGER
    too_low, too_high = low is not None and not value >= low, high is not None and not value <= high
    if too_low or too_high or (kind is float and value in (float("inf"), float("-inf"))):
        bounds = f"{low} to {high}" if high not in (None, LARGEST_INTEGER) or too_high else f"{low} or more"
        raise WeftError(f"{key} is {value}", expected=bounds if low is not None else "a finite number")
    return float(value) if kind is float else value  # type: ignore[arg-type]
