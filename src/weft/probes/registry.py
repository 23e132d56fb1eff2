"""The registry of probes: every `Probe` that a file of this package defines.

A probe is one file: its name, the part of a model that it needs, typed options with their help, the function that
computes it, and the figures of its result. `weft look`, the schemas of the server, its page and the table in
docs/look.md are made of this registry. `python tools/probe_manifest.py` writes what is kept of it in files.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import weft.probes
from weft.config import setting_schema
from weft.pictures.figures import Figure
from weft.probes.result import ProbeResult
from weft.tasks.operation import call_with, read_arguments

LARGEST = 1 << 20
_LIMITS = {  # of options without limits of their own, by their type
    "integer": {"minimum": -LARGEST, "maximum": LARGEST},
    "string": {"maxLength": 1000},
    "array": {"maxItems": 1000},
}

# What a user looks for first stands first; other files follow by their names.
FIRST = (
    "surprisal",
    "activations",
    "gradient_flow",
    "jacobian",
    "connectivity",
    "attention",
    "posterior",
    "units",
    "evidence",
    "forecast",
    "confusion",
)


def own_figures(first: Any, *others: Any) -> list[Figure]:
    """Those that a result has without options; of several layers, those of the first with the others in it."""
    figures: list[Figure] = first.figures(*others)
    return figures


@dataclass(frozen=True)
class Probe:
    """A probe."""

    name: str  # what `--show` and the server call it
    about: str  # what it shows, in a line
    part: str  # the part of a model that it needs, by its name in `weft.probes.parts`
    # from a loaded model, a text if it takes one, and options to a result, or one for each layer
    run: Callable[..., Any]
    # from these results and options to figures, where the results' own have options
    figures: Callable[..., list[Figure]] = own_figures

    def look(self, model: Any, text: str | None, options: Mapping[str, Any]) -> tuple[ProbeResult, ...]:
        """The results of the probe on a loaded model."""
        texts = [text] if "text" in inspect.signature(self.run).parameters else []
        found = call_with(self.run, read_arguments(self.run), options, model, *texts)
        return found if isinstance(found, tuple) else (found,)

    def draw(self, results: tuple[ProbeResult, ...], options: Mapping[str, Any]) -> list[Figure]:
        """The figures of its results."""
        found: list[Figure] = call_with(self.figures, read_arguments(self.figures), options, *results)
        return found

    def describe(self) -> dict[str, Any]:
        """The probe as plain data; the options of its function and of its figures as JSON schemas."""
        text = inspect.signature(self.run).parameters.get("text")
        return {
            "about": self.about,
            "part": self.part,
            "text": "none" if text is None else "optional" if text.default is None else "required",
            "options": _schemas(self.run),
            "drawing": {name: one for name, one in _schemas(self.figures).items() if name not in _schemas(self.run)},
        }


@cache
def _schemas(function: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The schema of each option of a function."""
    found = {}
    for name, one in read_arguments(function).items():
        schema = setting_schema(one.kind, one.default, one.metadata)
        schema = {**_LIMITS.get(schema["type"], {}), **schema}
        if one.metadata["requests"] is not None:
            schema["x-requests"] = list(one.metadata["requests"])
        found[name] = {**schema, "x-flag": f"--{name}" if one.metadata["flag"] is None else one.metadata["flag"]}
    return found


def files() -> list[str]:
    """The names of this package's modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(weft.probes.__path__))
    return sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


@cache
def all_probes() -> dict[str, Probe]:
    """All probes by their names."""
    modules = [importlib.import_module(f"weft.probes.{name}") for name in files()]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, Probe)]
    return {one.name: one for one in found}


def describe_probes() -> dict[str, Any]:
    """All probes as plain data: the content of manifest.json, from which `weft look --help` is made without torch."""
    return {"files": sorted(files()), "probes": {name: one.describe() for name, one in all_probes().items()}}
