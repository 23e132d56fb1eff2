"""Gates and states: what every unit of every layer and direction computes at every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from weft.errors import WeftError
from weft.pictures.figures import DIVERGING, SEQUENTIAL, Array, ColouredText, Figure, HeatMap
from weft.probes.layers import (
    LayerName,
    OnlyDirection,
    OnlyLayer,
    OnlyPart,
    OnlyStack,
    find_layers,
    part_labels,
    part_title,
    record_layers,
)
from weft.probes.parts import get_network
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, rows_by_step, to_array
from weft.tasks.operation import Option

OnlyUnit = Annotated[int | None, Option("Only this unit, from 0.", 0)]
UnitOrder = Annotated[
    Literal["number", "variance", "similarity"],
    Option("Units by number, variance over the text, or similarity: those beside each other behave alike."),
]
MostUnits = Annotated[int | None, Option("Only so many units, the first in this order.", 1)]


@dataclass(frozen=True, eq=False)
class LayerActivations:
    """One direction of one layer.

    Attributes:
        name: The stack ("stack", "encoder", ...), the layer from 0 (the lowest, as in torch), and the direction.
        cell: The class of the cell.
        steps: What each of the T steps is, such as the token that is read.
        gates: (T, H) of each gate, by its name in the cell's NamedTuple.
        states: (T, H) of each part of the state after each step: h, and c where the cell has one.
        labels: What gates and parts of the state are called, by their names: {"i": "input gate", ...}.
    """

    name: LayerName
    cell: str
    steps: tuple[str, ...]
    gates: Mapping[str, Array]
    states: Mapping[str, Array]
    labels: Mapping[str, str]

    @property
    def units(self) -> int:
        """H"""
        return int(next(iter(self.states.values())).shape[1])

    def figure(self, name: str, values: Array, unit: int | None, order: str, most: int | None) -> Figure:
        """Units of a gate or a part of the state over time; or the text, coloured by one of them."""
        if unit is not None and not 0 <= unit < self.units:
            raise WeftError(f"{self.name} has no unit {unit}", expected=f"0 to {self.units - 1}")
        shown = values if unit is None else values[:, unit]
        signed = bool((shown < 0).any())
        scale = DIVERGING if signed else SEQUENTIAL
        called = part_title(self.labels, name)
        title = f"{called[:1].upper() + called[1:] if len(called) > 1 else called} of"  # single letters are names
        if unit is not None:
            return ColouredText(f"{title} unit {unit}, {self.name} ({self.cell})", self.steps, shown, name, scale)
        limits = None if signed or values.max() > 1 else (0.0, 1.0)
        units = order_units(values, order)[:most]
        by_number = order == "number" and most is None
        return HeatMap(
            f"{title} {self.name} ({self.cell})",
            values.T if by_number else values.T[units],
            () if by_number else tuple(map(str, units)),
            columns=self.steps,
            label=name,
            row_title="units",
            scale=scale,
            limits=limits,
        )


@dataclass(frozen=True, eq=False)
class Activations(ProbeResult):
    """The gates and states of a model on one text."""

    probe = "activations"

    layers: tuple[LayerActivations, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        for one in self.layers:
            for kind, parts in (("gate", one.gates), ("state", one.states)):
                for name, values in parts.items():
                    for row in rows_by_step(one.steps, values=values):
                        units = row.pop("values")
                        for unit, value in enumerate(units):
                            yield {**one.name._asdict(), kind: name, **row, "unit": unit, "value": value}

    def figures(self) -> list[Figure]:
        return [*self.gate_figures(), *self.state_figures()]

    def gate_figures(
        self, *, gate: OnlyPart = None, unit: OnlyUnit = None, order: UnitOrder = "number", most: MostUnits = None
    ) -> list[Figure]:
        """Gates of every layer as units over time; with `unit`, the text coloured by that unit."""
        return self._figures("gate", [one.gates for one in self.layers], gate, unit, order, most)

    def state_figures(
        self, *, gate: OnlyPart = None, unit: OnlyUnit = None, order: UnitOrder = "number", most: MostUnits = None
    ) -> list[Figure]:
        """Parts of the state of every layer in the same way."""
        return self._figures("part of the state", [one.states for one in self.layers], gate, unit, order, most)

    def _figures(
        self,
        kind: str,
        parts: Sequence[Mapping[str, Array]],
        wanted: str | None,
        unit: int | None,
        order: str,
        most: int | None,
    ) -> list[Figure]:
        known = dict.fromkeys(name for one in parts for name in one)
        if wanted is not None and wanted not in known:
            raise WeftError(f"there is no {kind} {wanted!r}", expected=f"one of: {', '.join(known)}")
        return [
            layer.figure(name, values, unit, order, most)
            for layer, part in zip(self.layers, parts, strict=True)
            for name, values in part.items()
            if wanted in (None, name)
        ]


def activations(
    model: Any, text: str = "", *, stack: OnlyStack = None, layer: OnlyLayer = None, direction: OnlyDirection = None
) -> Activations:
    """The gates and states of every layer and direction, of our own cells and of custom ones.

    Memory: 8 bytes for each of T tokens, H units and (gates + states) of each layer.

    Args:
        model: A loaded run, `weft.load("runs/mine")`, or a `weft.tasks.inspection.Network`, which has read its text.
        text: The text that the model reads.
        stack: Only the stack of this name: "encoder", "decoder", ...
        layer: Only this layer, from 0 (the lowest) or counted from the top: -1.
        direction: Only "forward" or "backward".

    Raises:
        WeftError: The model has no recurrent layers, or there is no such stack, layer or direction.
    """
    network, found = get_network(model, text), []
    for name, run in record_layers(network, find_layers(network, stack, layer, direction)).items():
        gates, states = (
            {key: to_array(value) for key, value in part._asdict().items()} for part in (run.gates, run.states)
        )
        cell, labels = type(run.layer.cell).__name__, part_labels(run.states, run.gates)
        found.append(LayerActivations(name, cell, network.stacks[name.stack].steps, gates, states, labels))
    return Activations(tuple(found))


def order_units(values: Array, order: str) -> list[int]:
    """The numbers of units, (T, H), in an order.

    By similarity, the first is the one that varies most, and each next one the unit left with the highest correlation.
    """
    if order == "number":
        return list(range(values.shape[1]))
    if order not in ("variance", "similarity"):
        raise WeftError(f"the order of units is {order!r}", expected="one of: number, variance, similarity")
    spread = values.std(0)
    ranked: list[int] = np.argsort(-(spread**2), kind="stable").tolist()
    if order == "variance":
        return ranked
    centred = (values - values.mean(0)) / np.where(spread > 0, spread, 1)
    alike = centred.T @ centred
    found, left = ranked[:1], np.ones(len(ranked), dtype=bool)
    while len(found) < len(ranked):
        left[found[-1]] = False
        found.append(int(np.where(left, alike[found[-1]], -np.inf).argmax()))
    return found


GATES_PROBE = Probe("gates", "every gate of each unit at each step", "network", activations, Activations.gate_figures)
STATES_PROBE = Probe(
    "states", "every part of the state of each unit at each step", "network", activations, Activations.state_figures
)
