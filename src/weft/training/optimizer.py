"""Optimizers: SGD, Adam, AdamW and Muon, with gradient clipping and an exponential moving average (EMA) of the weights.

The update rules are those of torch.optim. A step computes the gradient norm, clips the gradient, applies the rule and
updates the EMA; the engine does all of it in two calls. Importing this module does not import torch.optim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.engine import Hyperparameters, OptimizerStep, ParameterTensors, StepSize
from weft.training.config import TrainConfig
from weft.training.muon import Muon, hidden_matrices


class Adam(NamedTuple):
    """Adam (Kingma and Ba 2015); with `weight_decay` AdamW, whose decay is decoupled (Loshchilov and Hutter 2019)."""

    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    buffers: tuple[str, ...] = ("exp_avg", "exp_avg_sq")  # torch's names, used in saved states

    def corrections(self, learning_rate: float, step: int) -> tuple[float, float]:
        """Returns the step size and the root that correct both moments for their zero initialisation."""
        return learning_rate / (1 - self.beta1**step), math.sqrt(1 - self.beta2**step)


class SGD(NamedTuple):
    """Stochastic gradient descent, with momentum if `beta1` is above 0."""

    beta1: float = 0.0
    weight_decay: float = 0.0
    beta2: float = 0.0
    eps: float = 0.0

    @property
    def buffers(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.beta1 else ()

    def corrections(self, learning_rate: float, step: int) -> tuple[float, float]:
        return learning_rate, 1.0


Rule = Adam | SGD | Muon

# The rule of parameters; "muon" has another one for the matrices of hidden layers.
OPTIMIZERS: dict[str, Callable[[TrainConfig], Adam | SGD]] = {
    "sgd": lambda config: SGD(config.momentum),
    "adam": lambda config: Adam(),
    "adamw": lambda config: Adam(config.weight_decay),
    "muon": lambda config: Adam(config.weight_decay),
}


def rules_for(model: nn.Module, parameters: Sequence[nn.Parameter], config: TrainConfig) -> list[Rule]:
    """The rule of each parameter of a model by the `train` settings."""
    usual, blocks = OPTIMIZERS[config.optimizer](config), dict[nn.Parameter, int]()
    if config.optimizer == "muon":
        blocks = hidden_matrices(model)
    low = config.precision == "bf16"
    return [Muon(blocks[one], config.weight_decay, low_precision=low) if one in blocks else usual for one in parameters]


class Optimizer:
    """Updates the parameters that have a gradient, each by its rule, with its factor of the learning rate."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], rules: Sequence[Rule], rate_factors: Sequence[float] | None = None
    ) -> None:
        self.parameters, self.rules = list(parameters), list(rules)
        self.rate_factors = [1.0] * len(self.parameters) if rate_factors is None else list(rate_factors)
        self.steps = [0] * len(self.parameters)
        self.buffers = [
            [torch.zeros_like(parameter, memory_format=torch.contiguous_format) for _ in rule.buffers]
            for parameter, rule in zip(self.parameters, self.rules, strict=True)
        ]

    def zero_grad(self) -> None:
        """Sets all gradients to None."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(
        self,
        learning_rate: float,
        *,
        clip_norm: float = 0.0,
        ema: Sequence[Tensor] | None = None,
        ema_decay: float = 0.0,
    ) -> float:
        """Takes one step. If the gradient norm is not finite, nothing is updated.

        Args:
            clip_norm: scale the gradient down to this global norm if it is larger; 0 means no clipping.
            ema: averaged copies of the parameters, updated in place: ema_decay * ema + (1 - ema_decay) * parameter.

        Returns:
            The global norm of the gradient before clipping.
        """
        chosen, moved = list[int](), list[ParameterTensors]()
        for number, parameter in enumerate(self.parameters):
            if (gradient := parameter.grad) is not None:
                chosen.append(number)
                first, second = (*self.buffers[number], None, None)[:2]
                moved.append((parameter, gradient, first, second, None if ema is None else ema[number]))
        if not moved:
            return 0.0
        core = OptimizerStep.of(moved)
        norm = _global_norm(moved) if core is None else core.norm()
        if not math.isfinite(norm):
            return norm
        for number in chosen:
            self.steps[number] += 1
        scale = clip_norm / norm if clip_norm and norm > clip_norm else 1.0
        kinds = [(self.rules[number], self.rate_factors[number]) for number in chosen]
        for kind in dict.fromkeys(kinds):  # usually one
            some = [place for place, other in enumerate(kinds) if other == kind]
            part, steps = [moved[place] for place in some], [self.steps[chosen[place]] for place in some]
            rule, factor = kind
            if isinstance(rule, Muon):
                _apply_muon(rule, part, steps, learning_rate * factor, scale, ema_decay)
            else:
                one = core if len(part) == len(moved) else OptimizerStep.of(part)
                _apply(rule, one, part, steps, learning_rate * factor, scale, ema_decay)
        return norm

    def state(self) -> dict[str, Tensor]:
        """Returns everything but the parameters that the next step depends on, by name."""
        found = {}
        for number, (step, tensors) in enumerate(zip(self.steps, self.buffers, strict=True)):
            found[f"{number}.step"] = torch.tensor(float(step))
            for name, tensor in zip(self.rules[number].buffers, tensors, strict=True):
                found[f"{number}.{name}"] = tensor
        return found

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned. Entries of torch.optim's state have the same names and meaning."""
        for number, tensors in enumerate(self.buffers):
            if f"{number}.step" in state:
                self.steps[number] = int(state[f"{number}.step"])
            for name, tensor in zip(self.rules[number].buffers, tensors, strict=True):
                if f"{number}.{name}" in state:
                    tensor.copy_(state[f"{number}.{name}"])


def _apply(
    rule: Adam | SGD,
    core: OptimizerStep | None,
    moved: Sequence[ParameterTensors],
    steps: Sequence[int],
    learning_rate: float,
    scale: float,
    ema_decay: float,
) -> None:
    """Updates some parameters, which have taken these numbers of steps; the gradient is multiplied by `scale`."""
    rates = Hyperparameters(scale, 1 - learning_rate * rule.weight_decay, rule.beta1, rule.beta2, rule.eps, ema_decay)
    by_step = {step: StepSize(*rule.corrections(learning_rate, step)) for step in set(steps)}  # usually one
    corrections = [by_step[step] for step in steps]
    if core is None:
        _update(moved, rates, corrections)
    else:
        core.run(rates, corrections)


def _apply_muon(
    rule: Muon,
    moved: Sequence[ParameterTensors],
    steps: Sequence[int],
    learning_rate: float,
    scale: float,
    ema_decay: float,
) -> None:
    """The same by Muon: the momentum of every step, by a step of size 0; then the weights that are due."""
    still = [(*one[:-1], None) for one in moved]
    _apply(SGD(rule.beta1), OptimizerStep.of(still), still, steps, 0.0, scale, 0.0)
    for (weight, _, momentum, _, ema), step in zip(moved, steps, strict=True):
        assert momentum is not None
        if rule.is_due(step):
            rule.update(weight, momentum, learning_rate)
        if ema is not None:
            ema.lerp_(weight, 1 - ema_decay)


def _global_norm(moved: Sequence[ParameterTensors]) -> float:
    norms = torch._foreach_norm([gradient for _, gradient, *_ in moved])
    return float(torch.linalg.vector_norm(torch.stack([norm.to(norms[0]) for norm in norms])))


def _update(moved: Sequence[ParameterTensors], rates: Hyperparameters, corrections: Sequence[StepSize]) -> None:
    """The update of core/optimizer.hpp in torch, for where the engine cannot run."""
    scale, decay, beta1, beta2, eps, ema_decay = rates
    weights, gradients, *others = map(list, zip(*moved, strict=True))
    first, second, ema = ([tensor for tensor in some if tensor is not None] for some in others)
    if scale != 1:
        gradients = list(torch._foreach_mul(gradients, scale))
    if decay != 1:
        torch._foreach_mul_(weights, decay)
    step_sizes = [-size for size, _ in corrections]
    if second:
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, [root for _, root in corrections])
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(weights, first, roots, step_sizes)
    else:
        if first:
            torch._foreach_mul_(first, beta1)
            torch._foreach_add_(first, gradients)
        torch._foreach_add_(weights, torch._foreach_mul(first or gradients, step_sizes))
    if ema:
        torch._foreach_lerp_(ema, weights, 1 - ema_decay)


class LayerGroups:
    """Groups of parameters with learning rates of their own, frozen until their turn: for pretrained layers.

    The groups go from the output layer down to the embedding. Group i is trained at decay^i times the learning rate,
    and only from step i * interval on: new layers come first, then the pretrained ones from the top down.

    Howard and Ruder 2018, "Universal language model fine-tuning for text classification".

    Args:
        groups: the parameters of each group; the first group is trained from the first step on.
        decay: the factor of the learning rate from each group to the next.
        unfreeze_epochs: the epochs of training between the unfreezing of one group and the next; 0: none is frozen.
            All groups are trained in the second half of a training, however short it is.
    """

    def __init__(self, groups: Sequence[Sequence[nn.Parameter]], decay: float, unfreeze_epochs: float) -> None:
        self.groups, self.decay, self.unfreeze_epochs = [list(group) for group in groups], decay, unfreeze_epochs

    def active(self, step: int, *, epoch_steps: int, total: int) -> int:
        """The number of groups that are trained at a step, counted from 0."""
        interval = min(round(self.unfreeze_epochs * epoch_steps), total // (2 * max(1, len(self.groups) - 1)))
        return min(len(self.groups), 1 + step // interval) if interval else len(self.groups)

    def freeze(self, active: int) -> None:
        """Sets `requires_grad`: true for the parameters of the first `active` groups."""
        for number, group in enumerate(self.groups):
            for parameter in group:
                parameter.requires_grad_(number < active)

    def rate_factors(self, parameters: Sequence[nn.Parameter]) -> list[float]:
        """The factor of the learning rate of each parameter; 1 for those in no group."""
        factors = {id(one): self.decay**number for number, group in enumerate(self.groups) for one in group}
        return [factors.get(id(parameter), 1.0) for parameter in parameters]
