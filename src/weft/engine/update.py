"""A step of an optimizer over all tensors of a model in one pass through memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from weft.engine.library import known_type, loaded_library, usable

# A weight that a step moves, its gradient, and what goes with it: the gradient's mean over time, that of its square,
# and the weight's own. All of one shape; but for the gradient, the others have the weight's type and lie as it does.
Moved = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


class Rates(NamedTuple):
    """How far everything moves (core/update.hpp)."""

    scale: float  # of the gradients
    decay: float  # what the weights are multiplied by
    mean_stays: float
    square_stays: float
    small: float  # keeps a division from zero
    average_stays: float


class Updates:
    """The tensors of one step, as the core reads them."""

    def __init__(self, moved: Sequence[Moved], numbers: list[int]) -> None:
        self._moved = moved  # alive, and where they are
        self._numbers = array("q", numbers)
        self._is_double = moved[0][0].dtype == torch.float64

    @classmethod
    def of(cls, moved: Sequence[Moved]) -> Updates | None:
        """None if the core cannot do it: tensors elsewhere, of several types, or in pieces."""
        if not moved or not usable() or not known_type(moved[0][0]):
            return None
        dtype, numbers = moved[0][0].dtype, list[int]()
        for weight, gradient, mean, square, average in moved:
            if not (weight.is_cpu and gradient.is_cpu and weight.is_contiguous() and gradient.is_contiguous()):
                return None
            shape = weight.shape
            for other in (weight, gradient, mean, square, average):  # of a parameter that has since become another
                if other is not None and (other.dtype is not dtype or other.shape != shape):
                    return None
            numbers += (
                weight.numel(), weight.data_ptr(), gradient.data_ptr(), 0 if mean is None else mean.data_ptr(),
                0 if square is None else square.data_ptr(), 0 if average is None else average.data_ptr(),
            )  # fmt: skip
        return cls(moved, numbers)

    def norm(self) -> float:
        """The length of all gradients as one vector."""
        threads = torch.get_num_threads()
        address, count = self._numbers.buffer_info()[0], len(self._moved)
        return float(loaded_library().weft_norm(address, count, threads, self._is_double))

    def run(self, rates: Rates, sizes: Sequence[tuple[float, float]]) -> None:
        """`sizes` has for each tensor the size of its step, and the root of the correction of its squares."""
        packed = array("d", rates)
        for size in sizes:
            packed.extend(size)
        places = self._numbers.buffer_info()[0], packed.buffer_info()[0]
        loaded_library().weft_update(*places, len(self._moved), torch.get_num_threads(), self._is_double)
