"""A step of an optimizer over all tensors of a model in one pass through memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from weft.engine import abi
from weft.engine.abi import StepSize
from weft.engine.library import check, known_type, loaded_library, usable

_norm_call, _optimizer_call = abi.packer(abi.NormCall), abi.packer(abi.OptimizerCall)
_parameter_state = abi.values_of(abi.ParameterState)
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

    def __init__(self, moved: Sequence[Moved], states: list[int]) -> None:
        self._moved = moved  # alive, and where they are
        self._states = array("q", states)
        self._is_double = moved[0][0].dtype == torch.float64

    @classmethod
    def of(cls, moved: Sequence[Moved]) -> Updates | None:
        """None if the core cannot do it: tensors elsewhere, of several types, or in pieces."""
        if not moved or not usable() or not known_type(moved[0][0]):
            return None
        dtype, states = moved[0][0].dtype, list[int]()
        for weight, gradient, mean, square, average in moved:
            shape = weight.shape
            for each in (weight, gradient, mean, square, average):
                if each is not None and not (
                    each.dtype is dtype and each.is_cpu and each.shape == shape and each.is_contiguous()
                ):
                    return None
            states += _parameter_state(
                weight.numel(),
                weight.data_ptr(),
                gradient.data_ptr(),
                exp_avg=0 if mean is None else mean.data_ptr(),
                exp_avg_sq=0 if square is None else square.data_ptr(),
                ema=0 if average is None else average.data_ptr(),
            )
        return cls(moved, states)

    def norm(self) -> float:
        """The length of all gradients as one vector."""
        norm = array("d", [0.0])
        call = _norm_call(
            is_double=self._is_double,
            threads=torch.get_num_threads(),
            parameters=len(self._moved),
            states=self._states.buffer_info()[0],
            norm=norm.buffer_info()[0],
        )
        check(loaded_library().weft_gradient_norm(call))
        return norm[0]

    def run(self, rates: Rates, sizes: Sequence[StepSize]) -> None:
        """`sizes` has for each tensor the size of its step, and the root of the correction of its squares."""
        packed = array("d")
        for size in sizes:
            packed.extend(size)
        call = _optimizer_call(
            is_double=self._is_double,
            threads=torch.get_num_threads(),
            parameters=len(self._moved),
            states=self._states.buffer_info()[0],
            sizes=packed.buffer_info()[0],
            gradient_scale=rates.scale,
            weight_scale=rates.decay,
            beta1=rates.mean_stays,
            beta2=rates.square_stays,
            eps=rates.small,
            ema_decay=rates.average_stays,
        )
        check(loaded_library().weft_optimizer_step(call))
