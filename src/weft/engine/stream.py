"""A stack of cells and an output layer, one step at a time for a few rows, with weights that are packed once.

It is made for generation. Weights are copied, in the precision chosen then, when the stream is made; make a new one
when they change.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, empty, empty_like

from weft import abi
from weft.cells import Cell, State
from weft.engine.cells import check_kind, plan_of, readable
from weft.engine.kept import PackedWeights, kept_weights
from weft.engine.library import check, loaded_library, usable
from weft.engine.plan import Plan
from weft.engine.precision import precision_for
from weft.engine.tensors import address, checked
from weft.engine.threads import thread_count
from weft.errors import TensorError, WeftError

_step_call, _sample_call = abi.values_of(abi.StreamStepCall), abi.packer(abi.SampleCall)
_new: Any = tuple.__new__  # makes a NamedTuple faster than its constructor


class SamplingOptions(Protocol):
    """How tokens are chosen: what a `weft.Sample` has, which explains and checks it."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def typical_p(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...


class StreamLayers(NamedTuple):
    """What a stream is made of."""

    cells: Sequence[Cell]
    weight: Tensor
    bias: Tensor | None


class Stream:
    """`rows` rows through `cells`, lowest first, and, if given, an output layer: `weight` (V, H) and `bias` (V).

    The first cell reads token ids, (rows,), or with `ids=False` features, (rows, I). A state is a tuple with one state
    for each cell, as a Stack has it.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        rows: int = 1,
        ids: bool = True,
    ) -> None:
        if not can_stream(cells):
            raise WeftError("Stream: the engine cannot run these cells", expected="cells on the CPU that it can trace")
        _check_sizes(cells, weight, bias)
        self.cells, self.rows, self.ids = tuple(cells), rows, ids
        like = cells[0].weight_ih
        self._dtype = like.dtype
        self._plans = list[Plan]()
        precision, weights = precision_for(cells), list[PackedWeights]()
        for cell in cells:
            plan = plan_of(cell)
            assert plan is not None
            given = plan.parameters(cell)
            check_kind(cell, [like, *given])
            kept, by_id = kept_weights(cell), ids and not weights
            if kept is None:
                weights.append(PackedWeights(plan, given, by_id=by_id, precision=precision))
            else:
                weights.append(kept.pack(plan, 0, given, by_id=by_id, precision=precision))
            self._plans.append(plan)
        self.output_size = cells[-1].hidden_size if weight is None else weight.shape[0]
        if weight is not None:
            vocabulary, hidden = weight.shape
            weight = checked("Stream: weight", weight.detach().to(like.dtype), like.dtype, (vocabulary, hidden))
            if bias is not None:
                bias = checked("Stream: bias", bias.detach().to(like.dtype), like.dtype, (vocabulary,))
        core, handle = loaded_library(), ctypes.c_void_p()
        call = abi.StreamCall(
            is_double=like.dtype is torch.float64,
            rows=rows,
            by_id=ids,
            layers=len(cells),
            vocabulary=0 if weight is None else weight.shape[0],
            weight=address(weight),
            bias=address(bias),
            precision=precision,
            stream=ctypes.addressof(handle),
        )
        records = [each.address for each in weights]  # the core shares them
        check(core.weft_new_stream(array("q", [*call, *records]).tobytes()))
        assert handle.value is not None
        self._address: int = handle.value
        weakref.finalize(self, core.weft_free_stream, self._address)
        self._states: list[tuple[Any, int, int, torch.Size]] = []  # type, range of its parts, their shape
        self._parts = 0
        for cell, plan in zip(cells, self._plans, strict=True):
            shape = torch.Size((rows, cell.hidden_size))
            self._states.append((cell.state_type, self._parts, self._parts + plan.states, shape))
            self._parts += plan.states
        self._h = None if weight is not None else self._states[-1][1]  # the part that is the result
        self._x_shape = torch.Size((rows,) if ids else (rows, cells[0].input_size))
        self._x_dtype = torch.int64 if ids else like.dtype
        self._known: tuple[Any, list[Tensor]] = None, []  # the last step's state, which needs no check
        # A step of a small model takes as long as a few lines of Python, so all that can be is precomputed.
        self._step, self._pack = (
            core.weft_stream_step,
            struct.Struct(f"{len(abi.StreamStepCall._fields) + 2 * self._parts}q").pack,
        )

    def start(self) -> tuple[State, ...]:
        return tuple(cell.initial_state(self.rows) for cell in self.cells)

    def step(self, x: Tensor, state: tuple[State, ...]) -> tuple[Tensor, tuple[State, ...]]:
        """One step: logits (rows, V), or without an output layer the last cell's h, and the next state."""
        if x.dtype is not self._x_dtype or x.shape != self._x_shape or not x.is_contiguous() or not x.is_cpu:
            x = self._as_input(x)
        known, before = self._known
        if state is not known:
            before = self._flat(state)
        after = [empty_like(part) for part in before]
        result = after[self._h] if self._h is not None else empty(self.rows, self.output_size, dtype=self._dtype)
        call = _step_call(self._address, thread_count(), x.data_ptr(), result.data_ptr())
        if code := self._step(self._pack(*call, *[part.data_ptr() for part in before + after])):
            check(code)
        nested = tuple([_new(kind, after[first:last]) for kind, first, last, _ in self._states])
        self._known = nested, after
        return result, nested

    def sample(
        self,
        ids: Tensor,
        state: tuple[State, ...],
        uniforms: Tensor,
        options: SamplingOptions,
        *,
        bias: Mapping[int, float] | None = None,
        seen: Sequence[Mapping[int, int]] = (),
        end: int | None = None,
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Reads `ids` (rows,), then samples and reads a token for each column of `uniforms` (rows, N), in [0, 1).

        Args:
            ids: the token to read first in each row.
            state: the state before it.
            uniforms: one random number for each choice.
            options: a `weft.Sample`, which makes the same choices.
            bias: what is added to the log-probabilities of ids; minus infinity: they are never chosen.
            seen: of each row the tokens of its text so far, with how often each was generated, for penalties; empty:
                there are none.
            end: the id that ends a row.

        Returns:
            The tokens (rows, N), -1 from a row's end on, and the state, which has not read the last token.
        """
        ids, count, bias = self._as_input(ids).clone(), uniforms.shape[1], bias or {}
        if uniforms.shape[0] != self.rows or len(seen) not in (0, self.rows):
            raise WeftError(
                f"Stream: uniforms {tuple(uniforms.shape)}, tokens of {len(seen)} rows",
                expected=f"uniforms ({self.rows}, N), tokens of {self.rows} rows or none",
            )
        if any(not 0 <= i < self.output_size for i in bias):
            raise WeftError(f"Stream: bias of {list(bias)}", expected=f"ids from 0 to {self.output_size - 1}")
        drawn = checked("Stream: uniforms", uniforms.to(torch.float64), torch.float64, (self.rows, count))
        chosen = torch.empty(self.rows, count, dtype=torch.int64)
        bias_ids, biases = array("q", bias), array("d", bias.values())
        begins = array("q", accumulate(map(len, seen), initial=0))
        seen_ids = array("q", chain.from_iterable(seen))
        seen_counts = array("q", chain.from_iterable(one.values() for one in seen))
        after = [part.detach().clone() for part in self._flat(state)]  # changed in place
        call = _sample_call(
            stream=self._address,
            threads=thread_count(),
            ids=ids.data_ptr(),
            steps=count,
            uniforms=drawn.data_ptr(),
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            typical_p=options.typical_p,
            repetition_penalty=options.repetition_penalty,
            presence_penalty=options.presence_penalty,
            frequency_penalty=options.frequency_penalty,
            bias_count=len(bias_ids),
            bias_ids=bias_ids.buffer_info()[0],
            bias=biases.buffer_info()[0],
            seen_begins=begins.buffer_info()[0] if seen else 0,
            seen_ids=seen_ids.buffer_info()[0],
            seen_counts=seen_counts.buffer_info()[0],
            end=-1 if end is None else end,
            tokens=chosen.data_ptr(),
        )
        check(loaded_library().weft_stream_sample(call + array("q", map(address, after)).tobytes()))
        return chosen, tuple([_new(kind, after[first:last]) for kind, first, last, _ in self._states])

    def _as_input(self, x: Tensor) -> Tensor:
        """The input of a step, checked, as the core reads it."""
        fits = not x.is_floating_point() if self.ids else x.dtype is self._dtype
        if x.shape != self._x_shape or not x.is_cpu or not fits:
            kind = "integers" if self.ids else f"{self._dtype}"
            raise TensorError(
                f"Stream: {'ids are' if self.ids else 'x is'} {tuple(x.shape)} of {x.dtype} on {x.device}",
                expected=f"{tuple(self._x_shape)} of {kind} on cpu",
            )
        return x.detach().to(self._x_dtype).contiguous()

    def _flat(self, state: tuple[State, ...]) -> list[Tensor]:
        """The parts of all states, checked and contiguous."""
        found, dtype = [], self._dtype
        for (*_, shape), before in zip(self._states, state, strict=False):
            for part in before:
                if part.dtype is not dtype or part.shape != shape or not part.is_cpu:
                    raise TensorError(
                        f"Stream: a state is {tuple(part.shape)} of {part.dtype} on {part.device}",
                        expected=f"{tuple(shape)} of {dtype} on cpu",
                    )
                found.append(part if part.is_contiguous() else part.contiguous())
        if len(state) != len(self._states) or len(found) != self._parts:
            raise TensorError(
                f"Stream: {len(state)} states of {sum(map(len, state))} parts",
                expected=f"{len(self._states)} of {self._parts}, as start() gives them",
            )
        return found


def _check_sizes(cells: Sequence[Cell], weight: Tensor | None, bias: Tensor | None) -> None:
    for below, above in pairwise(cells):
        if above.input_size != below.hidden_size:
            raise WeftError(
                f"Stream: a cell reads {above.input_size} features and the one below gives {below.hidden_size}",
                expected="the two to be equal",
            )
    wanted = cells[-1].hidden_size
    if weight is not None and (weight.dim() != 2 or weight.shape[1] != wanted):
        raise TensorError(f"Stream: weight is {tuple(weight.shape)}", expected=f"(V, {wanted})")
    if bias is not None and (weight is None or bias.shape != weight.shape[:1]):
        raise TensorError(f"Stream: bias is {tuple(bias.shape)}", expected="(V,), one for each row of weight")


def can_stream(cells: Sequence[Cell]) -> bool:
    """Whether a stream can be made of these cells."""
    return bool(cells) and usable() and all(readable(cell) and plan_of(cell) is not None for cell in cells)
