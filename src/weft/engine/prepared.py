"""Calls of layers that are like an earlier one: a loop that takes one step in each call should not wait for Python.

The first call of some passes leaves its description here, and without gradients its records. Later ones write the
addresses that differ into a copy of the records. Everything that could have changed is compared with what it was; where
anything differs, or is not plainly right, the general way (engine/cells.py) runs, checks it and explains it.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from weft import abi
from weft.abi import Precision
from weft.cells import Cell, State
from weft.engine.embedding import Embedded
from weft.engine.functions import run
from weft.engine.heads import Pass
from weft.engine.kept import KeptWeights, changes
from weft.engine.layers import Layers
from weft.engine.library import check, loaded_library, transformed
from weft.engine.memory import empty
from weft.engine.precision import current_precision, keeps_half
from weft.engine.threads import thread_count

_FIELDS = {name: number for number, name in enumerate(abi.RunCall._fields)}
_THREADS, _ROWS, _STEPS, _LENGTHS, _IDS, _X, _MEMORY, _OUTPUTS = (
    _FIELDS[name] for name in ("threads", "rows", "steps", "lengths", "ids", "x", "memory", "outputs")
)
_new: Any = tuple.__new__  # makes a NamedTuple faster than its constructor
_strided = torch.strided


class Sources(NamedTuple):
    """Where a cell has its weights."""

    kept: KeptWeights | None
    own: list[tuple[dict[str, Any], str, Tensor]] | None  # its parameters in the order of its plan, if all are its own


class PreparedLayers:
    """Passes without masks, for a type of input; the states of a pass are those of its cell."""

    def __init__(
        self,
        passes: Sequence[Sequence[Pass]],
        layers: Layers,
        sources: Sequence[Sources],
        flat: Sequence[Tensor | None],
        *,
        by_id: bool,
    ) -> None:
        self.cells = [
            [(weakref.ref(run.cell), run.cell.training, run.reverse, run.noise) for run in layer] for layer in passes
        ]
        self.layers = layers  # alive: the addresses of plans and packed weights are in the records
        self.changes = changes()
        directions = [direction for layer in layers.directions for direction in layer]
        self.kept = [  # where something was packed, or promised: other writes are seen by who reads the parameters
            (kept, kept.packed)
            for (kept, _), direction in zip(sources, directions, strict=True)
            if kept is not None and (direction.weights is not None or kept.promised is not None)
        ]
        self.parameters = [[tensor for *_, tensor in own or ()] for _, own in sources]
        every = [each for _, own in sources for each in own or ()]
        self.own = [(values, key, tensor, tensor.data_ptr(), tensor.shape) for values, key, tensor in every]
        self.precision = None if layers.precision is Precision.int8 else layers.precision
        first = next(each for each in flat if each is not None)
        self.dtype = first.dtype
        self.by_id, self.x_dtype = by_id, torch.int64 if by_id else first.dtype
        self.inputs, self.width = layers.directions[0][0].inputs, layers.width
        self.inside = layers.inside(1)
        self.hidden = [direction.plan.hidden_size for direction in directions]
        self.kinds = [  # of the states of each pass: type and number of parts
            [(run.cell.state_type, direction.plan.states) for run, direction in zip(*both, strict=True)]
            for both in zip(passes, layers.directions, strict=True)
        ]
        # What differs between calls is 0 here: the places of its addresses follow from the order of the records.
        call = [0] * len(_FIELDS)
        call[_FIELDS["is_double"]] = int(first.dtype is torch.float64)
        call[_FIELDS["precision"]], call[_FIELDS["layers"]] = layers.precision, layers.count
        template, given = [*call, *layers.records], iter(flat)
        self.before: list[range] = []  # of each direction, the places of its states
        for direction in directions:
            plan, packed = direction.plan, direction.weights is not None
            for _ in plan.names:
                parameter = next(given)
                template.append(0 if packed else parameter.data_ptr())  # type: ignore[union-attr]
            self.before.append(range(len(template), len(template) + plan.states))
            for _ in range(plan.states):
                next(given)
                template.append(0)
        self.after = len(template)
        self.template = array("q", [*template, *[0] * len(layers.states)])
        self.function = loaded_library().weft_forward

    def fits(self, passes: Sequence[Sequence[Pass]], x: Tensor) -> bool:
        """Whether these passes are those that were prepared, with the same weights and for an input of this kind."""
        if x.dtype is not self.x_dtype or not x.is_cpu or x.layout is not _strided or len(passes) != len(self.cells):
            return False
        for layer, cells in zip(passes, self.cells):  # noqa: B905 - of the same length
            if len(layer) != len(cells):
                return False
            for (cell, reverse, noise, row_mask, step_mask), before in zip(layer, cells):  # noqa: B905
                known, training, was_reverse, known_noise = before
                if known() is not cell or cell.training != training or reverse != was_reverse or noise != known_noise:
                    return False
                if row_mask is not None or step_mask is not None:
                    return False
        if self.precision is not None and current_precision() is not self.precision:
            return False
        shape = x.shape
        right = len(shape) == 2 if self.by_id else len(shape) == 3 and shape[2] == self.inputs
        if torch.is_grad_enabled() and keeps_half():
            return False
        return right and self._has_same_weights() and not transformed()

    def _has_same_weights(self) -> bool:
        if self.changes != changes():
            return False
        for kept, packed in self.kept:
            if kept.packed is not packed or not kept.is_current():
                return False
        for values, key, tensor, address, shape in self.own:
            if values.get(key) is not tensor or tensor.data_ptr() != address or tensor.shape != shape:
                return False
            if tensor.dtype is not self.dtype or not tensor.is_contiguous():
                return False
        return True

    def _states(self, states: Sequence[Sequence[State]], rows: int) -> list[Sequence[Tensor] | None] | None:
        """The state of each pass; None if one is not plainly right."""
        found: list[Sequence[Tensor] | None] = []
        dtype = self.dtype
        for layer, kinds in zip(states, self.kinds):  # noqa: B905
            for state, (kind, _) in zip(layer, kinds):  # noqa: B905
                if state is not None:
                    if type(state) is not kind:
                        return None
                    shape, parts = (rows, self.hidden[len(found)]), cast(Sequence[Tensor], state)
                    for part in parts:
                        if type(part) is not Tensor or part.dtype is not dtype or part.shape != shape:
                            return None
                        if not part.is_cpu or not part.is_contiguous():
                            return None
                found.append(state)
        return found

    def run(
        self, x: Tensor, states: Sequence[Sequence[State]], lengths: Tensor | None
    ) -> tuple[Tensor, list[list[State]]] | None:
        """As engine.run_layers, for passes and an input that fit. None if a state or the lengths do not."""
        rows, steps = x.shape[0], x.shape[1]
        before = self._states(states, rows)
        if before is None or (lengths is not None and not _are_right(lengths, rows, steps)):
            return None
        if torch.is_grad_enabled():
            flat: list[Tensor | None] = []
            for parameters, state, places in zip(self.parameters, before, self.before):  # noqa: B905
                flat += parameters
                flat += [None] * len(places) if state is None else state
            outputs, last = run(self.layers, x, lengths, flat)
            following = iter(last)
            return outputs, [[_new(kind, islice(following, count)) for kind, count in kinds] for kinds in self.kinds]
        record = self.template[:]
        for state, places in zip(before, self.before):  # noqa: B905
            if state is not None:
                for place, part in zip(places, state):  # noqa: B905
                    record[place] = part.data_ptr()
        if lengths is not None:
            record[_LENGTHS] = lengths.data_ptr()
        place, number, nested, dtype = self.after, 0, list[list[State]](), self.dtype
        for kinds in self.kinds:
            of_layer = []
            for kind, count in kinds:
                parts = [torch.empty((rows, self.hidden[number]), dtype=dtype) for _ in range(count)]
                for part in parts:
                    record[place] = part.data_ptr()
                    place += 1
                of_layer.append(_new(kind, parts))
                number += 1
            nested.append(of_layer)
        if not x.is_contiguous():
            x = x.contiguous()
        outputs = empty((rows, steps, self.width), dtype)
        self._call(record, x, rows, steps, outputs)
        return outputs, nested

    def run_as_torch(
        self, x: Tensor, states: Sequence[Tensor] | None, *, batch_first: bool
    ) -> tuple[Tensor, list[Tensor]] | None:
        """The same for rows of full length, as torch's layers have them: x (T, B, I), unless the batch is first, states
        of all directions in one tensor, (directions, B, H)."""
        shape, record = x.shape, self.template[:]
        rows, steps = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
        directions, hidden = len(self.hidden), self.hidden[0]
        dtype, of_state = self.dtype, (directions, rows, hidden)
        if rows == 0 or steps == 0 or self.by_id:
            return None
        apart = rows * hidden * dtype.itemsize
        parts = len(self.before[0])
        if states is not None:
            if len(states) != parts:
                return None
            for part, given in enumerate(states):
                if given.dtype is not dtype or given.shape != of_state or not given.is_cpu:
                    return None
                if not given.is_contiguous():
                    return None
                address = given.data_ptr()
                for places in self.before:
                    record[places[part]] = address
                    address += apart
        last = [torch.empty(of_state, dtype=dtype) for _ in range(parts)]
        for part, tensor in enumerate(last):
            address = tensor.data_ptr()
            for place in range(self.after + part, len(record), parts):
                record[place] = address
                address += apart
        turned = not batch_first and rows > 1 and steps > 1
        if turned:
            x = x.transpose(0, 1)
        if not x.is_contiguous():
            x = x.contiguous()
        outputs = empty((rows, steps, self.width) if turned else (*shape[:2], self.width), dtype)
        self._call(record, x, rows, steps, outputs)
        return outputs.transpose(0, 1).contiguous() if turned else outputs, last

    def _call(self, record: array[int], x: Tensor, rows: int, steps: int, outputs: Tensor) -> None:
        """Runs the core on a copy of the template that has the addresses of all states."""
        record[_THREADS], record[_ROWS], record[_STEPS] = thread_count(), rows, steps
        record[_IDS if self.by_id else _X], record[_OUTPUTS] = x.data_ptr(), outputs.data_ptr()
        if self.inside:
            memory = empty((self.inside * rows * steps,), self.dtype)
            record[_MEMORY] = memory.data_ptr()
        if code := self.function(record.buffer_info()[0]):
            check(code)


def _are_right(lengths: Tensor, rows: int, steps: int) -> bool:
    if (
        lengths.dtype is not torch.int64
        or not lengths.is_cpu
        or lengths.shape != (rows,)
        or not lengths.is_contiguous()
    ):
        return False
    every = lengths.tolist()
    return not every or (min(every) >= 0 and max(every) <= steps)


# By the first cell: without gradients and with them.
_prepared: weakref.WeakKeyDictionary[Cell, list[PreparedLayers | None]] = weakref.WeakKeyDictionary()


def prepared_layers(cell: Cell) -> PreparedLayers | None:
    """The passes that were prepared last in this mode of autograd and begin with this cell."""
    prepared = _prepared.get(cell)
    return None if prepared is None else prepared[torch.is_grad_enabled()]


def keep_prepared(cell: Cell, prepared: PreparedLayers) -> None:
    """Leaves prepared passes, which begin with this cell, for later calls."""
    _prepared.setdefault(cell, [None, None])[torch.is_grad_enabled()] = prepared


def run_prepared(
    layers: Sequence[Sequence[Pass]], x: Tensor | Embedded, states: Sequence[Sequence[State]], lengths: Tensor | None
) -> tuple[Tensor, list[list[State]]] | None:
    """As engine.run_layers without dropout, for a call like an earlier one; None if it is none or not plainly right."""
    if torch.compiler.is_compiling() or type(x) is not Tensor:
        return None
    ready = prepared_layers(layers[0][0].cell)
    return ready.run(x, states, lengths) if ready is not None and ready.fits(layers, x) else None
