"""A cell over time through the core: the memory it needs, the products outside the loop, and the way back.

The input projection of all steps is one product before the loop and the gradients of all weights are one product
each after it; only what depends on the state is inside. Token ids never become one-hot rows: the loop reads rows of
the projected vocabulary, and their gradient is added up by id.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.cells import Cell
from weft.engine.library import library
from weft.errors import WeftError
from weft.program import Program
from weft.program import lower as places

_BUFFERS = 20


class Plan:
    """A program in the core, with the parameters it takes from a cell, in order."""

    def __init__(self, program: Program) -> None:
        loaded = library()
        assert loaded is not None
        self.program = program
        code = program.encode()
        self.address = loaded.weft_program((ctypes.c_int64 * len(code))(*code))
        weakref.finalize(self, loaded.weft_forget, self.address)
        names = ["weight_ih", "bias_ih"]
        names += [block.weight.name for product in program.products for block in product.blocks]
        names += [vector.name for vector in program.vectors]
        self.names = list(dict.fromkeys(names))
        self.at = {name: i for i, name in enumerate(self.names)}
        self.input_runs = _runs(program)

    def parameters(self, cell: Cell) -> list[Tensor]:
        return [_find(cell, name) for name in self.names]


def _find(cell: Any, name: str) -> Tensor:
    for part in name.split("."):
        cell = getattr(cell, part)
    return cell  # type: ignore[no-any-return]


def _runs(program: Program) -> list[tuple[int, int, str, int]]:
    """(column of the input, width, parameter, where in it): biases that join the input's, neighbours together."""
    H = program.hidden_size
    runs: list[tuple[int, int, str, int]] = []
    for block, number in program.input_vectors:
        vector = program.vectors[number]
        if runs and not vector.single:
            column, width, name, start = runs[-1]
            if column + width == block * H and name == vector.name and start + width == vector.start:
                runs[-1] = (column, width + H, name, start)
                continue
        runs.append((block * H, 1 if vector.single else H, vector.name, vector.start))
    return runs


class Direction(NamedTuple):
    """One pass over the rows."""

    plan: Plan
    reverse: bool


def run(
    directions: Sequence[Direction],
    x: Tensor,
    lengths: Tensor | None,
    parameters: Sequence[Sequence[Tensor]],
    states: Sequence[Sequence[Tensor] | None],
) -> tuple[Tensor, list[list[Tensor]]]:
    """Outputs (B, T, sum of H) and for each direction its last states. Shapes are checked by the caller."""
    flat: list[Tensor | None] = []
    for direction, given, state in zip(directions, parameters, states, strict=True):
        flat += given
        flat += [None] * direction.plan.program.states if state is None else state
    train = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *flat))
    if train:
        outputs, *last = _Loop.apply(directions, x, lengths, *flat)
    else:
        outputs, last, _ = _forward(directions, x, lengths, flat, False)
    parts, found = iter(last), []
    for direction in directions:
        found.append([next(parts) for _ in range(direction.plan.program.states)])
    return outputs, found


def _split(directions: Sequence[Direction], flat: Sequence[Any]) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    parts, at = [], 0
    for direction in directions:
        names, states = len(direction.plan.names), direction.plan.program.states
        parts.append((flat[at : at + names], flat[at + names : at + names + states]))
        at += names + states
    return parts


class _Tokens:
    """The input of all steps without padding, as rows: numbers (N, I) or ids (N,)."""

    def __init__(self, x: Tensor, lengths: Tensor | None) -> None:
        self.rows, self.steps = x.shape[0], x.shape[1]
        self.is_ids = not x.is_floating_point()
        self.picked: Tensor | None = None  # which of the B*T places are tokens
        flat = x.reshape(self.rows * self.steps, *x.shape[2:])
        if lengths is not None:
            active = torch.arange(self.steps) < lengths[:, None]
            self.picked = active.view(-1).nonzero().view(-1)
            flat = flat.index_select(0, self.picked)
        self.flat = flat.contiguous()
        self.count = flat.shape[0]


def _vectors(program: Program, plan: Plan, given: Sequence[Tensor]) -> Tensor | None:
    """The table of vectors, one row of H each."""
    H = program.hidden_size
    if not program.vectors:
        return None
    table = given[0].new_empty(len(program.vectors) + len(program.vector_sums), H)
    for row, vector in zip(table, program.vectors, strict=False):
        start = given[plan.at[vector.name]].detach().reshape(-1)[vector.start :]
        row.copy_(start[:1] if vector.single else start[:H])
    for row, numbers in zip(table[len(program.vectors) :], program.vector_sums, strict=True):
        torch.sum(table[list(numbers)], 0, out=row)
    return table


def _input_bias(plan: Plan, given: Sequence[Tensor]) -> Tensor:
    bias = given[plan.at["bias_ih"]].detach()
    for n, (column, width, name, start) in enumerate(plan.input_runs):
        piece = given[plan.at[name]].detach().reshape(-1)[start : start + width]
        if width == bias.numel():
            bias = bias + piece
            continue
        bias = bias.clone() if n == 0 else bias
        bias[column : column + max(width, plan.program.hidden_size if width == 1 else width)] += piece
    return bias


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _weights(plan: Plan, given: Sequence[Tensor]) -> list[int]:
    """Address, stride and orientation of every block of every product."""
    found = []
    for product in plan.program.products:
        for block in product.blocks:
            weight = given[plan.at[block.weight.name]]
            stride = weight.stride(0)
            offset = block.weight.start * (1 if block.weight.turned else stride) * weight.element_size()
            found += [weight.data_ptr() + offset, stride, int(block.weight.turned)]
    return found


def _call(function: Any, calls: list[list[int]], threads: int, is_double: bool) -> None:
    arrays = [(ctypes.c_int64 * len(call))(*call) for call in calls]
    addresses = (ctypes.c_int64 * len(arrays))(*(ctypes.addressof(array) for array in arrays))
    code = function(addresses, len(arrays), threads, is_double)
    if code == 1:
        raise MemoryError("weft engine: out of memory")
    if code == 2:
        raise WeftError("a token id is outside the vocabulary", expected="ids from 0 to input_size - 1")


def _forward(
    directions: Sequence[Direction], x: Tensor, lengths: Tensor | None, flat: Sequence[Any], train: bool
) -> tuple[Tensor, list[Tensor], list[Any]]:
    loaded = library()
    assert loaded is not None
    tokens = _Tokens(x, lengths)
    parts = _split(directions, flat)
    like = parts[0][0][0]
    B, T, N = tokens.rows, tokens.steps, tokens.count
    outputs = like.new_empty(B, T, sum(d.plan.program.hidden_size for d in directions))
    ids = x.to(torch.int64).contiguous() if tokens.is_ids else None
    calls, last, kept, alive, column = [], [], [], [], 0
    for (plan, reverse), (given, states) in zip(directions, parts, strict=True):
        program = plan.program
        H, GH = program.hidden_size, program.blocks * program.hidden_size
        bias, weight = _input_bias(plan, given), given[plan.at["weight_ih"]].detach()
        by_id = ids is not None and weight.shape[1] <= max(N, 1024)
        if by_id:
            source = torch.add(weight.t(), bias, out=like.new_empty(weight.shape[1], GH))
            gates = like.new_empty(N, GH) if train else None
        elif ids is not None:
            source = gates = torch.nn.functional.embedding(tokens.flat, weight.t()) + bias
        else:
            source = gates = torch.addmm(bias, tokens.flat, weight.t())
        extra = like.new_empty(N, program.extra * H) if train else None
        vectors = _vectors(program, plan, given)
        first = [None if s is None else s.contiguous() for s in states]
        after = [like.new_empty(B, H) for _ in range(program.states)]
        buffers = [0] * (2 * _BUFFERS)
        for place, tensor, stride in (
            (places.INPUT, source, GH),
            (places.GATES, gates, GH),
            (places.EXTRA, extra, program.extra * H),
            (places.VECTORS, vectors, H),
        ):
            buffers[2 * place : 2 * place + 2] = _address(tensor), stride
        buffers[2 * places.OUTPUT] = outputs.data_ptr() + column * outputs.element_size()
        buffers[2 * places.OUTPUT + 1] = outputs.shape[2]
        calls.append(
            [plan.address, B, T, weight.shape[1], int(reverse), int(train), _address(lengths), _address(ids) if by_id else 0]
            + buffers
            + [0]
            + [_address(s) for s in first]
            + [_address(s) for s in after]
            + _weights(plan, given)
        )
        alive.append((source, vectors, first))
        last += after
        kept += [gates, extra]
        column += H
    _call(loaded.weft_forward, calls, torch.get_num_threads(), like.dtype == torch.float64)
    return outputs, last, kept


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, directions: Sequence[Direction], x: Tensor, lengths: Tensor | None, *flat: Any) -> Any:
        outputs, last, kept = _forward(directions, x, lengths, flat, True)
        ctx.directions = directions
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, lengths, *flat, *kept)
        return outputs, *last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> Any:
        directions = ctx.directions
        x, lengths, *rest = ctx.saved_tensors
        size = sum(len(d.plan.names) + d.plan.program.states for d in directions)
        return None, *_back(directions, x, lengths, rest[:size], rest[size:], d_outputs, d_last, ctx.needs_input_grad[1:])


def _back(
    directions: Sequence[Direction],
    x: Tensor,
    lengths: Tensor | None,
    flat: Sequence[Any],
    kept: Sequence[Tensor],
    d_outputs: Tensor | None,
    d_last: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Gradients of x, lengths (none) and everything in `flat`."""
    loaded = library()
    assert loaded is not None
    tokens, parts = _Tokens(x, lengths), _split(directions, flat)
    like = parts[0][0][0]
    B, T, N = tokens.rows, tokens.steps, tokens.count
    if d_outputs is None:
        d_outputs, stride = like.new_zeros(sum(d.plan.program.hidden_size for d in directions)), 0
    else:
        d_outputs, stride = d_outputs.contiguous(), d_outputs.shape[2]
    calls, works, column, at = [], [], 0, 0
    for n, ((plan, reverse), (given, _)) in enumerate(zip(directions, parts, strict=True)):
        program = plan.program
        H, GH = program.hidden_size, program.blocks * program.hidden_size
        work = _Work(
            kept[2 * n],
            kept[2 * n + 1],
            like.new_empty(N, GH),
            like.new_empty(N, program.d_products * H),
            like.new_empty(N, program.operands * H),
            like.new_zeros(program.sums, H),
            [like.new_empty(B, H) for _ in range(program.states)],
            _vectors(program, plan, given),
            [None if g is None else g.contiguous() for g in d_last[at : at + program.states]],
        )
        at += program.states
        buffers = [0] * (2 * _BUFFERS)
        for place, tensor, width in (
            (places.GATES, work.gates, GH),
            (places.EXTRA, work.extra, program.extra * H),
            (places.VECTORS, work.vectors, H),
            (places.D_INPUT, work.d_input, GH),
            (places.D_PRODUCTS, work.d_products, program.d_products * H),
            (places.OPERANDS, work.operands, program.operands * H),
        ):
            buffers[2 * place : 2 * place + 2] = _address(tensor), width
        buffers[2 * places.D_OUTPUT] = d_outputs.data_ptr() + column * d_outputs.element_size()
        buffers[2 * places.D_OUTPUT + 1] = stride
        calls.append(
            [plan.address, B, T, 0, int(reverse), 1, _address(lengths), 0]
            + buffers
            + [_address(work.sums)]
            + [_address(g) for g in work.d_first]
            + [_address(g) for g in work.d_last]
            + _weights(plan, given)
        )
        works.append(work)
        column += H
    _call(loaded.weft_back, calls, torch.get_num_threads(), like.dtype == torch.float64)
    gradients: list[Tensor | None] = []
    d_x: Tensor | None = None
    for (plan, _), (given, states), work in zip(directions, parts, works, strict=True):
        gradients += _parameter_gradients(plan, given, tokens, work)
        gradients += [g if s is not None else None for g, s in zip(work.d_first, states, strict=True)]
        if wanted[0]:
            weight = given[plan.at["weight_ih"]]
            d_x = torch.mm(work.d_input, weight) if d_x is None else d_x.addmm_(work.d_input, weight)
    if d_x is not None:
        if tokens.picked is not None:
            d_x = d_x.new_zeros(B * T, d_x.shape[1]).index_copy_(0, tokens.picked, d_x)
        d_x = d_x.view(x.shape)
    return [d_x, None, *gradients]


class _Work(NamedTuple):
    """The memory of one direction on the way back."""

    gates: Tensor
    extra: Tensor
    d_input: Tensor
    d_products: Tensor
    operands: Tensor
    sums: Tensor
    d_first: list[Tensor]
    vectors: Tensor | None
    d_last: list[Tensor | None]

    def columns(self, place: places.Place, size: int, count: int = 1) -> Tensor:
        buffer = {
            places.GATES: self.gates,
            places.EXTRA: self.extra,
            places.D_INPUT: self.d_input,
            places.D_PRODUCTS: self.d_products,
            places.OPERANDS: self.operands,
        }[place.buffer]
        return buffer[:, place.block * size : (place.block + count) * size]


def _parameter_gradients(plan: Plan, given: Sequence[Tensor], tokens: _Tokens, work: _Work) -> list[Tensor | None]:
    program, H = plan.program, plan.program.hidden_size
    gradients: dict[str, Tensor] = {}

    def gradient(name: str) -> Tensor:
        if name not in gradients:
            gradients[name] = torch.zeros_like(given[plan.at[name]], memory_format=torch.contiguous_format)
        return gradients[name]

    if tokens.is_ids:
        weight = given[0]
        by_id = weight.new_zeros(weight.shape[1], weight.shape[0]).index_add_(0, tokens.flat, work.d_input)
        gradients["weight_ih"] = by_id.t()
    else:
        gradients["weight_ih"] = torch.mm(work.d_input.t(), tokens.flat)
    bias = gradient("bias_ih").view(-1, H)
    for row, number in zip(bias, program.input_sums, strict=True):
        if number >= 0:
            row.copy_(work.sums[number])
    for product in program.products:
        operand = work.columns(product.operand, H)
        j = 0
        while j < len(product.blocks):
            weight, place, count = product.blocks[j].weight, product.gradients[j], 1
            while j + count < len(product.blocks) and not weight.turned:
                other, there = product.blocks[j + count].weight, product.gradients[j + count]
                if other != (weight.name, weight.start + count * H, False) or there != (*place[:2], place.block + count):
                    break
                count += 1
            d = work.columns(place, H, count)
            shape = given[plan.at[weight.name]].shape
            if weight.turned:
                gradient(weight.name)[:, weight.start : weight.start + H].addmm_(operand.t(), d)
            elif weight.name not in gradients and shape[0] == count * H:
                gradients[weight.name] = torch.mm(d.t(), operand)
            else:
                gradient(weight.name)[weight.start : weight.start + count * H].addmm_(d.t(), operand)
            j += count
    for vector, numbers in zip(program.vectors, program.vector_gradients, strict=True):
        target = gradient(vector.name).view(-1)
        for number in numbers:
            if vector.single:
                target[vector.start] += work.sums[number].sum()
            else:
                target[vector.start : vector.start + H] += work.sums[number]
    return [gradients.get(name) for name in plan.names]
