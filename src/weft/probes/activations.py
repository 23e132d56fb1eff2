"""Gates and states: what every unit of every layer and direction computes at every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from weft.probes.layers import LayerName, find_layers, part_labels, record_layers, split_stack
from weft.probes.parts import get_network
from weft.probes.result import Array, ProbeResult, to_array
from weft.tasks.inspection import Network


@dataclass(frozen=True, eq=False)
class LayerActivations:
    """One direction of one layer.

    Attributes:
        name: The stack ("stack", "encoder", ...), the layer from 0 (the lowest, as in torch), and the direction.
        cell: The class of the cell.
        tokens: The T tokens it reads.
        gates: (T, H) of each gate, by its name in the cell's NamedTuple.
        states: (T, H) of each part of the state after each step: h, and c where the cell has one.
        labels: What gates and parts of the state are called, by their names: {"i": "input gate", ...}.
    """

    name: LayerName
    cell: str
    tokens: tuple[str, ...]
    gates: Mapping[str, Array]
    states: Mapping[str, Array]
    labels: Mapping[str, str]

    @property
    def units(self) -> int:
        """H"""
        return int(next(iter(self.states.values())).shape[1])


@dataclass(frozen=True, eq=False)
class Activations(ProbeResult):
    """The gates and states of a model on one text."""

    probe = "activations"

    layers: tuple[LayerActivations, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        for one in self.layers:
            for kind, parts in (("gate", one.gates), ("state", one.states)):
                for name, values in parts.items():
                    for position, token in enumerate(one.tokens):
                        where = {**one.name._asdict(), kind: name, "position": position, "token": token}
                        for unit, value in enumerate(values[position].tolist()):
                            yield {**where, "unit": unit, "value": value}


def activations(
    model: Any, text: str, *, stack: str | None = None, layer: int | None = None, direction: str | None = None
) -> Activations:
    """The gates and states of every layer and direction, of our own cells and of custom ones.

    Memory: 8 bytes for each of T tokens, H units and (gates + states) of each layer.

    Args:
        model: A loaded run: `weft.load("runs/mine")`.
        text: The text that the model reads.
        stack: Only the stack of this name: "encoder", "decoder", ...
        layer: Only this layer, from 0 (the lowest) or counted from the top: -1.
        direction: Only "forward" or "backward".

    Raises:
        WeftError: The model has no recurrent layers, or there is no such stack, layer or direction.
    """
    return read_activations(get_network(model, text), stack=stack, layer=layer, direction=direction)


def read_activations(
    network: Network, *, stack: str | None = None, layer: int | None = None, direction: str | None = None
) -> Activations:
    """`activations` of a network that is at hand."""
    names = find_layers(network, stack, layer, direction)
    cells = {
        name: type(part.cell).__name__
        for key, use in network.stacks.items()
        for name, part in split_stack(key, use.stack)
    }
    found = []
    for name, recording in record_layers(network, names).items():
        gates, states = (
            {key: to_array(value[0]) for key, value in part._asdict().items()}
            for part in (recording.gates, recording.states)
        )
        labels = part_labels(recording.states, recording.gates)
        found.append(LayerActivations(name, cells[name], network.stacks[name.stack].tokens, gates, states, labels))
    return Activations(tuple(found))
