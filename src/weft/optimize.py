"""The optimizers: where the weights go from here.

torch.optim has them too. Here a step is the norm of the gradient, its shortening, the rule and the running means of the
weights, and the engine does all of that in two calls; nothing is loaded that training does not need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.config import TrainConfig
from weft.engine import Hyperparameters, OptimizerStep, ParameterTensors, StepSize


class Adam(NamedTuple):
    """Steps of about the same size for every number (Kingma and Ba 2015); `decay` draws weights to zero beside that
    (Loshchilov and Hutter 2019)."""

    decay: float = 0.0
    mean_stays: float = 0.9
    square_stays: float = 0.999
    small: float = 1e-8
    kept: tuple[str, ...] = ("exp_avg", "exp_avg_sq")  # torch's names, in saved states

    def size(self, rate: float, step: int) -> tuple[float, float]:
        """Of a tensor's `step`-th step; the means began with zeros, and are corrected for that."""
        return rate / (1 - self.mean_stays**step), math.sqrt(1 - self.square_stays**step)


class Descent(NamedTuple):
    """Steps against the gradient, or against its sum over time, of which a share stays from step to step."""

    mean_stays: float = 0.0
    decay: float = 0.0
    square_stays: float = 0.0
    small: float = 0.0

    @property
    def kept(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.mean_stays else ()

    def size(self, rate: float, step: int) -> tuple[float, float]:
        return rate, 1.0


Rule = Adam | Descent

OPTIMIZERS: dict[str, Callable[[TrainConfig], Rule]] = {
    "sgd": lambda config: Descent(config.momentum),
    "adam": lambda config: Adam(),
    "adamw": lambda config: Adam(config.weight_decay),
}


class Optimizer:
    """Moves parameters by a rule. Those without a gradient stay where they are."""

    def __init__(self, parameters: Sequence[nn.Parameter], rule: Rule) -> None:
        self.parameters, self.rule = list(parameters), rule
        self.steps = [0] * len(self.parameters)
        self.kept = [
            [torch.zeros_like(parameter, memory_format=torch.contiguous_format) for _ in rule.kept]
            for parameter in self.parameters
        ]

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(
        self, rate: float, *, clip: float = 0.0, averages: Sequence[Tensor] | None = None, stays: float = 0.0
    ) -> float:
        """One step, with the gradient shortened to a norm of `clip` if it is longer (0: never); the norm before that.

        `averages` are running means of the parameters, of which a share `stays`. If the norm is not finite nothing is
        moved.
        """
        chosen, moved = list[int](), list[ParameterTensors]()
        for number, parameter in enumerate(self.parameters):
            if (gradient := parameter.grad) is not None:
                chosen.append(number)
                mean, square = (*self.kept[number], None, None)[:2]
                moved.append((parameter, gradient, mean, square, None if averages is None else averages[number]))
        if not moved:
            return 0.0
        core = OptimizerStep.of(moved)
        norm = _norm(moved) if core is None else core.norm()
        if not math.isfinite(norm):
            return norm
        for number in chosen:
            self.steps[number] += 1
        rule, scale = self.rule, clip / norm if clip and norm > clip else 1.0
        rates = Hyperparameters(scale, 1 - rate * rule.decay, rule.mean_stays, rule.square_stays, rule.small, stays)
        steps = [self.steps[number] for number in chosen]
        size_of = {step: StepSize(*rule.size(rate, step)) for step in set(steps)}  # as a rule there is but one
        sizes = [size_of[step] for step in steps]
        if core is None:
            _move(moved, rates, sizes)
        else:
            core.run(rates, sizes)
        return norm

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on beside the parameters, by name."""
        found = {}
        for number, (step, tensors) in enumerate(zip(self.steps, self.kept, strict=True)):
            found[f"{number}.step"] = torch.tensor(float(step))
            for name, tensor in zip(self.rule.kept, tensors, strict=True):
                found[f"{number}.{name}"] = tensor
        return found

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        for number, tensors in enumerate(self.kept):
            if f"{number}.step" in state:
                self.steps[number] = int(state[f"{number}.step"])
            for name, tensor in zip(self.rule.kept, tensors, strict=True):
                if f"{number}.{name}" in state:
                    tensor.copy_(state[f"{number}.{name}"])


def _norm(moved: Sequence[ParameterTensors]) -> float:
    norms = torch._foreach_norm([gradient for _, gradient, *_ in moved])
    return float(torch.linalg.vector_norm(torch.stack([norm.to(norms[0]) for norm in norms])))


def _move(moved: Sequence[ParameterTensors], rates: Hyperparameters, sizes: Sequence[StepSize]) -> None:
    """What core/update.hpp does, by torch."""
    weights, gradients, *others = map(list, zip(*moved, strict=True))
    means, squares, averages = ([tensor for tensor in some if tensor is not None] for some in others)
    if rates.gradient_scale != 1:
        gradients = list(torch._foreach_mul(gradients, rates.gradient_scale))
    if rates.weight_scale != 1:
        torch._foreach_mul_(weights, rates.weight_scale)
    back = [-size for size, _ in sizes]
    if squares:
        torch._foreach_lerp_(means, gradients, 1 - rates.beta1)
        torch._foreach_mul_(squares, rates.beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - rates.beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, [root for _, root in sizes])
        torch._foreach_add_(roots, rates.eps)
        torch._foreach_addcdiv_(weights, means, roots, back)
    else:
        if means:
            torch._foreach_mul_(means, rates.beta1)
            torch._foreach_add_(means, gradients)
        torch._foreach_add_(weights, torch._foreach_mul(means or gradients, back))
    if averages:
        torch._foreach_lerp_(averages, weights, 1 - rates.ema_decay)
