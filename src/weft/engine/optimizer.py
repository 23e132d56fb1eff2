"""A fused optimizer step: gradient norm, update rule and moving average of all parameters in two passes over memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from weft import abi
from weft.abi import StepSize
from weft.engine.library import check, known_type, loaded_library, usable
from weft.engine.threads import thread_count

_norm_call, _optimizer_call = abi.packer(abi.NormCall), abi.packer(abi.OptimizerCall)
_parameter_state = abi.values_of(abi.ParameterState)

# A parameter, its gradient, the moving averages of the gradient and of its square, and the moving average of the
# parameter. All have one shape and one type.
ParameterTensors = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


class Hyperparameters(NamedTuple):
    """What all parameters of a step share.

    With both moving averages of the gradient the rule is Adam's, with the first alone momentum, with neither gradient
    descent.
    """

    gradient_scale: float
    weight_scale: float  # 1 - learning rate * weight decay
    beta1: float
    beta2: float
    eps: float
    ema_decay: float  # of the moving average of the parameters


class OptimizerStep:
    """The tensors of one step, as the core reads them."""

    def __init__(self, tensors: Sequence[ParameterTensors], states: list[int]) -> None:
        self._tensors = tensors  # kept alive: `states` has their addresses
        self._states = array("q", states)
        self._is_double = tensors[0][0].dtype == torch.float64

    @classmethod
    def of(cls, tensors: Sequence[ParameterTensors]) -> OptimizerStep | None:
        """None if the core cannot do it: any tensor is not on the CPU, not contiguous or of another type or shape."""
        if not tensors or not usable() or not known_type(tensors[0][0]):
            return None
        dtype, states = tensors[0][0].dtype, list[int]()
        for weight, gradient, exp_avg, exp_avg_sq, ema in tensors:
            shape = weight.shape
            for each in (weight, gradient, exp_avg, exp_avg_sq, ema):
                if each is not None and not (
                    each.dtype is dtype and each.is_cpu and each.shape == shape and each.is_contiguous()
                ):
                    return None
            states += _parameter_state(
                weight.numel(),
                weight.data_ptr(),
                gradient.data_ptr(),
                exp_avg=0 if exp_avg is None else exp_avg.data_ptr(),
                exp_avg_sq=0 if exp_avg_sq is None else exp_avg_sq.data_ptr(),
                ema=0 if ema is None else ema.data_ptr(),
            )
        return cls(tensors, states)

    def norm(self) -> float:
        """The L2 norm of all gradients as one vector."""
        norm = array("d", [0.0])
        call = _norm_call(
            is_double=self._is_double,
            threads=thread_count(),
            parameters=len(self._tensors),
            states=self._states.buffer_info()[0],
            norm=norm.buffer_info()[0],
        )
        check(loaded_library().weft_gradient_norm(call))
        return norm[0]

    def run(self, hyperparameters: Hyperparameters, sizes: Sequence[StepSize]) -> None:
        """Updates all tensors in place; `sizes` has the step size and the bias correction of each parameter."""
        packed = array("d")
        for size in sizes:
            packed.extend(size)
        gradient_scale, weight_scale, beta1, beta2, eps, ema_decay = hyperparameters
        call = _optimizer_call(
            is_double=self._is_double,
            threads=thread_count(),
            parameters=len(self._tensors),
            states=self._states.buffer_info()[0],
            sizes=packed.buffer_info()[0],
            gradient_scale=gradient_scale,
            weight_scale=weight_scale,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            ema_decay=ema_decay,
        )
        check(loaded_library().weft_optimizer_step(call))
