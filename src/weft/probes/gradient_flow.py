"""Gradient flow: how much of the gradient of a prediction's loss reaches each earlier state.

For the loss L_t of prediction t, the norm of dL_t/dh_s for every step s, of every layer and direction: it vanishes
where the norms fall towards the past, and explodes where they grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.cells import Gates, State
from weft.engine import over_time
from weft.errors import WeftError
from weft.nn import Recurrent
from weft.pictures.figures import SEQUENTIAL, Array, ColouredText, Curve, Curves, Figure, HeatMap, visible
from weft.probes.layers import (
    LayerName,
    OnlyDirection,
    OnlyLayer,
    OnlyPart,
    OnlyStack,
    choose_layers,
    find_layers,
    layer_by_layer,
    part_labels,
    part_title,
    record_layers,
    take_step,
)
from weft.probes.parts import get_network
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, rows_by_step
from weft.tasks.inspection import Network
from weft.tasks.operation import Option

MOST_SLOW_PAIRS = 1 << 18  # predictions x tokens for networks that are differentiated prediction by prediction


@dataclass(frozen=True, eq=False)
class LayerGradients:
    """Gradient norms of one direction of one layer: (P, T) for P predictions and T steps.

    Attributes:
        name: The stack, the layer from 0 and the direction.
        steps: What each of the T steps is, such as the token that is read.
        states: The norm of dL/d(part of the state after step s), for h, and c where the cell has one.
        gates: The norm of dL/d(gate at step s), by the names of the gates.
        labels: What gates and parts of the state are called, by their names: {"i": "input gate", ...}.
    """

    name: LayerName
    steps: tuple[str, ...]
    states: Mapping[str, Array]
    gates: Mapping[str, Array]
    labels: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class GradientFlow(ProbeResult):
    """Gradient norms of all layers.

    Attributes:
        predictions: The numbers of the P predictions whose losses are differentiated.
        names: What each of them predicts.
        layers: The norms of every layer and direction.
    """

    probe = "gradient"

    predictions: tuple[int, ...]
    names: tuple[str, ...]
    layers: tuple[LayerGradients, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        for one in self.layers:
            for kind, parts in (("state", one.states), ("gate", one.gates)):
                for part, norms in parts.items():
                    for prediction, name, values in zip(self.predictions, self.names, norms, strict=True):
                        where = {**one.name._asdict(), kind: part, "prediction": prediction, "predicted": name}
                        yield from ({**where, **row} for row in rows_by_step(one.steps, norm=values))

    def figures(
        self,
        *,
        stack: OnlyStack = None,
        layer: OnlyLayer = None,
        direction: OnlyDirection = None,
        gate: OnlyPart = None,
        position: Annotated[int, Option("The number of the prediction; -1 is the last.")] = -1,
    ) -> list[Figure]:
        """The norms of one prediction as curves, of all pairs as maps, and on the text for the first layer and part."""
        if not -len(self.names) <= position < len(self.names):
            raise WeftError(f"there is no prediction {position}", expected=f"0 to {len(self.names) - 1}")
        names = choose_layers([one.name for one in self.layers], stack, layer, direction)
        layers = [one for one in self.layers if one.name in names]
        chosen = [
            (one, name, norms)
            for one in layers
            for name, norms in (one.states if gate is None else {**one.gates, **one.states}).items()
            if gate in (None, name)
        ]
        if not chosen:
            known = ", ".join(dict.fromkeys(name for one in layers for name in (*one.gates, *one.states)))
            raise WeftError(f"there is no gate {gate!r}", expected=f"one of: {known}")
        curves = tuple(
            Curve(
                f"{one.name}, {name}" if len(layers) > 1 else part_title(one.labels, name),
                np.arange(norms.shape[1], dtype=np.float64),
                norms[position],
            )
            for one, name, norms in chosen
        )
        first, part, values = chosen[0]
        what = visible(self.names[position])
        same = len({one.steps for one in layers}) == 1
        figures: list[Figure] = [
            Curves(
                f"Gradient of the loss of {what!r} at each earlier step",
                curves,
                x_label="step s",
                y_label="norm of dL/dh_s" if gate is None else f"norm of dL/d{gate}_s",
                log=True,
                ticks=first.steps if same else (),
            )
        ]
        for one, name, norms in chosen if len(self.predictions) > 1 else ():
            with np.errstate(divide="ignore"):
                logs = np.where(norms > 0, np.log10(norms), np.nan)
            logs = np.maximum(logs, np.nanmax(logs) - 8) if np.isfinite(logs).any() else logs
            title = f"Gradient norms of {part_title(one.labels, name)}, {one.name}"
            label = f"log10 of the norm of dL/d{name}"
            figures.append(HeatMap(title, logs, self.names, one.steps, label, "loss of", "step"))
        title = f"Gradient of the loss of {what!r} on the text: {part_title(first.labels, part)}, {first.name}"
        rows = token_rows(first.steps, self.predictions, self.names)
        text = ColouredText(title, first.steps, values[position], "norm", SEQUENTIAL, (), values, self.names, rows)
        return [*figures, text]


def gradient_flow(model: Any, text: str = "", *, predictions: Sequence[int] | None = None) -> GradientFlow:
    """The norm of dL_t/dh_s for predictions t and all steps s, per layer, per part of the state, and per gate.

    Memory: 8 bytes for each prediction, token, layer and (gate or part of the state).

    Args:
        model: A loaded run, or a `weft.tasks.inspection.Network`, which has read its text.
        text: The text that the model reads.
        predictions: The numbers of the predictions, negative ones counted from the end; without it, all.

    Raises:
        WeftError: The model has no recurrent layers, or there is no such prediction.
    """
    network = get_network(model, text)
    numbers = choose_predictions(network, predictions)
    return flow_by_autograd(network, numbers) if network.readout is None else sweep(network, numbers)[0]


def choose_predictions(network: Network, given: Sequence[int] | None) -> list[int]:
    """The numbers of predictions, in order and from 0."""
    count = len(network.predictions)
    if given is None:
        return list(range(count))
    for number in given:
        if not -count <= number < count:
            raise WeftError(f"there is no prediction {number}", expected=f"0 to {count - 1}, or -1 for the last")
    return sorted({number % count for number in given})


def token_rows(tokens: Sequence[str], predictions: Sequence[int], names: Sequence[str]) -> tuple[int, ...]:
    """For each token the number, among these predictions, of the one that is about it, or -1; () where none are."""
    for shift in (1, 0):  # the next token, or the token itself
        at = {number + shift: row for row, number in enumerate(predictions)}
        if all(tokens[place : place + 1] == (names[row],) for place, row in at.items()):
            return tuple(at.get(place, -1) for place in range(len(tokens)))
    tagged = len(names) == len(tokens) and all(
        name.endswith(f" {token}") for name, token in zip(names, tokens, strict=True)
    )
    return tuple(range(len(tokens))) if tagged else ()


def losses_of(network: Network, logits: Tensor) -> Tensor:
    """The loss of each prediction, -log P of its target unless the network has another: logits (B, P, C) to (B, P)."""
    if network.losses is not None:
        return network.losses(logits)
    targets = torch.tensor(network.targets, device=logits.device)
    return F.cross_entropy(logits.transpose(1, 2), targets.expand(len(logits), -1), reduction="none")


@contextmanager
def unrolled(network: Network) -> Iterator[dict[LayerName, list[tuple[State, Gates]]]]:
    """Inside the block every step of every layer is a node of the graph: the states and gates of each layer by step.

    Layers run over all steps at once, and their outputs are one tensor: a gradient with respect to it does not contain
    what flows through later steps.
    """
    nodes: dict[LayerName, list[tuple[State, Gates]]] = {}

    def run(name: LayerName, layer: Recurrent, x: Tensor, state: State) -> tuple[Tensor, State]:
        projected = layer.cell.project(x).unbind(1)
        kept, state = over_time(
            lambda t, before: take_step(layer, projected[t], before), len(projected), state, reverse=layer.reverse
        )
        nodes.setdefault(name, []).extend(kept)
        return torch.stack([one.h for one, _ in kept], 1), state

    with layer_by_layer(network, run):
        yield nodes


def flow_by_autograd(network: Network, predictions: Sequence[int]) -> GradientFlow:
    """Gradient flow of any network, by one backward pass for each prediction."""
    if len(predictions) * len(network.steps) > MOST_SLOW_PAIRS:
        raise WeftError(
            f"{len(predictions):,} predictions of {len(network.steps):,} tokens",
            expected=f"at most {MOST_SLOW_PAIRS:,} pairs for this model, which needs a backward pass for each",
            hint="predictions=[-1] for the last one",
        )
    with torch.enable_grad(), unrolled(network) as nodes:
        losses = losses_of(network, network.logits(network.embeddings))[0]
    flat = [tensor for steps in nodes.values() for state, gates in steps for tensor in (*state, *gates)]
    unique = {id(tensor): tensor for tensor in flat if tensor.requires_grad}
    norms: list[dict[int, float]] = []
    for number in predictions:
        found = torch.autograd.grad(losses[number], list(unique.values()), retain_graph=True, allow_unused=True)
        norms.append({key: 0.0 if one is None else float(one.norm()) for key, one in zip(unique, found, strict=True)})
    layers = []
    for name, steps in nodes.items():

        def table(part: int, field: str, steps: Any = steps) -> Array:
            rows = [[row.get(id(getattr(step[part], field)), 0.0) for step in steps] for row in norms]
            return np.array(rows).reshape(len(norms), len(steps))

        states = {field: table(0, field) for field in steps[0][0]._fields}
        gates = {field: table(1, field) for field in steps[0][1]._fields}
        labels = part_labels(*steps[0])
        layers.append(LayerGradients(name, network.stacks[name.stack].steps, states, gates, labels))
    return GradientFlow(tuple(predictions), tuple(network.predictions[one] for one in predictions), tuple(layers))


def sweep(network: Network, predictions: Sequence[int]) -> tuple[GradientFlow, Array]:
    """Gradient flow of a causal stack with a local readout: all predictions in one pass from the last step on back.

    The gradients of all predictions are rows of one batch, so a step costs one product for all of them.

    Returns:
        The gradient flow, and the norm of dL_t/dx_s of the embeddings, (P, T).
    """
    ((_, (stack, tokens)),) = network.stacks.items()
    recorded = record_layers(network, find_layers(network))
    runs = list(recorded.values())
    inputs = [list(run.layer.cell.project(run.x[None]).detach().unbind(1)) for run in runs]
    direct = _readout_gradients(network, predictions)  # (P, O)
    P, T = len(predictions), len(tokens)
    norms = [[torch.zeros(P, T) for _ in (*run.states, *run.gates)] for run in runs]
    embedding_norms = torch.zeros(P, T)
    flowing = [tuple(direct.new_zeros(P, run.layer.output_size) for _ in run.states) for run in runs]
    steps = torch.tensor(predictions)
    for s in reversed(range(T)):
        first = int(torch.searchsorted(steps, s))  # predictions before step s cannot depend on it
        if first == P:
            continue
        down = torch.where((steps[first:] == s)[:, None], direct[first:], 0.0)
        for n, run in reversed(list(enumerate(runs))):
            gradients = tuple(part[first:] for part in flowing[n])
            gradients = (gradients[0] + down, *gradients[1:])
            dx, before, inside = _backward_step(run.layer, inputs[n][s], run.before[s], gradients)
            for table, gradient in zip(norms[n], inside, strict=True):
                table[first:, s] = gradient.norm(dim=-1)
            flowing[n] = tuple(torch.cat([part[:first], new]) for part, new in zip(flowing[n], before, strict=True))
            down = dx + down if stack.residual and dx.shape == down.shape else dx
        embedding_norms[first:, s] = down.norm(dim=-1)
    found = []
    for (name, run), own in zip(recorded.items(), norms, strict=True):
        tables = iter([table.double().numpy() for table in own])
        states, gates = ({part: next(tables) for part in parts._fields} for parts in (run.states, run.gates))
        found.append(LayerGradients(name, tokens, states, gates, part_labels(run.states, run.gates)))
    named = tuple(network.predictions[one] for one in predictions)
    return GradientFlow(tuple(predictions), named, tuple(found)), embedding_norms.double().numpy()


def _readout_gradients(network: Network, predictions: Sequence[int]) -> Tensor:
    """dL_t/do_t of the stack's outputs, (P, O)."""
    assert network.readout is not None
    ((_, (stack, _)),) = network.stacks.items()
    with torch.no_grad():
        outputs, _ = stack(network.embeddings)
    outputs = outputs.detach().requires_grad_()
    with torch.enable_grad():
        total = losses_of(network, network.readout(outputs)[:, : len(network.targets)]).sum()
    gradient: Tensor = torch.autograd.grad(total, outputs)[0]
    return gradient[0, torch.tensor(list(predictions))]


def _backward_step(
    layer: Recurrent, x_proj: Tensor, state: State, gradients: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Gradients after a step, (P, H) each, to those of its input, of the state before it, and of its state and gates.

    The gradient of a part of the state contains what reaches it through the others: c of an LSTM makes h.
    """
    x = x_proj.detach().requires_grad_()
    before = type(state)(*(part.detach().requires_grad_() for part in state))
    with torch.enable_grad():
        after, gates = take_step(layer, x, before)
    inputs = (x, *before, *after, *gates)
    # The step is computed once; its backward pass runs for all rows as one batch.
    rows = tuple(part[:, None] for part in gradients)  # (P, 1, H)
    found = torch.autograd.grad(tuple(after), inputs, rows, allow_unused=True, is_grads_batched=True)
    whole = [
        one.new_zeros(len(rows[0]), one.shape[-1]) if part is None else part[:, 0]
        for one, part in zip(inputs, found, strict=True)
    ]
    return whole[0] @ layer.cell.weight_ih.detach(), tuple(whole[1 : 1 + len(state)]), tuple(whole[1 + len(state) :])


PROBE = Probe("gradient", "the norm of dL_t/dh_s for all s ≤ t", "network", gradient_flow, GradientFlow.figures)
