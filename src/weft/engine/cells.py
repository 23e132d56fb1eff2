"""Cells and layers to the engine: who may run on it, checks in words, and states as the cell names them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft.cells import Cell, State
from weft.engine.back import run
from weft.engine.library import library, say_once_if_missing
from weft.engine.loop import Direction
from weft.engine.plan import Plan
from weft.errors import WeftError
from weft.program import Untraceable, program_of

_plans: weakref.WeakKeyDictionary[Cell, dict[bool, Plan | None]] = weakref.WeakKeyDictionary()
_refused: set[str] = set()


def plan_of(cell: Cell) -> Plan | None:
    """The cell's plan, made at its first use; None, with one line to stderr, where its step cannot be traced.

    One for each instance, because a step may use numbers that belong to the instance, and for training or not.
    """
    plans = _plans.get(cell)
    if plans is None:
        plans = _plans[cell] = {}
    if cell.training not in plans:
        try:
            plans[cell.training] = Plan(program_of(cell))
        except Untraceable as why:
            plans[cell.training] = None
            if str(why) not in _refused:
                _refused.add(str(why))
                print(f"weft: {why}. It runs as plain torch.", file=sys.stderr)
    return plans[cell.training]


def takes(x: Tensor, *cells: Cell) -> bool:
    """Whether the engine runs these cells on this input."""
    if library() is None:
        say_once_if_missing()
        return False
    for cell in cells:
        weight = cell.weight_ih
        if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64) or plan_of(cell) is None:
            return False
    return x.device.type == "cpu"


def run_cells(
    cells: Sequence[tuple[Cell, bool]], x: Tensor, states: Sequence[State], lengths: Tensor | None
) -> tuple[Tensor, list[State]]:
    """Cells over the same rows, each forward or (True) in reverse: outputs side by side, and each one's last state."""
    directions, parameters = [], []
    for (cell, reverse), state in zip(cells, states, strict=True):
        plan = plan_of(cell)
        assert plan is not None
        directions.append(Direction(plan, reverse))
        parameters.append(plan.parameters(cell))
        _check(cell, parameters[-1], x, state)
    if lengths is not None:
        lengths = lengths.to(device="cpu", dtype=torch.int64).contiguous()
    outputs, last = run(directions, x, lengths, parameters, states)
    return outputs, [cell.state_type(*parts) for (cell, _), parts in zip(cells, last, strict=True)]


def _check(cell: Cell, parameters: Sequence[Tensor], x: Tensor, state: State) -> None:
    name, dtype = type(cell).__name__, cell.weight_ih.dtype
    given: list[tuple[str, Any]] = [("x", x)] if x.is_floating_point() else []
    if state is not None:
        fields = cell.state_type._fields  # type: ignore[attr-defined]
        if len(state) != len(fields):
            raise WeftError(f"{name}: the state has {len(state)} parts", expected=f"{len(fields)}: {', '.join(fields)}")
        given += zip(fields, state, strict=True)
        for field, part in zip(fields, state, strict=True):
            if tuple(part.shape) != (x.shape[0], cell.hidden_size):
                raise WeftError(
                    f"{name}: state {field} is {tuple(part.shape)}", expected=f"({x.shape[0]}, {cell.hidden_size})"
                )
    for what, tensor in given:
        if tensor.dtype != dtype or tensor.device.type != "cpu":
            raise WeftError(
                f"{name}: {what} is {tensor.dtype} on {tensor.device}", expected=f"{dtype} on cpu, as the weights are"
            )
    for parameter in parameters:
        if parameter.dtype != dtype or parameter.device.type != "cpu":
            raise WeftError(f"{name}: a parameter is {parameter.dtype} on {parameter.device}", expected=f"{dtype} on cpu")
