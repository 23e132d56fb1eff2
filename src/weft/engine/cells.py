"""Cells and layers to the engine: who may run on it, checks in words, and states as the cell names them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from weft.cells import Cell, State
from weft.engine.library import library, say_once_if_missing
from weft.engine.plan import Plan
from weft.engine.run import Direction, layers_of, run
from weft.errors import WeftError
from weft.program import Noise, Untraceable, program_of

_plans: weakref.WeakKeyDictionary[Cell, dict[tuple[bool, Noise], Plan | None]] = weakref.WeakKeyDictionary()
_refused: set[str] = set()
_PLAIN = Noise()


class Pass(NamedTuple):
    """A cell over the rows in one direction, with its noise and the masks for it."""

    cell: Cell
    reverse: bool
    noise: Noise = _PLAIN
    row_mask: Tensor | None = None  # (B, H)
    step_mask: Tensor | None = None  # (B, T, states * H)


def plan_of(cell: Cell, noise: Noise = _PLAIN) -> Plan | None:
    """The cell's plan, made at its first use; None, with one line to stderr, where its step cannot be traced.

    One for each instance, because a step may use numbers that belong to the instance, and for training or not.
    """
    plans = _plans.get(cell)
    if plans is None:
        plans = _plans[cell] = {}
    key = (cell.training, noise)
    if key not in plans:
        try:
            plans[key] = Plan(program_of(cell, noise), cell)
        except Untraceable as why:
            plans[key] = None
            if str(why) not in _refused:
                _refused.add(str(why))
                print(f"weft: {why}. It runs as plain torch.", file=sys.stderr)
    return plans[key]


def takes(x: Tensor, *passes: Pass) -> bool:
    """Whether the engine runs these passes on this input."""
    if torch.compiler.is_compiling():
        from weft.engine import compiled

        return compiled.takes(x, passes)
    if library() is None:
        say_once_if_missing()
        return False
    if not x.is_cpu or torch._C._functorch.peek_interpreter_stack() is not None:
        return False  # inside torch.func's transforms tensors have no memory of their own
    return all(readable(run.cell) and plan_of(run.cell, run.noise) is not None for run in passes)


def readable(cell: Cell) -> bool:
    """Whether the core can read the cell's weights and projects its input as the cell does."""
    weight = cell.weight_ih
    known = weight.is_cpu and weight.dtype in (torch.float32, torch.float64)
    return known and type(cell).project is Cell.project


def run_layers(
    layers: Sequence[Sequence[Pass]],
    x: Tensor,
    states: Sequence[Sequence[State]],
    lengths: Tensor | None,
    dropout: float = 0.0,
) -> tuple[Tensor, list[list[State]]]:
    """Layers of passes over the same rows, each layer reading what the one below gives, less what `dropout` takes:
    outputs of the last, side by side, (B, T, sum of H), and each pass's last state."""
    if torch.compiler.is_compiling():  # a layer at a time: what stands between them is the compiler's
        from weft.engine import compiled

        (passes,), (given,) = layers, states
        outputs, last = compiled.run_passes(passes, x, given, lengths)
        return outputs, [last]
    directions: list[list[Direction]] = []
    parameters, flat_states = [], []
    for layer, given in zip(layers, states, strict=True):
        directions.append([])
        for (cell, reverse, noise, row_mask, step_mask), state in zip(layer, given, strict=True):
            plan = plan_of(cell, noise)
            assert plan is not None
            directions[-1].append(Direction(plan, reverse, row_mask, step_mask))
            parameters.append(plan.parameters(cell))
            flat_states.append(state)
            _check(cell, parameters[-1], x, state)
    if lengths is not None:
        lengths = lengths.to(device="cpu", dtype=torch.int64).contiguous()
    outputs, last = run(layers_of(directions, dropout), x, lengths, parameters, flat_states)
    parts = iter(last)
    return outputs, [[each.cell.state_type(*next(parts)) for each in layer] for layer in layers]


def _check(cell: Cell, parameters: Sequence[Tensor], x: Tensor, state: State) -> None:
    """What the core reads must be of one kind and here; shapes are the layer's to check."""
    dtype = parameters[0].dtype
    given = [*parameters, *(state or ()), *([x] if x.is_floating_point() else [])]
    names = ["a parameter"] * len(parameters)
    names += [] if state is None else cell.state_type._fields  # type: ignore[attr-defined]
    for name, tensor in zip([*names, "x"], given, strict=False):
        if tensor.dtype is not dtype or not tensor.is_cpu or tensor.layout is not torch.strided:
            raise WeftError(
                f"{type(cell).__name__}: {name} is {tensor.dtype} on {tensor.device}",
                expected=f"{dtype} on cpu, as weight_ih is",
            )
