"""One step at a time: a stack of cells and an output layer with weights packed once, for a few rows.

Made for generation. The weights are those at the moment the stream is made; make a new one when they change.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from weft.cells import Cell, State
from weft.engine.cells import plan_of
from weft.engine.library import check, library, loaded_library
from weft.errors import WeftError


class Stream:
    """`rows` rows through `cells`, lowest first, and, if given, an output layer: `weight` (V, H) and `bias` (V).

    The first cell reads token ids, (rows,), or with `ids=False` numbers, (rows, I). States go in and come out: a
    tuple with one state a cell, as a Stack has it.
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
        self.cells, self.rows, self.ids = tuple(cells), rows, ids
        like = cells[0].weight_ih
        self._double, self._dtype = int(like.dtype == torch.float64), like.dtype
        numbers, alive = [rows, int(ids), len(cells)], []
        for cell in cells:
            plan = plan_of(cell)
            assert plan is not None
            given = plan.parameters(cell)
            numbers += [plan.address, cell.input_size, *(parameter.data_ptr() for parameter in given)]
            alive.append((plan, given))
        self._plans = [plan for plan, _ in alive]
        self.output_size = cells[-1].hidden_size if weight is None else weight.shape[0]
        if weight is None:
            numbers.append(0)
        else:
            weight = weight.detach().to(like.dtype).contiguous()
            bias = None if bias is None else bias.detach().to(like.dtype).contiguous()
            numbers += [weight.shape[0], weight.data_ptr(), 0 if bias is None else bias.data_ptr()]
        core = loaded_library()
        self._address = core.weft_stream((ctypes.c_int64 * len(numbers))(*numbers), self._double)
        if not self._address:
            raise MemoryError("weft engine: out of memory")
        weakref.finalize(self, core.weft_stream_forget, self._address, self._double)
        self._step = core.weft_stream_step
        self._shapes = [torch.Size((rows, cell.hidden_size)) for cell in cells]
        self._addresses = ctypes.c_void_p * (2 * sum(plan.program.states for plan in self._plans))

    def start(self) -> tuple[State, ...]:
        return tuple(cell.start(self.rows) for cell in self.cells)

    def step(self, x: Tensor, state: tuple[State, ...]) -> tuple[Tensor, tuple[State, ...]]:
        """One step: logits (rows, V), or without an output layer the last cell's output, and the state after."""
        before = self._flat(state)
        after = [torch.empty(part.shape, dtype=self._dtype) for part in before]
        addresses = self._addresses(*[part.data_ptr() for part in (*before, *after)])
        result = torch.empty(self.rows, self.output_size, dtype=self._dtype)
        if self.ids:
            x = self._checked_ids(x)
            code = self._step(self._address, self._double, x.data_ptr(), None, addresses, result.data_ptr())
        else:
            if x.shape != (self.rows, self.cells[0].input_size) or x.dtype != self._dtype:
                expected = f"({self.rows}, {self.cells[0].input_size}) of {self._dtype}"
                raise WeftError(f"Stream: x is {tuple(x.shape)} of {x.dtype}", expected=expected)
            x = x.detach().contiguous()
            code = self._step(self._address, self._double, None, x.data_ptr(), addresses, result.data_ptr())
        check(code)
        return result, self._nested(after)

    def sample(
        self,
        ids: Tensor,
        state: tuple[State, ...],
        uniforms: Tensor,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        banned: Sequence[int] = (),
        end: int | None = None,
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Read `ids` (rows,), then choose and read a token for each column of `uniforms` (rows, N), numbers in [0, 1).

        Gives the tokens (rows, N), -1 from a row's `end` on, and the state. The last token chosen is not read yet. The
        choice is weft.decode's: temperature, then the top_k likeliest, then the fewest that reach top_p, then where
        the number falls on the cumulated chances in the vocabulary's order.
        """
        ids, count = self._checked_ids(ids).clone(), uniforms.shape[1]
        if uniforms.shape[0] != self.rows or not temperature > 0 or not 0 < top_p <= 1 or top_k < 0:
            raise WeftError(
                f"Stream: uniforms {tuple(uniforms.shape)}, temperature {temperature}, top_k {top_k}, top_p {top_p}",
                expected=f"uniforms ({self.rows}, N), temperature > 0, top_k >= 0, 0 < top_p <= 1",
            )
        if any(not 0 <= i < self.output_size for i in banned):
            raise WeftError(f"Stream: banned ids {list(banned)}", expected=f"ids from 0 to {self.output_size - 1}")
        numbers = uniforms.to(torch.float64).contiguous()
        chosen = torch.empty(self.rows, count, dtype=torch.int64)
        choice = (ctypes.c_double * 5)(temperature, top_k, top_p, len(banned), -1 if end is None else end)
        out = (ctypes.c_int64 * max(1, len(banned)))(*banned)
        after = [part.detach().clone() for part in self._flat(state)]  # changed in place
        addresses = self._addresses(*[part.data_ptr() for part in after])
        code = loaded_library().weft_stream_sample(
            self._address,
            self._double,
            ids.data_ptr(),
            addresses,
            numbers.data_ptr(),
            count,
            choice,
            out,
            chosen.data_ptr(),
        )
        if code == 3:
            raise WeftError("Stream: sampling needs token ids and an output layer", expected="ids=True and a weight")
        check(code)
        return chosen, self._nested(after)

    def _checked_ids(self, ids: Tensor) -> Tensor:
        if ids.shape != (self.rows,) or ids.is_floating_point():
            raise WeftError(
                f"Stream: ids are {tuple(ids.shape)} of {ids.dtype}", expected=f"({self.rows},) whole numbers"
            )
        return ids if ids.dtype == torch.int64 and ids.is_contiguous() else ids.to(torch.int64).contiguous()

    def _flat(self, state: tuple[State, ...]) -> list[Tensor]:
        """The parts of all states, checked."""
        found = []
        for shape, before in zip(self._shapes, state, strict=True):
            for part in before:
                if part.shape != shape or part.dtype != self._dtype:
                    expected = f"{tuple(shape)} of {self._dtype}"
                    raise WeftError(f"Stream: a state is {tuple(part.shape)} of {part.dtype}", expected=expected)
                found.append(part if part.is_contiguous() else part.contiguous())
        return found

    def _nested(self, parts: list[Tensor]) -> tuple[State, ...]:
        nested, at = [], 0
        for plan, cell in zip(self._plans, self.cells, strict=True):
            nested.append(cell.state_type(*parts[at : at + plan.program.states]))
            at += plan.program.states
        return tuple(nested)


def can_stream(cells: Sequence[Cell]) -> bool:
    """Whether a stream can be made of these cells."""
    return library() is not None and all(
        cell.weight_ih.device.type == "cpu"
        and cell.weight_ih.dtype in (torch.float32, torch.float64)
        and type(cell).project is Cell.project
        and plan_of(cell) is not None
        for cell in cells
    )
