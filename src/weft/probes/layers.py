"""The layers of a network one by one, and what each of them reads and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from weft.cells import Gates, State
from weft.engine import Embedded
from weft.errors import WeftError
from weft.nn import Bidirectional, Recording, Recurrent, Stack
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


class StackCall(NamedTuple):
    """The arguments of one run of a stack."""

    x: Tensor  # (1, T, I)
    state: Any
    lengths: Tensor | None


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
    """The names of the layers of a network that were asked for.

    Raises:
        WeftError: There is no such stack, layer or direction.
    """
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


@torch.no_grad()
def capture_calls(network: Network, stacks: Iterable[str]) -> dict[str, list[StackCall]]:
    """Runs the network and returns what each stack was called with, in order."""
    calls: dict[str, list[StackCall]] = {name: [] for name in stacks}

    def watch(name: str) -> Any:
        def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = args[0]
            state = args[1] if len(args) > 1 else kwargs.get("state")
            written = x.tensor() if isinstance(x, Embedded) else x
            calls[name].append(StackCall(written, state, kwargs.get("lengths")))

        return hook

    handles = [network.stacks[name].stack.register_forward_pre_hook(watch(name), with_kwargs=True) for name in calls]
    try:
        network.logits(network.embeddings)
    finally:
        for handle in handles:
            handle.remove()
    return calls


@torch.no_grad()
def record_layers(network: Network, names: Iterable[LayerName]) -> dict[LayerName, Recording]:
    """The states and gates of the layers; a stack that is run step by step is recorded as one sequence."""
    wanted = list(names)
    found: dict[LayerName, Recording] = {}
    for key, calls in capture_calls(network, dict.fromkeys(name.stack for name in wanted)).items():
        stack = network.stacks[key].stack
        recordings = [flatten(stack.record(call.x, call.state, lengths=call.lengths)) for call in calls]
        for (name, _), parts in zip(split_stack(key, stack), zip(*recordings, strict=True), strict=True):
            if name in wanted:
                found[name] = Recording(
                    *(_join([getattr(part, field) for part in parts]) for field in Recording._fields)
                )
    return {name: found[name] for name in wanted}


def part_labels(states: State, gates: Gates) -> dict[str, str]:
    """What the parts of a state and the gates are called, by their names, where their types have `labels`."""
    return {**getattr(states, "labels", {}), **getattr(gates, "labels", {})}


def flatten(recordings: Iterable[Any]) -> list[Recording]:
    """The recordings of a stack in the order of `split_stack`."""
    return [part for one in recordings for part in ([one] if isinstance(one, Recording) else one)]


def _join(parts: list[State]) -> State:
    return type(parts[0])(*(torch.cat(values, 1) for values in zip(*parts, strict=True)))


def part_title(labels: Mapping[str, str], name: str) -> str:
    """A gate or a part of the state as pictures name it: "input gate i", or "i" where its type has no label."""
    return f"{labels[name]} {name}" if name in labels else name


class LayerRun(NamedTuple):
    """What a layer read and knew on a text."""

    layer: Recurrent
    x: Tensor  # (T, I)
    before: list[State]  # by the position of the step


@torch.no_grad()
def layer_run(network: Network, name: LayerName) -> LayerRun:
    """Runs the network and returns what one layer read, and the state before each step."""
    stack = network.stacks[name.stack].stack
    names = split_stack(name.stack, stack)
    layer = dict(names)[name]
    inputs, before = [], []
    for call in capture_calls(network, [name.stack])[name.stack]:
        recordings = dict(zip([one for one, _ in names], flatten(stack.record(call.x, call.state)), strict=True))
        x = call.x
        for below in range(name.layer):
            outputs = torch.cat([part.states.h for one, part in recordings.items() if one.layer == below], -1)
            x = outputs + x if stack.residual and x.is_floating_point() and x.shape == outputs.shape else outputs
        states = recordings[name].states
        initial = _initial(call.state, layer, name)
        after = [type(states)(*parts) for parts in zip(*(part.unbind(1) for part in states), strict=True)]
        before += [*after[1:], initial] if layer.reverse else [initial, *after[:-1]]
        inputs.append(x[0])
    return LayerRun(layer, torch.cat(inputs), before)


def _initial(state: Any, layer: Recurrent, name: LayerName) -> State:
    """The state that a layer began with, out of the state of its stack."""
    if state is None or state[name.layer] is None:
        return layer.initial_state(1)
    own = state[name.layer]
    return (own.backward if layer.reverse else own.forward) if hasattr(own, "backward") else own
