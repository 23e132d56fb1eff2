"""The settings of a run that several workers train."""

from __future__ import annotations

from typing import Any, TypeVar

from weft.config import from_dict, to_dict
from weft.errors import WeftError, warn
from weft.training.distributed import Workers

_Config = TypeVar("_Config")


def slices_for(workers: Workers, config: _Config, *, resumed: bool = False) -> _Config:
    """Settings with which every worker has a slice of each batch: a new run gets one for each, unless it sets more.

    Raises:
        WeftError: there are fewer slices than workers.
    """
    train: Any = getattr(config, "train", None)
    if workers.alone:
        return config
    if not hasattr(train, "slices"):
        warn(f"this task has no training steps to divide: one process does it, the other {workers.size - 1} wait")
        return config
    if train.slices == 1 and not resumed:
        sections = {**to_dict(config), "train": {**to_dict(train), "slices": workers.size}}
        return from_dict(type(config), sections)
    if train.slices < workers.size:
        raise WeftError(
            f"train.slices is {train.slices}, and there are {workers.size} workers",
            expected="a slice of each batch for every worker",
            hint=f"`train.slices={workers.size}`, which changes the weights, or fewer workers",
        )
    if train.slices % workers.size:
        warn(f"train.slices={train.slices} is not a multiple of {workers.size} workers: some of them wait for others")
    return config
