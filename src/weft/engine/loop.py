"""A cell over time through the core: forward.

The input projection of all steps is one product before the loop; only what depends on the state is inside. Token ids
never become one-hot rows: the loop reads rows of the projected vocabulary. For training the call keeps what the
program's derivative asks for, in the memory of the projected input as far as that goes; else it keeps nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine.library import loaded_library
from weft.engine.memory import empty
from weft.engine.plan import Plan
from weft.engine.products import Product, check, multiply
from weft.program import lower as places

_BUFFERS = 20


class Direction(NamedTuple):
    """One pass over the rows, forward or in reverse, with the masks its program asks for."""

    plan: Plan
    reverse: bool
    row_mask: Tensor | None = None  # (B, H)
    step_mask: Tensor | None = None  # (B, T, states * H)

    def put_masks(self, buffers: Buffers, tokens: Tokens) -> Tensor | None:
        """Masks into the table; what is given back must live until the call ends."""
        buffers.put(places.ROW_MASK, self.row_mask, self.plan.program.hidden_size)
        if self.step_mask is None:
            return None
        mask = self.step_mask.reshape(-1, self.step_mask.shape[2])
        mask = mask if tokens.picked is None else mask.index_select(0, tokens.picked)
        buffers.put(places.STEP_MASK, mask, mask.shape[1])
        return mask


class Tokens:
    """The input of all steps without padding, one row a token: numbers (N, I) or ids (N,)."""

    def __init__(self, x: Tensor, lengths: Tensor | None) -> None:
        self.rows, self.steps = x.shape[0], x.shape[1]
        self.is_ids = not x.is_floating_point()
        self.picked: Tensor | None = None  # which of the B*T places hold tokens
        flat = x.reshape(self.rows * self.steps, *x.shape[2:])
        if lengths is not None:
            active = torch.arange(self.steps) < lengths[:, None]
            self.picked = active.view(-1).nonzero().view(-1)
            flat = flat.index_select(0, self.picked)
        if self.is_ids:
            flat = flat.to(torch.int64)
        self.flat = flat.contiguous()
        self.count = flat.shape[0]


class Given(NamedTuple):
    """What a direction is given: parameters in the plan's order, and the state before (None: zeros)."""

    parameters: Sequence[Tensor]
    state: Sequence[Tensor | None]


def split(directions: Sequence[Direction], flat: Sequence[Any]) -> list[Given]:
    parts, at = [], 0
    for direction in directions:
        middle = at + len(direction.plan.names)
        end = middle + direction.plan.program.states
        parts.append(Given(flat[at:middle], flat[middle:end]))
        at = end
    return parts


def address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


class Buffers:
    """The core's table of global buffers: an address and the distance of rows for each."""

    def __init__(self) -> None:
        self.numbers = [0] * (2 * _BUFFERS)

    def put(self, place: int, tensor: Tensor | None, stride: int, column: int = 0) -> None:
        if tensor is not None:
            self.numbers[2 * place] = tensor.data_ptr() + column * tensor.element_size()
            self.numbers[2 * place + 1] = stride


def call(function: Any, calls: list[list[int]], like: Tensor) -> None:
    arrays = [(ctypes.c_int64 * len(numbers))(*numbers) for numbers in calls]
    addresses = (ctypes.c_int64 * len(arrays))(*map(ctypes.addressof, arrays))
    check(function(addresses, len(arrays), torch.get_num_threads(), like.dtype == torch.float64))


class _Input(NamedTuple):
    """The projected input: rows of `source` by token or by id, and memory for what is kept (None: nothing is)."""

    source: Tensor
    gates: Tensor | None
    by_id: bool


def _project(plan: Plan, given: Sequence[Tensor], tokens: Tokens, train: bool) -> tuple[_Input, Product | None]:
    """The input, and the product that still has to be carried out for it."""
    weight, bias = given[0].detach(), plan.input_bias(given)
    width, vocabulary = weight.shape
    if not tokens.is_ids:
        source = empty((tokens.count, width), weight.dtype)
        return _Input(source, source, False), Product(source, tokens.flat, weight.t(), start=bias)
    if vocabulary <= max(tokens.count, 1024):
        source = torch.add(weight.t(), bias, out=empty((vocabulary, width), weight.dtype))
        return _Input(source, empty((tokens.count, width), weight.dtype) if train else None, True), None
    source = F.embedding(tokens.flat, weight.t()).add_(bias)  # a large vocabulary: only the rows that occur
    return _Input(source, source, False), None


def forward(
    directions: Sequence[Direction], x: Tensor, lengths: Tensor | None, flat: Sequence[Any], train: bool
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Outputs (B, T, sum of H), the states after each direction, and what each direction keeps: two tensors."""
    tokens, parts = Tokens(x, lengths), split(directions, flat)
    like = parts[0].parameters[0]
    B, T, N = tokens.rows, tokens.steps, tokens.count
    width = sum(direction.plan.program.hidden_size for direction in directions)
    outputs = empty((B, T, width), like.dtype)
    ids = x.to(torch.int64).contiguous() if tokens.is_ids else None
    inputs = [_project(d.plan, part.parameters, tokens, train) for d, part in zip(directions, parts, strict=True)]
    multiply([product for _, product in inputs if product])
    calls, alive, column = [], [], 0
    last: list[Tensor] = []
    kept: list[Any] = []
    for direction, given, (projected, _) in zip(directions, parts, inputs, strict=True):
        plan = direction.plan
        program, H = plan.program, plan.program.hidden_size
        extra = empty((N, program.extra * H), like.dtype) if train else None
        vectors = plan.vectors(given.parameters)
        before = [None if part is None else part.contiguous() for part in given.state]
        after = [like.new_empty(B, H) for _ in before]
        buffers = Buffers()
        buffers.put(places.INPUT, projected.source, plan.input_width)
        buffers.put(places.GATES, projected.gates, plan.input_width)
        buffers.put(places.EXTRA, extra, program.extra * H)
        buffers.put(places.VECTORS, vectors, H)
        buffers.put(places.OUTPUT, outputs, width, column)
        masks = direction.put_masks(buffers, tokens)
        vocabulary, by_id = given.parameters[0].shape[1], address(ids) if projected.by_id else 0
        numbers = [plan.address, B, T, vocabulary, int(direction.reverse), int(train), address(lengths), by_id]
        numbers += buffers.numbers
        numbers += [0, *map(address, before), *map(address, after)]
        calls.append(numbers + plan.weight_addresses(given.parameters))
        alive.append((projected, vectors, before, masks))
        last += after
        if train:
            kept += [projected.gates, extra]
        column += H
    call(loaded_library().weft_forward, calls, like)
    return outputs, last, kept
