"""The parts of a layer that run side by side: a cell with block-diagonal recurrent weights is several smaller cells.

The core runs each head as a pass of its own over the same rows, so no zero between the blocks is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from weft.cells import Cell, State
from weft.compiler import StepMasks
from weft.engine.int8 import is_quantized
from weft.engine.library import outside_of_transforms
from weft.engine.plan import Plan


class Pass(NamedTuple):
    """A cell over the rows in one direction, with its regularization and the masks for it."""

    cell: Cell
    reverse: bool
    noise: StepMasks = StepMasks()
    row_mask: Tensor | None = None  # (B, H)
    step_mask: Tensor | None = None  # (B, T, states * H)


class Head(NamedTuple):
    """What the core runs as one pass, a head or a whole cell: plan, parameters, and masks and state of its units."""

    plan: Plan
    parameters: list[Tensor]
    row_mask: Tensor | None
    step_mask: Tensor | None
    state: State  # None: zeros


def heads_of(run: Pass, state: State, plan_of: Callable[[Cell, StepMasks], Plan | None]) -> list[Head] | None:
    """A pass as the core runs it: one for the whole cell, or one for each head. None if its cell has no plan."""
    cell = run.cell
    # The int8 rounding of h has one scale for all units, so quantized heads stay together.
    kind = vars(type(cell)).get("head_type")  # not inherited: a subclass may have another step
    if kind is not None and cell.heads > 1 and not is_quantized(cell):
        plan = plan_of(_head(kind, cell.hidden_size // cell.heads), run.noise)
        return None if plan is None else _heads(run, cell, state, plan)
    plan = plan_of(cell, run.noise)
    return None if plan is None else [Head(plan, plan.parameters(cell), run.row_mask, run.step_mask, state)]


def _heads(run: Pass, cell: Cell, state: State, plan: Plan) -> list[Head]:
    heads = cell.heads
    row_masks: list[Tensor | None] = [None] * heads
    step_masks: list[Tensor | None] = [None] * heads
    states: list[State] = [None] * heads
    if run.row_mask is not None:
        row_masks = [mask.contiguous() for mask in run.row_mask.chunk(heads, -1)]
    if run.step_mask is not None:
        grouped = run.step_mask.view(*run.step_mask.shape[:2], plan.states, heads, -1)
        step_masks = [mask.flatten(-2) for mask in grouped.unbind(-2)]
    if state is not None:
        states = list(zip(*(part.chunk(heads, -1) for part in state), strict=True))
    parts = zip(cell.head_parameters(), row_masks, step_masks, states, strict=True)
    return [Head(plan, [parameters[name] for name in plan.names], *rest) for parameters, *rest in parts]


def join(kind: type[State], states: int, heads: int, last: Iterator[Tensor]) -> State:
    """The final state of a cell from those of its parts."""
    each = [list(islice(last, states)) for _ in range(heads)]
    return kind(*(each[0] if heads == 1 else [torch.cat(parts, -1) for parts in zip(*each, strict=True)]))


@cache
def _head(kind: type[Cell], size: int) -> Cell:
    """A cell whose program is that of a head; its weights are not used."""
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]), outside_of_transforms():
        return kind(1, size, device="cpu", dtype=torch.float32)
