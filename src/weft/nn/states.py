"""What layers take: states as nests of tuples, and the checks of what is given."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from weft.cells import State
from weft.engine import Embedded, check_lengths
from weft.errors import WeftError


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """The same nest of tuples with the function applied to every tensor: detach, pick rows, move."""
    if isinstance(state, Tensor):
        return function(state)
    parts = [map_state(function, part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def check_input(name: str, x: Tensor | Embedded, input_size: int, lengths: Tensor | None) -> None:
    """Refuse shapes that do not fit, in words."""
    shape = tuple(x.shape)
    if not isinstance(x, Tensor) or x.is_floating_point():
        if len(shape) != 3 or shape[-1] != input_size:
            raise WeftError(f"{name}: x is {shape}", expected=f"(B, T, {input_size}) because input_size={input_size}")
    elif len(shape) != 2:
        raise WeftError(f"{name}: x holds token ids and is {shape}", expected="(B, T)")
    if lengths is None:
        return
    if lengths.dim() != 1 or lengths.shape[0] != shape[0] or lengths.is_floating_point():
        raise WeftError(
            f"{name}: lengths is {tuple(lengths.shape)} of {lengths.dtype}",
            expected=f"({shape[0]},) whole numbers, one for each row of x",
        )
    if torch.compiler.is_compiling():
        return  # no one knows yet what is in it; the engine's operator looks when it runs
    check_lengths(name, lengths, shape[1])
