"""States as nested tuples, and the checks of what layers receive."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from weft.cells import State
from weft.engine import Embedded, check_lengths
from weft.errors import TensorError


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """Applies a function to every tensor of a nested tuple, for example to detach, select or move them.

    Args:
        function: maps a tensor to a tensor.
        state: a tensor, or tuples and NamedTuples of tensors.

    Returns:
        The same structure, NamedTuple types included, with the results.

    >>> map_state(lambda tensor: tensor.sum(), (torch.ones(2, 3), (torch.ones(4),)))
    (tensor(6.), (tensor(4.),))
    """
    if isinstance(state, Tensor):
        return function(state)
    parts = [map_state(function, part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def state_leaves(state: State) -> list[Tensor]:
    """The tensors of a state, in order."""
    found: list[Tensor] = []
    if state is not None:
        map_state(lambda tensor: found.append(tensor) or tensor, state)  # type: ignore[func-returns-value]
    return found


def check_input(name: str, x: Tensor | Embedded, input_size: int, lengths: Tensor | None) -> None:
    """Checks the shapes of a layer's input and lengths.

    Args:
        name: the name of the layer, for the message.
        x: the input.
        input_size: the number of features that the layer reads.
        lengths: the lengths of the rows, or None.

    Raises:
        TensorError: a shape or a length does not fit.
    """
    if isinstance(x, PackedSequence):
        raise TensorError(
            f"{name}: x is a PackedSequence",
            expected="a padded tensor (B, T, I) and `lengths`",
            hint="x, lengths = pad_packed_sequence(x, batch_first=True); weft.nn.LSTM, GRU and RNN take packed ones",
        )
    if not hasattr(x, "shape"):
        raise TensorError(f"{name}: x is a {type(x).__name__}", expected=f"a tensor (B, T, {input_size})")
    shape = tuple(x.shape)
    if not isinstance(x, Tensor) or x.is_floating_point():
        if len(shape) != 3 or shape[-1] != input_size:
            raise TensorError(f"{name}: x is {shape}", expected=f"(B, T, {input_size}) because input_size={input_size}")
    elif len(shape) != 2:
        raise TensorError(f"{name}: x holds token ids and is {shape}", expected="(B, T)")
    if lengths is None:
        return
    if lengths.dim() != 1 or lengths.shape[0] != shape[0] or lengths.is_floating_point():
        raise TensorError(
            f"{name}: lengths is {tuple(lengths.shape)} of {lengths.dtype}",
            expected=f"({shape[0]},) integers, one for each row of x",
        )
    if torch.compiler.is_compiling():
        return  # the values are not known yet; the engine's operator checks them when it runs
    check_lengths(name, lengths, shape[1])
