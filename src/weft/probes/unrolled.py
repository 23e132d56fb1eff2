"""A network whose steps stay apart in the graph, so that gradients with respect to every state and gate exist.

Layers run over all steps at once, and their outputs are one tensor: a gradient with respect to it does not contain
what flows through later steps. Here every step is its own node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from weft.cells import Gates, State
from weft.engine import Embedded
from weft.nn import Bidirectional, BothDirections, Recurrent, Stack
from weft.probes.layers import BACKWARD, FORWARD, LayerName
from weft.tasks.inspection import Network

Nodes = dict[LayerName, list[tuple[State, Gates]]]  # of each layer its states and gates, step by step


def take_step(layer: Recurrent, x_proj: Tensor, state: State) -> tuple[State, Gates]:
    """One step of a layer after training; zoneout has its expected value."""
    new, gates = layer.cell.step(x_proj, state)
    if layer.zoneout:
        new = type(new)(*(layer.zoneout * a + (1 - layer.zoneout) * b for a, b in zip(state, new, strict=True)))
    return new, gates


@contextmanager
def unrolled(network: Network) -> Iterator[Nodes]:
    """Runs of the network inside this block append every step of one text to the nodes."""
    nodes: Nodes = {}

    def run_layer(name: LayerName, layer: Recurrent, x: Tensor, state: State) -> tuple[Tensor, State]:
        if state is None:
            state = layer.initial_state(1)
        projected, T = layer.cell.project(x), x.shape[1]
        kept: list[tuple[State, Gates]] = []
        for t in reversed(range(T)) if layer.reverse else range(T):
            state, gates = take_step(layer, projected[:, t], state)
            kept.append((state, gates))
        ordered = kept[::-1] if layer.reverse else kept
        nodes.setdefault(name, []).extend(ordered)
        return torch.stack([one.h for one, _ in ordered], 1), state

    def forward(key: str, stack: Stack) -> Any:
        def run(x: Any, state: Any = None, *, lengths: Tensor | None = None) -> tuple[Tensor, tuple[State, ...]]:
            x = x.tensor() if isinstance(x, Embedded) else x
            assert len(x) == 1, "one text at a time"
            last = []
            for number, (layer, before) in enumerate(
                zip(stack.layers, state or [None] * len(stack.layers), strict=True)
            ):
                if isinstance(layer, Bidirectional):
                    ahead, back = before or (None, None)
                    first, ahead = run_layer(LayerName(key, number, FORWARD), layer.forward_layer, x, ahead)
                    second, back = run_layer(LayerName(key, number, BACKWARD), layer.backward_layer, x, back)
                    outputs, after = torch.cat([first, second], -1), BothDirections(ahead, back)
                else:
                    assert isinstance(layer, Recurrent)
                    side = BACKWARD if layer.reverse else FORWARD
                    outputs, after = run_layer(LayerName(key, number, side), layer, x, before)
                residual = stack.residual and x.is_floating_point() and x.shape == outputs.shape
                x = outputs + x if residual else outputs
                last.append(after)
            return x, tuple(last)

        return run

    for key, use in network.stacks.items():
        use.stack.forward = forward(key, use.stack)  # type: ignore[method-assign]
    try:
        yield nodes
    finally:
        for use in network.stacks.values():
            del use.stack.forward
