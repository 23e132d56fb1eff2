"""The part of a model that a probe needs, or one clear message."""

from __future__ import annotations

from typing import Any

from weft.errors import WeftError
from weft.tasks import kind_of
from weft.tasks.inspection import Inspection, Network
from weft.training.run import Run

# What a run without a part is said to have or do, and the tasks whose runs have it.
PARTS = {
    "scores": ("predicts no tokens", "lm, ngram, hmm, fill"),
    "network": ("has no recurrent layers", "lm, fill, classify, tag, translate, forecast"),
    "attention": ("has no attention", "translate with attention, classify"),
    "search": ("has no beam search", "lm, ngram, hmm, translate"),
    "chain": ("has no chain of hidden states", "hmm, tag"),
    "series": ("forecasts no series", "forecast"),
    "labels": ("has no labels to confuse", "classify, tag"),
}


def get_run(model: Any) -> Run:
    run = getattr(model, "run", None)
    if not isinstance(run, Run):
        raise WeftError(f"a {type(model).__name__} is no loaded run", expected="one", hint="weft.load('runs/mine')")
    return run


def inspect(model: Any, text: str) -> Inspection:
    """The inspection of a loaded model on a text."""
    run = get_run(model)
    if not isinstance(text, str):
        raise WeftError(f"the text is a {type(text).__name__}", expected="a string")
    return kind_of(run).inspect(model, text)


def unknown_tokens(model: Any, text: str) -> list[str]:
    """The tokens of a text that the model reads as unknown."""
    text_field = getattr(model, "text_field", None)
    return [] if text_field is None else text_field.unknown(text)


def has_part(model: Any, inspection: Inspection, name: str) -> bool:
    """Whether a model has a part; nothing is built."""
    return (getattr(model, "confusion", None) if name == "labels" else getattr(inspection, name)) is not None


def find_part(model: Any, inspection: Inspection, name: str) -> Any:
    """The function that builds a part of a model; refused with the reason if the model does not have it."""
    if not has_part(model, inspection, name):
        lacks, tasks = PARTS[name]
        run = getattr(model, "run", None)
        where = f"{run.path} is a run of the task {run.task!r}: it" if run is not None else "the model"
        raise WeftError(f"{where} {inspection.missing.get(name, lacks)}", expected=f"a run of one of: {tasks}")
    return model.confusion if name == "labels" else getattr(inspection, name)


def get_part(model: Any, text: str, name: str) -> Any:
    return find_part(model, inspect(model, text), name)


def get_network(model: Any, text: str) -> Network:
    """The network of a loaded model on a text; or the network itself, where it is given in the model's place."""
    if isinstance(model, Network):
        return model
    network: Network = get_part(model, text, "network")()
    return network


def choose(kind: str, given: int | None, count: int) -> list[int]:
    """The numbers that were asked for: one, from 0 or counted from the end, or all."""
    if given is None:
        return list(range(count))
    if not -count <= given < count:
        raise WeftError(f"there is no {kind} {given}", expected=f"0 to {count - 1}")
    return [given % count]
