"""The settings of a run that is resumed: which of them may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from weft.config import as_config, changed, dotted, resolve_auto, to_dict
from weft.errors import WeftError
from weft.tasks.members import members_of
from weft.training.run import Run

ResumedSettings = TypeVar("ResumedSettings")


def merge_settings(
    kind: type[ResumedSettings], run: Run, config: ResumedSettings | Mapping[str, Any]
) -> ResumedSettings:
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
    return run.change_config(to_dict(config)) if differences else run
