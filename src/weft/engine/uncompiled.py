"""What a compiled model calls: the layer as it is, since there is nothing in the engine for a compiler to find.

A module of its own because the decorator loads torch's compiler, a second of start-up that only torch.compile needs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


@torch.compiler.disable  # type: ignore[untyped-decorator]
def uncompiled(layer: nn.Module, x: Tensor, state: Any, lengths: Tensor | None) -> Any:
    return layer(x, state, lengths=lengths)
