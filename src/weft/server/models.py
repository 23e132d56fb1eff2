"""The models of a server: loaded runs by name, each with its worker."""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from weft.decoding import TokenEngine, token_engine
from weft.errors import WeftError
from weft.probes.layers import split_stack
from weft.server.config import ServerConfig
from weft.server.errors import RequestError
from weft.server.generation import Generation
from weft.server.guard import is_loopback
from weft.server.look import inspect_example, supported
from weft.server.metrics import Metrics
from weft.server.operations import (
    UNKNOWN_LANGUAGES,
    Languages,
    Profile,
    ServedOperation,
    languages_in,
    served_operations,
)
from weft.server.worker import Worker
from weft.tasks import kind_of
from weft.tasks.lm.predictor import LmPredictor
from weft.tasks.runs import best_evaluation
from weft.tasks.text_task import TextPredictor
from weft.training.run import Run, open_run

NAME = re.compile(r"[\w.-]{1,100}")
PAGE_VIEWS = {"generate": "write", "segment": "tag"}  # the page's view of an operation, where it has another name
EXAMPLE_TEXTS, SHORTEST_EXAMPLE, LONGEST_EXAMPLE = 200, 12, 90  # texts that are searched, and characters
SENTENCE_END = re.compile(r"\n|(?<=[.!?])\s+|(?<=[。！？])")
CHECK_SECONDS = 0.5  # between two looks at a run's files with --reload


@dataclass(frozen=True)
class LoadedModel:
    """A run in memory."""

    name: str  # its name in requests
    predictor: Any  # the loaded model
    operations: dict[str, ServedOperation]  # what it can do, by name, the main operation first
    hash: str  # of the vocabulary and the weights
    changed: float  # when the weights were written, as the file system has it
    worker: Worker  # the thread that computes
    engine: TokenEngine | None  # what generates text with a language model
    generation: Generation | None  # the texts that are being generated
    languages: Languages | None = None  # what a translator translates from and to, or None
    # what texts of these two languages look like, to detect a language; empty: it is not known
    profiles: tuple[Profile, ...] = ()

    @property
    def generator(self) -> LmPredictor | None:
        """The language model that generates text, or None."""
        return self.predictor if isinstance(self.predictor, LmPredictor) else None

    @property
    def example(self) -> str:
        """A short text that the model can read."""
        example: str = self.predictor.example
        return example

    @property
    def run(self) -> Run:
        run: Run = self.predictor.run
        return run

    @property
    def created(self) -> int:
        return int(self.changed)


class Models:
    """All models by name. With `reload`, `refresh` before a request loads runs again whose weights have changed."""

    def __init__(self, runs: dict[str, Path], config: ServerConfig, metrics: Metrics) -> None:
        self.config, self.metrics, self.paths = config, metrics, dict(runs)
        self._lock = threading.Lock()
        self.checked = -math.inf
        self._loaded = {name: self._load(name, path) for name, path in runs.items()}
        self._descriptions: dict[str, tuple[str, dict[str, Any]]] = {}

    def __iter__(self) -> Any:
        return iter(list(self._loaded.values()))

    def get(self, name: str) -> LoadedModel:
        """The model of that name."""
        if name not in self._loaded:
            raise RequestError(
                404, f"there is no model {name[:100]!r}; expected one of: {', '.join(self._loaded)}", "model_not_found"
            )
        return self._loaded[name]

    def stop(self) -> None:
        for model in self:
            model.worker.stop()

    def describe(self, model: LoadedModel) -> dict[str, Any]:
        """What `/weft/models` says of a model."""
        kept = self._descriptions.get(model.name)
        if kept is None or kept[0] != model.hash:
            example = (held_out_example(model) if is_loopback(self.config.host) else "") or model.example
            kept = model.hash, _describe(model, example)
            self._descriptions[model.name] = kept
        return kept[1]

    def _load(self, name: str, path: Path) -> LoadedModel:
        run = open_run(path)
        task = kind_of(run)
        changed, digest = _changed(run), run.weights_hash()
        predictor = task.load(run)
        engine = generation = languages = None
        profiles: tuple[Profile, ...] = ()
        served = served_operations(task, run, predictor)
        if "translate" in served:
            languages = languages_in(name)  # a name that was given says more than the folder
            languages = languages_in(path.name) if languages == UNKNOWN_LANGUAGES else languages
            profiles = predictor.language_profiles
        if isinstance(predictor, LmPredictor):
            if isinstance(predictor.model, nn.Module):
                predictor.model.eval()
            engine = token_engine(predictor.model)
            generation = Generation(name, engine, self.metrics)
        worker = Worker(name, generation, self.metrics, self.config.batch_size, self.config.max_queue)
        parts = (worker, engine, generation, languages, profiles)
        return LoadedModel(name, predictor, served, digest, changed, *parts)

    def due(self) -> bool:
        """Whether it is time to look at the files of the runs again."""
        return self.config.reload and time.monotonic() - self.checked >= CHECK_SECONDS

    def refresh(self) -> None:
        """Loads runs again whose weights have changed on disk. It takes a while: not for the event loop."""
        with self._lock:
            if not self.due():
                return
            self.checked = time.monotonic()
            for name, old in list(self._loaded.items()):
                try:
                    changed = _changed(old.run)
                    if changed == old.changed:
                        continue
                    if open_run(self.paths[name]).weights_hash() == old.hash:  # trained again, with the same result
                        self._loaded[name] = replace(old, changed=changed)
                        continue
                    self._loaded[name] = self._load(name, self.paths[name])
                except (OSError, WeftError):
                    continue  # it is being written, or was removed: the old one still serves
                threading.Thread(target=old.worker.stop, daemon=True).start()


def _changed(run: Run) -> float:
    """When the weights of a run were written."""
    return max((path.stat().st_mtime for path in run.weight_files()), default=0.0)


def find_operation(model: LoadedModel, name: str | None = None) -> ServedOperation:
    """An operation of a model: that of the name, or its main one, which is not to generate."""
    main = next((one for one in model.operations if one != "generate"), None)
    found = model.operations.get(name or main or "")
    if found is None:
        able = ", ".join(model.operations) or "nothing of the kind"
        asked = (name or "answer this request")[:60]
        raise RequestError(400, f"the model {model.name} cannot {asked}; it can: {able}")
    return found


def capabilities(model: LoadedModel) -> list[str]:
    """What a model can do, as `/weft/models` names it."""
    return [*model.operations, *(("embed", "session") if model.generator is not None else ())]


def generator(model: LoadedModel) -> Any:
    """The language model of a model that generates text."""
    if model.generator is None:
        able = ", ".join(model.operations) or "nothing of the kind"
        raise RequestError(400, f"the model {model.name} generates no text; it can: {able}")
    return model.generator


def model_names(given: list[str]) -> dict[str, Path]:
    """Different names and paths from `NAME=RUN` or `RUN`, whose name is that of its folder."""
    found: dict[str, Path] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if equals and not NAME.fullmatch(name) and not Path(one).exists():
            raise WeftError(f"{one} gives a model the name {name!r}", expected="letters, digits, . _ -")
        if not equals or not NAME.fullmatch(name):
            name, path = Path(one).resolve().name, one
        if not NAME.fullmatch(name):
            raise WeftError(f"the folder of {one} has the name {name!r}", expected="letters, digits, . _ -",
                            hint=f"name={one}")  # fmt: skip
        if name in found:
            raise WeftError(f"two models have the name {name!r}", expected="different names", hint=f"{name}2={path}")
        found[name] = Path(path)
    return found


def held_out_example(model: LoadedModel) -> str:
    """A short sentence of the run's held-out texts that the model knows every token of, or "" if there is none."""
    text_field = getattr(model.predictor, "text_field", None)
    texts = islice(model.predictor.held_out_texts(), EXAMPLE_TEXTS)
    pieces = isinstance(model.predictor, TextPredictor)  # of a text begin and end anywhere
    inner = slice(1, -1) if pieces else slice(None)
    for line in (line.strip() for text in texts for line in SENTENCE_END.split(text)[inner]):
        if SHORTEST_EXAMPLE <= len(line) <= LONGEST_EXAMPLE and not (text_field and text_field.unknown(line)):
            return str(model.predictor.as_input(" ".join(line.split())))
    return ""


def _describe(model: LoadedModel, example: str) -> dict[str, Any]:
    run, predictor = model.run, model.predictor
    text_field = getattr(predictor, "text_field", None)
    best, metric = best_evaluation(run.metrics()) or {}, run.metric.name if run.metric else ""
    labels = getattr(predictor, "labels", getattr(predictor, "tags", None))
    probes = supported(predictor, model.example)
    views = [PAGE_VIEWS.get(one, one) for one in model.operations]
    views += (["operate"] if model.operations else []) + (["look"] if probes else [])
    return {
        "name": model.name,
        "task": run.task,
        "hash": model.hash,
        "capabilities": capabilities(model),
        "operations": {name: one.describe() for name, one in model.operations.items()},
        "probes": probes,
        "views": views,
        "example": example,
        "weights": weight_count(model),
        "vocabulary": len(text_field.vocabulary) if text_field is not None else None,
        "tokenizer": text_field.tokenizer.name if text_field is not None else None,
        "labels": list(labels) if labels is not None else None,
        "layers": _layers(predictor, model.example),
        "languages": model.languages._asdict() if model.languages is not None else None,
        "metric": metric,
        "best": best.get(metric),
        "settings": {name: _public(part) for name, part in run.config.items() if isinstance(part, dict)},
    }


def weight_count(model: LoadedModel) -> int:
    """The number of weights of a model, or of what its run has stored."""
    network = model.predictor.model
    weights = sum(one.numel() for one in network.parameters()) if isinstance(network, nn.Module) else 0
    return weights or sum(map(math.prod, model.run.shapes().values()))


def _public(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without paths of this machine: of a file only its name."""
    return {
        name: Path(value).name if isinstance(value, str) and {"/", "\\"} & set(value) else value
        for name, value in settings.items()
    }


def _layers(predictor: Any, example: str) -> list[dict[str, Any]]:
    build = inspect_example(predictor, example).network
    with contextlib.suppress(WeftError):
        return [
            {**name._asdict(), "units": part.cell.hidden_size, "cell": type(part.cell).__name__}
            for key, use in (build().stacks.items() if build is not None else ())
            for name, part in split_stack(key, use.stack)
        ]
    return []
