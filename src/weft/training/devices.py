"""Where a model is computed: the CPU, or a GPU."""

from __future__ import annotations

import os

import torch

from weft.errors import WeftError
from weft.training.environment import in_group


def find_device(name: str, setting: str = "train.device") -> torch.device:
    """The named torch device, after a tensor has been put on it. Each worker of a machine gets a GPU of its own.

    Args:
        name: The device: cpu, cuda, cuda:1, mps, ...
        setting: The setting or argument that errors name.
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
