"""What a new run starts from: nothing, a run of the same task, or the layers of a language model.

Fine-tuning keeps the vocabulary, so tokens that it lacks are read as <unk> and reported. The learning rate is
`FINE_TUNING_FACTOR` times that of the source run unless it is set. A resumed run is itself its origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.config import as_config, assignment, changed, dotted, resolve_auto, to_dict
from weft.errors import WeftError, warn
from weft.files import file_hash
from weft.tasks.members import members_of
from weft.tasks.pretraining import TakesEncoder, encoder_config, encoder_settings, load_encoder, open_encoder
from weft.training.run import CHECKPOINT, WEIGHTS, Run, decoding, open_run

if TYPE_CHECKING:
    from weft.tasks.task import Task
    from weft.training.trainer import Phase

FINE_TUNING_FACTOR = 0.3
SHOWN_TOKENS = 8  # of many new tokens, in a message

# Settings of text and data that say what is read, and how: they may differ from the source run's.
READING_SETTINGS = frozenset(
    f"{section}.{name}"
    for section, names in {
        "text": ("limit", "holdout", "column", "source_column", "target_column", "max_tokens", "strict"),
        "data": (
            "max_tokens", "max_length", "holdout", "format", "header", "text_column", "label_column", "tag_column",
            "word_column", "invalid_spans", "unknown_tags",
            "label_separator", "encoding", "unlabelled", "teacher", "strict", "input", "id", "time", "channels", "freq",
            "aggregate",
        ),
    }.items()
    for name in names
)  # fmt: skip

TaskSettings = TypeVar("TaskSettings")


def fine_tuning_settings(run: Run) -> dict[str, Any]:
    """The settings that fine-tuning starts from, by dotted keys: those of the run, with a lower learning rate."""
    train = dict(run.config.get("train", {}))
    if "learning_rate" in train:
        train["learning_rate"] = float(f"{FINE_TUNING_FACTOR * train['learning_rate']:.3g}")
    return dotted({**run.config, "train": train} if train else run.config)


def fine_tuning_config(
    kind: type[TaskSettings], run: Run, config: TaskSettings | Mapping[str, Any] | None
) -> TaskSettings:
    """The settings of a run that starts from another one: as they are, or those of `fine_tuning_settings` with changes.

    Raises:
        WeftError: a setting differs that the weights or the vocabulary depend on.
    """
    if config is None or isinstance(config, Mapping):
        settings = as_config(kind, {**fine_tuning_settings(run), **dotted(config or {})})
    else:
        settings = resolve_auto(as_config(kind, config), fine_tuning_settings(run))
    for key, (before, after) in changed(run.config, to_dict(settings)).items():
        section = key.partition(".")[0]
        fixed = section in ("text", "data") and key not in READING_SETTINGS
        if fixed or (section == "model" and "dropout" not in key):
            raise WeftError(
                f"{run.path} was trained with {key}={before} and cannot be fine-tuned with {after}",
                expected="the model and the vocabulary of the source run",
                hint=assignment(key, before),
            )
    return settings


def warn_new_tokens(counts: Mapping[str, int], what: str = "tokens") -> None:
    """Report the tokens of the data that the kept vocabulary lacks."""
    if counts:
        most = sorted(counts, key=lambda token: (-counts[token], token))[:SHOWN_TOKENS]
        shown = ", ".join(map(repr, most)) + (", ..." if len(counts) > SHOWN_TOKENS else "")
        warn(
            f"{len(counts):,} new {what} ({sum(counts.values()):,} occurrences) are not in the vocabulary of the "
            f"source run and are read as <unk>: {shown}"
        )


def open_origin(
    task: Task[Any, Any, Any], from_run: Run | str | Path | None, encoder: Run | str | Path | None
) -> Run | None:
    """The run that a new run of a task starts from, if there is one: of the same task, or a language model.

    Raises:
        WeftError: both are given, or a run cannot be started from.
    """
    if from_run is not None and encoder is not None:
        raise WeftError("`from_run` and `encoder` are both given", expected="one of the two")
    if encoder is not None:
        return open_encoder(task, encoder)
    if from_run is None:
        return None
    run = from_run if isinstance(from_run, Run) else open_run(from_run)
    if run.task != task.name:
        raise WeftError(f"{run.path} is a run of the task {run.task!r}", expected=f"a run of `weft train {task.name}`")
    return run


def base_settings(task: Task[Any, Any, Any], origin: Run) -> dict[str, Any]:
    """The settings that a run with this origin starts from, by dotted keys."""
    return fine_tuning_settings(origin) if origin.task == task.name else encoder_settings(task, origin)


def settings_from(task: Task[Any, Any, Any], origin: Run, config: Any) -> Any:
    """The settings of a run with this origin; those that do not fit it are refused."""
    if origin.task == task.name:
        return fine_tuning_config(task.config_class, origin, config)
    return encoder_config(task, origin, config)


def describe_origin(task: Task[Any, Any, Any], origin: Run) -> dict[str, str]:
    """What config.json records of the origin: its path and the hash of its weights, and its task, if it is another."""
    file = WEIGHTS if origin.has(WEIGHTS) else CHECKPOINT
    found = {"path": str(origin.path), "file": file, "sha256": file_hash(origin.path / file)}
    return found if origin.task == task.name else {"task": origin.task, **found}


def initialize(task: Task[Any, Any, Any], phase: Phase, origin: Run) -> None:
    """Gives a new model the weights of its origin, or the layers."""
    if origin.task == task.name:
        weights = origin.weights()
        with decoding(origin.path):
            phase.load_weights(weights)
    else:
        assert isinstance(task, TakesEncoder)
        task.take_over(phase.model, load_encoder(origin))
        phase.load_weights(phase.model.state_dict())


def merge_settings(kind: type[TaskSettings], run: Run, config: TaskSettings | Mapping[str, Any]) -> TaskSettings:
    """The settings of a run, changed by a dict; or other settings as they are."""
    if isinstance(config, Mapping):
        config = {**dotted(run.config), **dotted(config)}
    return resolve_auto(as_config(kind, config), dotted(run.config))


def change_settings(run: Run, config: Any) -> Run:
    """Writes new settings into a run and returns it with them.

    Raises:
        WeftError: A setting differs that cannot change: one outside `train.`, a fixed one, or any of an ensemble.
    """
    differences, ensemble = changed(run.config, to_dict(config)), members_of(config) > 1
    train = getattr(config, "train", None)
    names = [f"train.{one.name}" for one in (fields(train) if train else ()) if one.metadata["fixed"]]
    # Some members may have ended with the settings that they were started with.
    fixed = [key for key in differences if ensemble or not key.startswith("train.") or key in names]
    if fixed:
        before, after = differences[fixed[0]]
        allowed = f"changes only under train., and not of {', '.join(names)}"
        raise WeftError(
            f"{run.path} was started with {fixed[0]}={before} and cannot resume with {after}",
            expected="the same settings for all members" if ensemble else allowed,
            hint="a new run in another `out`",
        )
    return run.change(config=to_dict(config)) if differences else run
