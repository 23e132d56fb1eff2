"""The Jacobian of a step, and the gradient of a state with respect to the weights as an explicit sum.

For h_t = f(x_t, h_(t-1), w), with J_r = dh_r/dh_(r-1) and the immediate derivative d+h_s/dw, which holds h_(s-1) fixed:

    dh_t/dw = sum_(s <= t) (J_t J_(t-1) ... J_(s+1)) d+h_s/dw

The norm of each term shows how much step s contributes to the gradient of step t. If the largest singular values of
the Jacobians stay below 1, the terms vanish towards the past; where the spectral radius is above 1, they can explode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from weft.cells import Cell, State
from weft.errors import WeftError
from weft.nn import Recurrent
from weft.pictures.figures import Array, Curve, Curves, Figure
from weft.pictures.svg import number
from weft.probes.layers import (
    LayerName,
    OnlyDirection,
    OnlyLayer,
    OnlyStack,
    find_layers,
    record_layers,
    take_step,
)
from weft.probes.parts import get_network
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult
from weft.tasks.operation import Option

MOST_WEIGHTS = 20_000
EIGENVALUE_COST = 1.2e9  # (state values)^3 x steps, above which steps are skipped


@dataclass(frozen=True, eq=False)
class StepJacobians(ProbeResult):
    """The Jacobian of the state after a step with respect to the state before it, along a text.

    Attributes:
        name: The stack, the layer from 0 and the direction.
        steps: What each of all T steps is, such as the token that is read.
        positions: The steps that were computed: all of them, or evenly spaced ones of a long text.
        norm: The largest singular value at each of them.
        radius: The spectral radius (the largest absolute value of an eigenvalue) at each of them.
    """

    probe = "jacobian"

    name: LayerName
    steps: tuple[str, ...]
    positions: tuple[int, ...]
    norm: Array
    radius: Array

    def records(self) -> Iterator[dict[str, Any]]:
        for position, norm, radius in zip(self.positions, self.norm.tolist(), self.radius.tolist(), strict=True):
            where = {**self.name._asdict(), "position": position, "step": self.steps[position]}
            yield {**where, "norm": norm, "radius": radius}

    def figures(self, *others: StepJacobians) -> list[Figure]:
        """The curves of this layer and of others."""
        curves = []
        for one in (self, *others):
            x = np.array(one.positions, dtype=np.float64)
            curves += [Curve(f"norm, {one.name}", x, one.norm), Curve(f"spectral radius, {one.name}", x, one.radius)]
        title = "Jacobian of a step: dh_t/dh_(t-1)"
        return [Curves(title, tuple(curves), "step t", "value", log=True, ticks=self.steps)]


@dataclass(frozen=True, eq=False)
class GradientTerms(ProbeResult):
    """dh_t/dw of one layer as a sum over the steps s <= t.

    Attributes:
        name: The stack, the layer from 0 and the direction.
        steps: What each of all T steps is, such as the token that is read.
        position: t.
        positions: The steps s that contribute, in the order in which the layer reads them.
        norms: The Frobenius norm of each term.
        total: The norm of their sum.
        weights: The number of weights of the layer.
    """

    probe = "terms"

    name: LayerName
    steps: tuple[str, ...]
    position: int
    positions: tuple[int, ...]
    norms: Array
    total: float
    weights: int

    def records(self) -> Iterator[dict[str, Any]]:
        for position, norm in zip(self.positions, self.norms.tolist(), strict=True):
            where = {**self.name._asdict(), "position": self.position, "source": position}
            yield {**where, "step": self.steps[position], "norm": norm}

    def figures(self, *others: GradientTerms) -> list[Figure]:
        """The curves of this layer and of others."""
        curves = [
            Curve(f"{one.name} (sum: {number(one.total)})", np.array(one.positions, dtype=np.float64), one.norms)
            for one in (self, *others)
        ]
        title = f"Contribution of each step to dh_t/dw, t = {self.position}"
        return [Curves(title, tuple(curves), "step s", "norm of the term", log=True, ticks=self.steps)]


def step_jacobians(
    model: Any, text: str, *, stack: OnlyStack = None, layer: OnlyLayer = None, direction: OnlyDirection = None
) -> tuple[StepJacobians, ...]:
    """Norm and spectral radius of the step Jacobian of each layer, along a text.

    The state of an LSTM is (h, c), so its Jacobian is (2H, 2H). Where the eigenvalues of all steps would take more than
    a few seconds, evenly spaced steps are computed; `positions` has them.
    """
    network = get_network(model, text)
    found = []
    for name, run in record_layers(network, find_layers(network, stack, layer, direction)).items():
        part, x, states = run.layer, run.x, run.before
        T, size = len(x), sum(one.shape[-1] for one in states[0])
        projected = part.cell.project(x).detach()
        count = int(min(T, max(8, EIGENVALUE_COST / size**3)))
        positions = sorted({round(at) for at in np.linspace(0, T - 1, count)})
        jacobians = [step_jacobian(part, projected[t : t + 1], states[t]) for t in positions]
        norms = [float(torch.linalg.matrix_norm(one, 2)) for one in jacobians]
        radii = [float(torch.linalg.eigvals(one).abs().max()) for one in jacobians]
        tokens = network.stacks[name.stack].steps
        found.append(StepJacobians(name, tokens, tuple(positions), np.array(norms), np.array(radii)))
    return tuple(found)


def gradient_terms(
    model: Any,
    text: str,
    *,
    position: Annotated[int, Option("The position t; -1 is the last.")] = -1,
    stack: OnlyStack = None,
    layer: OnlyLayer = None,
    direction: OnlyDirection = None,
) -> tuple[GradientTerms, ...]:
    """How much each step contributes to dh_t/dw, exactly, for each layer by itself.

    Args:
        model: A loaded run.
        text: The text that the model reads.
        position: t, from 0 or counted from the end.
        stack: Only the stack of this name.
        layer: Only this layer.
        direction: Only "forward" or "backward".

    Raises:
        WeftError: A layer has more than 20,000 weights; `gradient_flow` has no such limit.
    """
    network = get_network(model, text)
    found = []
    for name, run in record_layers(network, find_layers(network, stack, layer, direction)).items():
        part, x, states = run.layer, run.x, run.before
        T = len(x)
        if not -T <= position < T:
            raise WeftError(f"there is no position {position}", expected=f"0 to {T - 1}, or -1 for the last")
        t = position % T
        check_weights(part.cell, str(name))
        steps = list(range(t, T)) if part.reverse else list(range(t, -1, -1))  # from t to the first that was read
        norms, total = unrolled_jacobian(part, [x[s : s + 1] for s in steps], [states[s] for s in steps])
        weights = sum(one.numel() for one in part.cell.parameters())
        tokens = network.stacks[name.stack].steps
        found.append(
            GradientTerms(name, tokens, t, tuple(steps[::-1]), np.array(norms[::-1]), float(total.norm()), weights)
        )
    return tuple(found)


def check_weights(cell: Cell, name: str) -> None:
    """Refuses a cell whose Jacobians with respect to the weights do not fit."""
    weights = sum(one.numel() for one in cell.parameters())
    if weights > MOST_WEIGHTS:
        size = len(cell.state_type._fields) * cell.hidden_size  # type: ignore[attr-defined]
        raise WeftError(
            f"{name} has {weights:,} weights: each term would take {8 * size * weights / 1e9:.1f} GB",
            expected=f"at most {MOST_WEIGHTS:,} weights",
            hint="the view `gradient` (weft.probes.gradient_flow), which has no such limit",
        )


def unrolled_jacobian(layer: Recurrent, x: list[Tensor], states: list[State]) -> tuple[list[float], Tensor]:
    """The terms of dh_t/dw.

    Args:
        layer: The layer.
        x: The input (1, I) of step t and of each step read before it, newest first.
        states: The states before these steps.

    Returns:
        The norm of each term, newest first, and their sum (H, number of weights) in the order of the parameters.
    """
    H, chain, total, norms = layer.output_size, None, None, []
    for inputs, state in zip(x, states, strict=True):
        term = immediate_derivative(layer, inputs, state)  # (S*H, W)
        term = term[:H] if chain is None else chain @ term  # (H, W)
        total = term if total is None else total + term
        norms.append(float(term.norm()))
        jacobian = step_jacobian(layer, layer.cell.project(inputs).detach(), state)
        chain = jacobian[:H] if chain is None else chain @ jacobian  # (H, S*H)
    assert total is not None
    return norms, total


def step_jacobian(layer: Recurrent, x_proj: Tensor, state: State) -> Tensor:
    """d(state after)/d(state before) of one step, (S*H, S*H) for a state of S parts; x_proj (1, G*H)."""
    size = sum(part.shape[-1] for part in state)
    before = type(state)(*(part.detach().expand(size, -1).clone().requires_grad_() for part in state))
    with torch.enable_grad():
        after, _ = take_step(layer, x_proj.detach().expand(size, -1), before)
    identity = torch.eye(size, dtype=x_proj.dtype, device=x_proj.device)
    identity_parts = torch.split(identity, [part.shape[-1] for part in state], -1)
    found = torch.autograd.grad(tuple(after), tuple(before), identity_parts, allow_unused=True)
    return torch.cat([torch.zeros_like(a) if b is None else b for a, b in zip(before, found, strict=True)], -1)


def immediate_derivative(layer: Recurrent, x: Tensor, state: State) -> Tensor:
    """d(state after)/d(weights) of one step with the state before held fixed, (S*H, W)."""
    cell, fixed = layer.cell, type(state)(*(part.detach() for part in state))
    weights = {name: parameter.detach() for name, parameter in cell.named_parameters()}

    def after(values: dict[str, Tensor]) -> Tensor:
        new = functional_call(_Step(layer), {f"layer.cell.{name}": value for name, value in values.items()}, (x, fixed))
        return torch.cat(tuple(new), -1)[0]

    found = torch.func.jacrev(after)(weights)
    return torch.cat([found[name].flatten(1) for name in weights], 1)


class _Step(torch.nn.Module):
    """A step as a module, so that it can be called with other weights."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: State) -> State:
        return take_step(self.layer, self.layer.cell.project(x), state)[0]


JACOBIAN = Probe("jacobian", "norm and spectral radius of dh_t/dh_(t-1)", "network", step_jacobians)
TERMS = Probe(
    "terms",
    "the contribution of each step to dh_t/dw, exactly, for layers of up to 20,000 weights",
    "network",
    gradient_terms,
)
