"""Where a model is computed, the CPU or a GPU, and in which precision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch

from weft.config import auto_settings, resolve_auto
from weft.engine.library import library
from weft.engine.precision import precision
from weft.errors import WeftError
from weft.training.environment import in_group

AnyConfig = TypeVar("AnyConfig")
PRECISION = "train.precision"


def find_device(name: str, setting: str = "train.device") -> torch.device:
    """The named torch device, after a tensor has been put on it. Each worker of a machine gets a GPU of its own.

    Errors name the setting, or argument, that named it.
    """
    try:
        found = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" and in_group() else name)
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise WeftError(
            f"{setting} is {name!r}: {reason}", expected="a device of this machine", hint=f"`{setting}=cpu`"
        ) from error
    return found


def fastest_precision(device: str) -> str:
    """The precision in which the engine trains fastest on this machine: "bf16" on a CPU that multiplies bfloat16."""
    has_bf16 = getattr(library(), "variant", "").endswith("_bf16")
    return "bf16" if has_bf16 and device.partition(":")[0] == "cpu" else "float32"


def choose_precision(config: AnyConfig) -> AnyConfig:
    """The settings of a task with the fastest precision, if theirs is "auto"."""
    if PRECISION not in auto_settings(config):
        return config
    return resolve_auto(config, {PRECISION: fastest_precision(config.train.device)})  # type: ignore[attr-defined]


@contextmanager
def mixed_precision(name: str, device: torch.device | str) -> Iterator[None]:
    """Chooses the precision of matrix products inside the block: the engine's, and where it does not run, torch's.

    With "bf16" outside the engine, `torch.autocast` computes products in bfloat16. Weights, states, gradients and
    losses stay float32. A backward pass belongs outside the block.
    """
    kind = torch.device(device).type
    by_torch = name == "bf16" and (kind != "cpu" or library() is None)
    with precision(name), torch.autocast(kind, torch.bfloat16) if by_torch else nullcontext():
        yield
