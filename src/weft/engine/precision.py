"""The precision of matrix products: float32, or bfloat16 with float32 sums.

With "bf16", the weights and activations of the engine's matrix products, forward and backward, are rounded to bfloat16,
to nearest even. Sums, states, gates, gradients and the weights that an optimizer changes stay float32. CPUs with
AVX512_BF16 multiply at twice the rate; other x86 CPUs compute the same bits, slower.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from weft.abi import Precision
from weft.cells import Cell
from weft.engine.int8 import is_quantized
from weft.errors import WeftError

PRECISIONS = ("float32", "bf16")


class _Choice(threading.local):  # torch.compile guards on its attribute; it cannot read a ContextVar
    name: str | None = None
    kept: str = "float32"


_choice = _Choice()


@contextmanager
def precision(name: str, *, kept: str = "float32") -> Iterator[None]:
    """Chooses the precision of the engine's matrix products inside the block; it takes precedence over torch.autocast.

    A backward pass has the precision of its forward pass. float64 is not affected.

    Args:
        name: "float32" or "bf16".
        kept: of the gates and states that training keeps for the backward pass: "bf16" halves their memory. Outputs
            are the same, gradients differ by about 1 %. Transforms of torch.func and compiled models keep float32.

    Returns:
        A context manager.

    Raises:
        WeftError: another name.

    >>> from weft.nn import LSTMCell, Recurrent
    >>> with precision("bf16"):
    ...     outputs, state = Recurrent(LSTMCell(4, 8))(torch.zeros(2, 3, 4))
    >>> outputs.dtype
    torch.float32
    """
    check_precision(name)
    check_precision(kept)
    before = _choice.name, _choice.kept
    _choice.name, _choice.kept = name, kept
    try:
        yield
    finally:
        _choice.name, _choice.kept = before


def set_default_precision(name: str) -> None:
    """Chooses the precision of all threads of this process, where no `precision` block says otherwise."""
    check_precision(name)
    _Choice.name = name


def check_precision(name: str) -> None:
    """Raises unless there is a precision of this name."""
    if name not in PRECISIONS:
        raise WeftError(f"the precision {name!r}", expected=f"one of: {', '.join(PRECISIONS)}")


def current_precision() -> Precision:
    """The precision of products here: by `precision`, or by `torch.autocast("cpu", torch.bfloat16)`."""
    if _choice.name is not None:
        return Precision.bfloat16 if _choice.name == "bf16" else Precision.exact
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16
    return Precision.bfloat16 if autocast else Precision.exact


def keeps_half() -> bool:
    """Whether training keeps gates and states in bfloat16 here."""
    return _choice.kept == "bf16"


def precision_for(cells: Iterable[Cell]) -> Precision:
    """The precision of the products of cells: int8, if one of them is quantized, else `current_precision`."""
    return Precision.int8 if any(map(is_quantized, cells)) else current_precision()


def rounds_to_bfloat16() -> bool:
    """Whether products are in bfloat16 here."""
    return current_precision() is Precision.bfloat16
