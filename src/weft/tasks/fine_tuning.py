"""Fine-tuning: a new run that starts from the weights of another run of the same task.

The vocabulary is kept, so tokens that it lacks are read as <unk> and reported. The learning rate is
`FINE_TUNING_FACTOR` times that of the source run unless it is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from weft.config import as_config, changed, dotted, resolve_auto, to_dict
from weft.errors import WeftError, warn
from weft.files import file_hash
from weft.training.run import CHECKPOINT, WEIGHTS, Run

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
            "label_separator", "encoding", "unlabelled", "teacher", "strict",
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
    """The settings of a run that starts from another one.

    Args:
        kind: the task's settings.
        run: the source run.
        config: settings as they are; a dict of those that change; None: those of `fine_tuning_settings`.

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
                hint=f"`{key}={str(before).lower() if isinstance(before, bool) else before}`",
            )
    return settings


def describe_source(run: Run) -> dict[str, str]:
    """What config.json records of the source run: its path and the hash of its weights."""
    file = WEIGHTS if run.has(WEIGHTS) else CHECKPOINT
    return {"path": str(run.path), "file": file, "sha256": file_hash(run.path / file)}


def warn_new_tokens(counts: Mapping[str, int], what: str = "tokens") -> None:
    """Report the tokens of the data that the kept vocabulary lacks."""
    if counts:
        most = sorted(counts, key=lambda token: (-counts[token], token))[:SHOWN_TOKENS]
        shown = ", ".join(map(repr, most)) + (", ..." if len(counts) > SHOWN_TOKENS else "")
        warn(
            f"{len(counts):,} new {what} ({sum(counts.values()):,} occurrences) are not in the vocabulary of the "
            f"source run and are read as <unk>: {shown}"
        )
