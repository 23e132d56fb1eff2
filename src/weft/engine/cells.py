"""Runs layers of cells on the engine: decides which cells it can run, and checks their tensors."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor
from torch._C._functorch import TransformType, is_functorch_wrapped_tensor
from torch.autograd.graph import saved_tensors_hooks

from weft.abi import Precision
from weft.cells import Cell, State
from weft.compiler import StepMasks, Untraceable, program_of
from weft.engine.embedding import Embedded
from weft.engine.functions import run
from weft.engine.heads import Pass, heads_of, join
from weft.engine.int8 import float_copy, is_quantized
from weft.engine.kept import kept_weights
from weft.engine.layers import Direction, Layers
from weft.engine.library import (
    EngineWarning,
    known_type,
    mapped,
    outside_of_transforms,
    transformed,
    usable,
    warn_if_missing,
)
from weft.engine.plan import Plan
from weft.engine.precision import keeps_half, precision_for
from weft.engine.prepared import PreparedLayers, Sources, keep_prepared, run_prepared
from weft.engine.tensors import as_int64, checked
from weft.errors import TensorError

_plans: weakref.WeakKeyDictionary[Cell, dict[tuple[bool, StepMasks], Plan | None]] = weakref.WeakKeyDictionary()
_refused: set[str] = set()
_PLAIN = StepMasks()


def plan_of(cell: Cell, noise: StepMasks = _PLAIN) -> Plan | None:
    """The cell's plan, made at its first use. None, with a warning, if its step cannot be traced; None without one
    while the core cannot read its weights.

    Every instance has its own, because a step may use constants of the instance, and one for training.
    """
    plans = _plans.get(cell)
    if plans is None:
        plans = _plans[cell] = {}
    key = (cell.training, noise)
    if key not in plans:
        if not readable(cell):
            return None
        try:
            # Inside inference_mode, operations do not reach the trace one by one. Hooks of the caller, such as
            # torch.utils.checkpoint's, must not see what the trace saves.
            hooks = (
                nullcontext() if transformed() else saved_tensors_hooks(_unchanged, _unchanged)
            )  # torch.func has none
            with torch.inference_mode(False), hooks, outside_of_transforms():
                plans[key] = Plan(program_of(_in_plain_memory(cell), noise), cell)
        except Untraceable as why:
            plans[key] = None
            if str(why) not in _refused:
                _refused.add(str(why))
                warnings.warn(f"{why}. It runs as plain torch.", EngineWarning, stacklevel=3)
    return plans[key]


def _in_plain_memory(cell: Cell) -> Cell:
    """The cell, or a copy of float weights, for the trace, which reads addresses and no values."""
    tensors = [*cell.parameters(), *cell.buffers()]
    if any(map(is_functorch_wrapped_tensor, tensors)):
        return copy.deepcopy(cell, {id(each): torch.empty(each.shape, dtype=each.dtype) for each in tensors})
    return float_copy(cell) if is_quantized(cell) else cell


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def readable(cell: Cell) -> bool:
    """Whether the core can read the cell's weights and projects its input as the cell does."""
    return known_type(cell.weight_ih) and type(cell).project is Cell.project


def run_layers(
    layers: Sequence[Sequence[Pass]],
    x: Tensor | Embedded,
    states: Sequence[Sequence[State]],
    lengths: Tensor | None,
    dropout: float = 0.0,
) -> tuple[Tensor, list[list[State]]] | None:
    """Runs layers over the same rows, with dropout between them. Each layer has one or more passes.

    Returns:
        The outputs of the last layer's passes side by side, (B, T, sum of H), and the final state of each pass; None
        if the engine cannot run them here.
    """
    if not dropout and (done := run_prepared(layers, x, states, lengths)):
        return done
    precision = precision_for([run.cell for layer in layers for run in layer])
    if precision is Precision.bfloat16 and isinstance(x, Tensor) and x.dtype is torch.bfloat16:
        x = x.float()  # as torch's own operations give it under autocast
    if torch.compiler.is_compiling():  # one layer at a time: torch compiles what is between them
        from weft.engine import compiled

        (passes,), (given,) = layers, states
        return compiled.run_layer(passes, materialize(x), given, lengths, precision)
    table = x if isinstance(x, Tensor) else x.parts[0].table  # represents all tables
    if not (usable() or mapped(TransformType.Vmap, TransformType.Grad)) or not table.is_cpu:
        warn_if_missing()
        return None
    if transformed():
        if dropout or precision is Precision.int8 or any(_has_masks(run) for layer in layers for run in layer):
            return None
        x = materialize(x)
    directions: list[list[Direction]] = []
    sources: list[Sources] = []
    kinds: list[list[tuple[type[State], int, int]]] = []  # the type of each state, its number of parts, heads
    flat: list[Tensor | None] = []
    sizes, by_id = x.shape, not table.is_floating_point()
    if len(sizes) != (2 if by_id else 3):
        raise TensorError(f"run_layers: x is {tuple(sizes)}", expected="(B, T, I), or token ids (B, T)")
    rows, steps, width = sizes[0], sizes[1], None if by_id else sizes[2]  # width: of what a layer reads
    for layer, given in zip(layers, states, strict=True):
        directions.append([])
        kinds.append([])
        for one, state_of_all in zip(layer, given, strict=True):
            cell = one.cell
            heads = heads_of(one, state_of_all, plan_of)
            if heads is None:
                return None
            kinds[-1].append((cell.state_type, heads[0].plan.states, len(heads)))
            kept = None if transformed() else kept_weights(cell)
            own = heads[0].plan.sources(cell, heads[0].parameters) if len(heads) == 1 else None
            sources.append(Sources(kept, own))
            for number, (plan, parameters, row_mask, step_mask, state) in enumerate(heads):
                if not known_type(parameters[0]):  # it was when the plan was made
                    return None
                check_kind(cell, parameters, state or (), table)
                inputs = parameters[0].shape[1]
                if width is not None and width != inputs:  # the layer's cell was replaced
                    raise TensorError(f"{type(cell).__name__}: x has {width} features", expected=f"{inputs} features")
                hidden = plan.hidden_size
                if row_mask is not None:
                    row_mask = checked("a mask of the rows", row_mask, parameters[0].dtype, (rows, hidden))
                if step_mask is not None:
                    shape = rows, steps, plan.states * hidden
                    step_mask = checked("a mask of the steps", step_mask, parameters[0].dtype, shape)
                weights = None
                if kept is not None and not (torch.is_grad_enabled() and any(p.requires_grad for p in parameters)):
                    at_ids = by_id and len(directions) == 1
                    weights = kept.pack(plan, number, parameters, by_id=at_ids, precision=precision)
                directions[-1].append(Direction(plan, inputs, one.reverse, row_mask, step_mask, weights))
                flat += parameters
                if state is None:
                    flat += [None] * plan.states
                else:
                    name, dtype = f"{type(cell).__name__}: a state", parameters[0].dtype
                    flat += [checked(name, part, dtype, (rows, hidden)) for part in state]
                    if len(state) != plan.states:
                        found = f"{type(cell).__name__}: a state of {len(state)} parts"
                        raise TensorError(found, expected=f"{plan.states}")
        width = sum([direction.plan.hidden_size for direction in directions[-1]])
    if lengths is not None:
        lengths = checked("lengths", as_int64(lengths), torch.int64, (rows,))
    if isinstance(x, Tensor):
        described = Layers(directions, dropout, precision=precision)
        outputs, last = run(described, x, lengths, flat)
        runs = [each for layer in layers for each in layer]
        if not dropout and not transformed() and not any(map(_has_masks, runs)) and _can_prepare(described, sources):
            keep_prepared(runs[0].cell, PreparedLayers(layers, described, sources, flat, by_id=by_id))
    elif (embedded := x.draw()) is not None:
        outputs, last = run(Layers(directions, dropout, embedded, precision=precision), None, lengths, flat)
    else:
        return None
    rest = iter(last)
    return outputs, [[join(kind, states, count, rest) for kind, states, count in layer] for layer in kinds]


def _can_prepare(layers: Layers, sources: Sequence[Sources]) -> bool:
    """Whether later calls may use the description: cells without heads, whose weights are known."""
    if len(sources) != sum(map(len, layers.directions)):
        return False
    if not torch.is_grad_enabled():
        return all(kept is not None or own is not None for kept, own in sources)
    # With gradients the parameters are wanted, and `run` changes some descriptions.
    changes = keeps_half() or layers.precision is Precision.int8
    return not changes and all(own is not None for _, own in sources)


def _has_masks(run: Pass) -> bool:
    return run.row_mask is not None or run.step_mask is not None


def materialize(x: Tensor | Embedded) -> Tensor:
    """A layer's input as a tensor."""
    return x if isinstance(x, Tensor) else x.tensor()


def check_kind(cell: Cell, parameters: Sequence[Tensor], state: Sequence[Tensor] = (), x: Tensor | None = None) -> None:
    """Raises unless all tensors have the parameters' type and are strided on the CPU."""
    given = [*parameters, *state]
    if x is not None and x.is_floating_point():
        given.append(x)
    if (wrong := first_of_another_kind(given)) is not None:
        fields = cell.state_type._fields if state else ()  # type: ignore[attr-defined]
        names = [*["a parameter"] * len(parameters), *fields, "x"]
        raise another_kind(type(cell).__name__, names[wrong], given[wrong], given[0])


def first_of_another_kind(given: Sequence[Tensor]) -> int | None:
    """The index of the first tensor that has another type than given[0], or is not strided on the CPU."""
    dtype, strided = given[0].dtype, torch.strided
    for number, tensor in enumerate(given):
        if tensor.dtype is not dtype or not tensor.is_cpu or tensor.layout is not strided:
            return number
    return None


def another_kind(owner: str, name: str, tensor: Tensor, wanted: Tensor) -> TensorError:
    found = f"{owner}: {name} is {tensor.dtype} on {tensor.device}"
    return TensorError(found, expected=f"{wanted.dtype} on cpu, as weight_ih is")


def check_lengths(name: str, lengths: Tensor, steps: int) -> None:
    if is_functorch_wrapped_tensor(lengths):
        return  # it has no values to look at; the core checks them
    every = lengths.tolist()
    if every and not (min(every) >= 0 and max(every) <= steps):
        raise TensorError(
            f"{name}: lengths run from {min(every)} to {max(every)}", expected=f"0 to {steps}, the number of steps in x"
        )
