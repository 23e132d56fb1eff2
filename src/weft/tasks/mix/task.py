"""Mixtures of language models: weights fitted to held-out text, everything stored in one run, and how it is loaded.

The run directory of a mixture has its parts as run directories of their own, so it needs nothing beside itself:

    weights.safetensors     the weights of the parts; in its metadata, the parts and the parameters of the cache
    parts/1/, parts/2/ ...  the parts without their data and checkpoints
    data/dev.tokens.npy     the text that the weights were fitted to
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from weft.config import Settings, from_dict, setting, to_dict
from weft.data.column import Column
from weft.data.windows import Tokens
from weft.errors import WeftError, check_path, warn
from weft.files import file_hash
from weft.metrics import PERPLEXITY, Likelihood
from weft.tasks import get_task, load
from weft.tasks.compare import check_same_tokens
from weft.tasks.inspection import Inspection
from weft.tasks.lm.adapt import CacheConfig, CacheModel, fit_cache
from weft.tasks.lm.inspection import inspect_steps
from weft.tasks.lm.interpolation import NGRAM, Interpolation, all_log_probs, likelihood, networks_of
from weft.tasks.lm.model import LanguageModel
from weft.tasks.lm.predictor import LmPredictor, NextTokenModel
from weft.tasks.members import trained_members
from weft.tasks.mixture import LINEAR
from weft.tasks.stored_data import DEV_PART, data_folder, is_stored, store, write_data_record
from weft.tasks.task import RunKind
from weft.tasks.text_task import CorpusSource, TextTask, corpus_for, encoded, held_out_tokens
from weft.text.config import CorpusConfig
from weft.text.text_field import Text
from weft.training.run import (
    CHECKPOINT,
    CONFIG,
    DATA_RECORD,
    FIELDS,
    WEIGHTS,
    Run,
    check_new,
    decoding,
    open_run,
    read_json,
    save_tensors,
    staged,
    write_run,
)

PARTS_FOLDER = "parts"  # the folder of the parts
PART_TASKS = ("lm", "ngram", "hmm")
MOST_PARTS = 100
LEAST_CACHE = 0.01  # a cache with a smaller weight is left out: it would only cost time


@dataclass(frozen=True)
class MixModelConfig(Settings):
    """The `model` section."""

    cache: bool = setting(True, "whether a neural cache over the first recurrent model is one of the parts")
    cache_size: int = setting(2000, "tokens that the cache holds", low=1, high=100_000)


@dataclass(frozen=True)
class MixConfig:
    """All settings of `weft mix`. `text` is that of the parts."""

    text: CorpusConfig = field(default_factory=CorpusConfig)
    model: MixModelConfig = field(default_factory=MixModelConfig)


class MixedRun(RunKind[MixConfig, LmPredictor]):
    name = "mix"
    summary = "Interpolate language models."
    predictors = (LmPredictor,)
    metric = PERPLEXITY
    data_help, dev_help = TextTask.data_help, TextTask.dev_help
    config_class = MixConfig

    def load(self, run: Run) -> LmPredictor:
        tensors, metadata = run.load(WEIGHTS)
        with decoding(run.file(WEIGHTS)):
            weights, cache = tensors["weights"].double().tolist(), metadata["cache"]
            config = CacheConfig(int(cache["size"]), float(cache["theta"])) if cache else None
            count = len(weights) - bool(cache)
        if not 1 <= count <= MOST_PARTS:
            raise WeftError(f"{run.path} has {count} parts", expected=f"1 to {MOST_PARTS}")
        text_field = run.field("text", Text)
        models: list[NextTokenModel] = []
        for number in range(1, count + 1):
            part = open_run(run.path / PARTS_FOLDER / str(number))
            if part.task not in PART_TASKS:
                raise WeftError(f"{part.path} is a run of the task {part.task!r}", expected=" or ".join(PART_TASKS))
            predictor = get_task(part.task).load(part)
            if predictor.text_field.vocabulary.tokens != text_field.vocabulary.tokens:
                raise WeftError(f"{part.path} has another vocabulary than {run.path}", expected="the same one")
            models.append(predictor.model)
        if config is not None:
            network = first_network(models)
            if network is None:
                raise WeftError(
                    f"{run.path} has no recurrent model for its cache",
                    expected="a run of `weft train lm` among its parts",
                )
            models.append(CacheModel(network, config))
        return LmPredictor(run, Interpolation(models, weights), text_field)

    def inspect(self, predictor: LmPredictor, text: str) -> Inspection:
        return inspect_steps(predictor, text)


def first_network(models: Sequence[NextTokenModel]) -> LanguageModel | None:
    """The network whose outputs a cache compares."""
    return next((network for model in models for network in networks_of(model)), None)


TASK = MixedRun()


class MixedPart(NamedTuple):
    """A part of a mixture: its weight, and the likelihood of the held-out text by itself."""

    name: str
    weight: float
    likelihood: Likelihood


@dataclass(frozen=True)
class MixResult:
    """A new mixture.

    Attributes:
        model: The loaded mixture.
        parts: Its parts, with their weights.
        likelihood: The likelihood of the held-out text by the mixture.
    """

    model: LmPredictor
    parts: tuple[MixedPart, ...]
    likelihood: Likelihood


def mix(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    source: CorpusSource | None = None,
    cache: bool = True,
    cache_size: int = 2000,
) -> MixResult:
    """Interpolates language models, with weights fitted to held-out text by EM.

    Args:
        runs: Runs of the tasks lm, ngram or hmm with the same tokenization and vocabulary.
        out: The run directory to create. It has copies of the parts.
        source: Held-out text to fit the weights to: a path, the name of a data set, or a Corpus. None: the held-out
            text of the first run that has one. No part may have been trained on it.
        cache: Whether to add a neural cache over the first recurrent model. It is left out if it gets no weight.
        cache_size: How many tokens the cache holds.

    Returns:
        The loaded mixture, the weights and the perplexities.

    Raises:
        WeftError: There is no run to mix, the vocabularies differ, or there is no held-out text.
    """
    path = check_path(out, "`out`")
    check_new(path)
    parts: list[Any] = [load(one) for one in runs]
    if not parts:
        raise WeftError("there is no run to mix", expected="two or more runs", hint="weft.mix([RUN, RUN], OUT)")
    for part in parts:
        if part.run.task not in PART_TASKS:
            raise WeftError(
                f"{part.run.path} is a run of the task {part.run.task!r}",
                expected=f"a language model: a run of {', '.join(f'`weft train {task}`' for task in PART_TASKS)}",
            )
        check_same_tokens(parts[0], part)
    first: Run = parts[0].run
    tokens, origin = _held_out(parts, source)
    models, names = [part.model for part in parts], [str(part.run.path) for part in parts]
    log_probs, config = all_log_probs(models, tokens), None
    network = first_network(models) if cache else None
    if network is not None:
        with torch.no_grad():
            segments = [(outputs.cpu(), targets) for outputs, targets in network.read_segments(tokens)]
        fitted = fit_cache(segments, log_probs, network.vocabulary_size, cache_size)
        if fitted.weights[-1] >= LEAST_CACHE:
            log_probs, config = np.concatenate([log_probs, fitted.log_probs[:, None]], 1), fitted.config
            names.append("cache")
    weights = LINEAR.fit_to(log_probs)
    found = likelihood(LINEAR.join_targets(log_probs, weights))
    own = [likelihood(log_probs[:, number]) for number in range(len(names))]
    metrics = found.metrics()
    metadata = {
        "parts": [{"path": str(part.run.path), "sha256": file_hash(weights_file(part.run))} for part in parts],
        "cache": None if config is None else {"size": config.size, "theta": config.theta},
        **metrics,
    }
    settings = from_dict(MixConfig, {"text": first.config["text"], "model": {"cache": cache, "cache_size": cache_size}})
    with staged(path) as folder:
        for number, part in enumerate(parts, start=1):
            copy_part(part.run, folder / PARTS_FOLDER / str(number))
        save_tensors(folder / WEIGHTS, {"weights": torch.tensor(weights, dtype=torch.float64)}, metadata)
        store(data_folder(folder), DEV_PART, {"tokens": Column(tokens)})
        write_data_record(folder, origin, None)
        content = {"fields": first.fields, "reading": first.reading}
        cells = {name: kind for part in parts for name, kind in part.run.custom_cells.items()}
        write_run(folder, TASK.name, to_dict(settings), content, custom_cells=cells, metric=TASK.metric)
    run = open_run(path)
    run.report({"step": 1, "epoch": 1, "evaluation": metrics, "best": True})
    mixed = (MixedPart(*one) for one in zip(names, weights.tolist(), own, strict=True))
    return MixResult(TASK.load(run), tuple(mixed), found)


def _held_out(parts: Sequence[LmPredictor], source: CorpusSource | None) -> tuple[Tokens, str]:
    """The text to fit the weights to, and its name."""
    first = parts[0]
    if source is not None:
        corpus = corpus_for(first.run, source)
        with encoded(corpus, first.text_field) as tokens:
            return np.array(tokens), source if isinstance(source, str) else corpus.name
    owners = [part for part in parts if is_stored(part.run, DEV_PART)]
    if not owners:
        raise WeftError(
            f"none of {', '.join(str(part.run.path) for part in parts)} has held-out text",
            expected="text to fit the weights to, which no part was trained on",
            hint="`source=PATH`",
        )
    owner = owners[0]
    records = [read_json(part.run.path / DATA_RECORD)["files"] for part in owners]
    if len({str(files["dev.tokens.npy"]) for files in records}) > 1:
        warn(
            f"the parts have held out different texts: the weights are fitted to that of {owner.run.path}, which the "
            "others may have been trained on"
        )
    return np.asarray(held_out_tokens(owner.run, owner.text_field)), f"held-out text of {owner.run.path}"


def weights_file(run: Run) -> Path:
    """The file that a run's model is loaded from."""
    return run.path / (WEIGHTS if run.has(WEIGHTS) else CHECKPOINT)


def copy_part(run: Run, folder: Path) -> None:
    """Copies what loading a run needs: its settings, its vocabulary and its weights, not its data."""
    folder.mkdir(parents=True)
    more = {one.file(WEIGHTS) for one in trained_members(run)} - {run.path / WEIGHTS}
    more |= {run.path / NGRAM} if run.has(NGRAM) else set()
    for file in (run.path / CONFIG, run.path / FIELDS, weights_file(run), *sorted(more)):
        shutil.copyfile(file, folder / file.name)
