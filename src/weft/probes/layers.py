"""The layers of a network one by one, and what each of them reads and records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from weft.cells import Gates, State
from weft.engine import Embedded
from weft.errors import WeftError
from weft.nn import Bidirectional, BothDirections, Recurrent, Stack
from weft.tasks.inspection import Network
from weft.tasks.operation import Option

FORWARD, BACKWARD = "forward", "backward"

# Options of probes that look at single layers.
OnlyStack = Annotated[str | None, Option("Only this stack, such as encoder or decoder.")]
OnlyLayer = Annotated[int | None, Option("Only this layer, from 0 (the lowest); -1 is the top.", -1000, 1000)]
OnlyDirection = Annotated[Literal["forward", "backward"] | None, Option("Only this direction.")]
OnlyPart = Annotated[str | None, Option("Only this gate or part of the state.")]


class LayerName(NamedTuple):
    """One direction of one layer: the name of its stack, its number from 0 (the lowest), and its direction."""

    stack: str
    layer: int
    direction: str

    def __str__(self) -> str:
        return f"{self.stack} layer {self.layer} {self.direction}"


def split_stack(name: str, stack: Stack) -> list[tuple[LayerName, Recurrent]]:
    """Every direction of every layer, lowest first."""
    found: list[tuple[LayerName, Recurrent]] = []
    for number, layer in enumerate(stack.layers):
        parts = [layer.forward_layer, layer.backward_layer] if isinstance(layer, Bidirectional) else [layer]
        for part in parts:
            assert isinstance(part, Recurrent)
            found.append((LayerName(name, number, BACKWARD if part.reverse else FORWARD), part))
    return found


def find_layers(
    network: Network, stack: str | None = None, layer: int | None = None, direction: str | None = None
) -> list[LayerName]:
    """The names of the layers of a network that were asked for."""
    names = [name for key, use in network.stacks.items() for name, _ in split_stack(key, use.stack)]
    return choose_layers(names, stack, layer, direction)


def choose_layers(
    names: list[LayerName], stack: str | None, layer: int | None, direction: str | None
) -> list[LayerName]:
    """Those of a stack, a number (negative: from the top) and a direction, as far as these are given."""
    for field, given in (("stack", stack), ("layer", layer), ("direction", direction)):
        if given is None:
            continue
        known = list(dict.fromkeys(getattr(name, field) for name in names))
        if isinstance(given, int) and given < 0:
            given += max(name.layer for name in names) + 1
        left = [name for name in names if getattr(name, field) == given]
        if not left:
            raise WeftError(f"there is no {field} {given!r}", expected=f"one of: {', '.join(map(str, known))}")
        names = left
    return names


def take_step(layer: Recurrent, x_proj: Tensor, state: State) -> tuple[State, Gates]:
    """One step of a layer after training; zoneout has its expected value."""
    new, gates = layer.cell.step(x_proj, state)
    if layer.zoneout:
        new = type(new)(*(layer.zoneout * a + (1 - layer.zoneout) * b for a, b in zip(state, new, strict=True)))
    return new, gates


# Runs one direction of one layer on x (1, T, I) from a state; returns h of all steps, (1, T, H), and the last state.
RunLayer = Callable[[LayerName, Recurrent, Tensor, State], tuple[Tensor, State]]


@contextmanager
def layer_by_layer(network: Network, run: RunLayer) -> Iterator[None]:
    """Inside the block `run` runs every direction of every layer of the network, for one text."""

    def forward(key: str, stack: Stack) -> Any:
        def run_stack(x: Any, state: Any = None, *, lengths: Tensor | None = None) -> tuple[Tensor, tuple[State, ...]]:
            x = x.tensor() if isinstance(x, Embedded) else x
            assert len(x) == 1, "one text at a time"
            names, last = split_stack(key, stack), []
            for number, layer in enumerate(stack.layers):
                before = None if state is None else state[number]
                both = isinstance(layer, Bidirectional)
                begin = (before or (None, None)) if both else (before,)
                parts = [one for one in names if one[0].layer == number]
                done = [
                    run(name, part, x, part.initial_state(1) if first is None else first)
                    for (name, part), first in zip(parts, begin, strict=True)
                ]
                outputs = torch.cat([h for h, _ in done], -1)
                x = outputs + x if stack.residual and x.is_floating_point() and x.shape == outputs.shape else outputs
                last.append(BothDirections(*(after for _, after in done)) if both else done[0][1])
            return x, tuple(last)

        return run_stack

    for key, use in network.stacks.items():
        use.stack.forward = forward(key, use.stack)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for use in network.stacks.values():
            del use.stack.forward


class LayerRun(NamedTuple):
    """What a layer read and computed on a text."""

    layer: Recurrent
    x: Tensor  # (T, I)
    before: list[State]  # the state before each step, of (1, H), by the position of the step
    states: State  # after each step, of (T, H)
    gates: Gates  # of (T, H)


@torch.no_grad()
def record_layers(network: Network, names: Iterable[LayerName]) -> dict[LayerName, LayerRun]:
    """Runs the network and records the layers; a stack that is run step by step is recorded as one sequence."""
    calls: dict[LayerName, list[LayerRun]] = {name: [] for name in names}

    def run(name: LayerName, layer: Recurrent, x: Tensor, state: State) -> tuple[Tensor, State]:
        states, gates = layer.record(x, state)
        after = [type(states)(*parts) for parts in zip(*(part.unbind(1) for part in states), strict=True)]
        if name in calls:
            before = [*after[1:], state] if layer.reverse else [state, *after[:-1]]
            found = (type(parts)(*(part[0] for part in parts)) for parts in (states, gates))
            calls[name].append(LayerRun(layer, x[0], before, *found))
        return states.h, after[0 if layer.reverse else -1]

    with layer_by_layer(network, run):
        network.logits(network.embeddings)
    return {name: _joined(runs) for name, runs in calls.items()}


def _joined(runs: Sequence[LayerRun]) -> LayerRun:
    layer, x, before, states, gates = zip(*runs, strict=True)
    whole = (type(parts[0])(*map(torch.cat, zip(*parts, strict=True))) for parts in (states, gates))
    return LayerRun(layer[0], torch.cat(x), [state for one in before for state in one], *whole)


def part_labels(states: State, gates: Gates) -> dict[str, str]:
    """What the parts of a state and the gates are called, by their names, where their types have `labels`."""
    return {**getattr(states, "labels", {}), **getattr(gates, "labels", {})}


def part_title(labels: Mapping[str, str], name: str) -> str:
    """A gate or a part of the state as pictures name it: "input gate i", or "i" where its type has no label."""
    return f"{labels[name]} {name}" if name in labels else name
