"""The way back through a run: the core's loop, then the gradients of all weights as large products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.engine.library import loaded_library
from weft.engine.memory import empty
from weft.engine.loop import Buffers, Direction, Tokens, address, call, forward, split
from weft.engine.plan import Plan
from weft.engine.products import Product, add_by_id, multiply
from weft.program import lower as places


def run(
    directions: Sequence[Direction],
    x: Tensor,
    lengths: Tensor | None,
    parameters: Sequence[Sequence[Tensor]],
    states: Sequence[Sequence[Tensor] | None],
) -> tuple[Tensor, list[list[Tensor]]]:
    """Outputs (B, T, sum of H) and for each direction its last state; torch can differentiate them."""
    flat: list[Tensor | None] = []
    for direction, given, state in zip(directions, parameters, states, strict=True):
        flat += given
        flat += [None] * direction.plan.program.states if state is None else state
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *flat)):
        outputs, *last = _Run.apply(directions, x, lengths, *flat)  # type: ignore[no-untyped-call]
    else:
        outputs, last, _ = forward(directions, x, lengths, flat, False)
    parts = iter(last)
    return outputs, [[next(parts) for _ in range(d.plan.program.states)] for d in directions]


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, directions: Sequence[Direction], x: Tensor, lengths: Tensor | None, *flat: Any) -> Any:
        outputs, last, kept = forward(directions, x, lengths, flat, True)
        ctx.directions, ctx.count = directions, len(flat)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, lengths, *flat, *kept)
        return outputs, *last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> Any:
        x, lengths, *rest = ctx.saved_tensors
        flat, kept = rest[: ctx.count], rest[ctx.count :]
        d_x, gradients = back(ctx.directions, x, lengths, flat, kept, d_outputs, d_last, ctx.needs_input_grad[1])
        return None, d_x, None, *gradients


class _Memory(NamedTuple):
    """What one direction reads and writes on the way back, a row a token where not said otherwise."""

    gates: Tensor
    extra: Tensor
    d_input: Tensor
    d_products: Tensor
    operands: Tensor
    sums: Tensor  # (S, H)
    d_first: list[Tensor]  # of (B, H)

    def columns(self, place: places.Place, size: int, blocks: int) -> Tensor:
        buffer = {
            places.GATES: self.gates,
            places.EXTRA: self.extra,
            places.D_INPUT: self.d_input,
            places.D_PRODUCTS: self.d_products,
            places.OPERANDS: self.operands,
        }[place.buffer]
        return buffer[:, place.block * size : (place.block + blocks) * size]


def back(
    directions: Sequence[Direction],
    x: Tensor,
    lengths: Tensor | None,
    flat: Sequence[Any],
    kept: Sequence[Tensor],
    d_outputs: Tensor | None,
    d_last: Sequence[Tensor | None],
    wants_x: bool,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of x, if wanted, and of everything in `flat`."""
    tokens, parts = Tokens(x, lengths), split(directions, flat)
    like = parts[0].parameters[0]
    B, T, N = tokens.rows, tokens.steps, tokens.count
    if d_outputs is None:
        d_outputs, width = like.new_zeros(sum(d.plan.program.hidden_size for d in directions)), 0
    elif d_outputs.stride() == (0, 0, 0):  # of a sum or a mean: one number for all
        d_outputs, width = d_outputs[0, 0].contiguous(), 0
    else:
        d_outputs, width = d_outputs.contiguous(), d_outputs.shape[2]
    calls, memories, alive, column, at = [], [], [], 0, 0
    for n, (direction, given) in enumerate(zip(directions, parts, strict=True)):
        plan = direction.plan
        program, H = plan.program, plan.program.hidden_size
        memory = _Memory(
            kept[2 * n],
            kept[2 * n + 1],
            empty((N, plan.input_width), like.dtype),
            empty((N, program.d_products * H), like.dtype),
            empty((N, program.operands * H), like.dtype),
            like.new_zeros(program.sums, H),
            [like.new_empty(B, H) for _ in range(program.states)],
        )
        after = [None if g is None else g.contiguous() for g in d_last[at : at + program.states]]
        vectors = plan.vectors(given.parameters)
        buffers = Buffers()
        buffers.put(places.GATES, memory.gates, plan.input_width)
        buffers.put(places.EXTRA, memory.extra, program.extra * H)
        buffers.put(places.VECTORS, vectors, H)
        buffers.put(places.D_INPUT, memory.d_input, plan.input_width)
        buffers.put(places.D_PRODUCTS, memory.d_products, program.d_products * H)
        buffers.put(places.OPERANDS, memory.operands, program.operands * H)
        buffers.put(places.D_OUTPUT, d_outputs, width, column)
        masks = direction.put_masks(buffers, tokens)
        numbers = [plan.address, B, T, 0, int(direction.reverse), 1, address(lengths), 0, *buffers.numbers]
        wanted = [d if given_part is not None else None for d, given_part in zip(memory.d_first, given.state, strict=True)]
        numbers += [address(memory.sums), *map(address, wanted), *map(address, after)]
        calls.append(numbers + plan.weight_addresses(given.parameters))
        memories.append(memory)
        alive.append((after, vectors, masks))
        at += program.states
        column += H
    call(loaded_library().weft_back, calls, like)

    now: list[Product] = []
    later: list[Product] = []
    gradients: list[Tensor | None] = []
    d_x = empty((N, x.shape[2]), like.dtype) if wants_x else None
    for n, (direction, given, memory) in enumerate(zip(directions, parts, memories, strict=True)):
        gradients += _of_parameters(direction.plan, given.parameters, tokens, memory, now, later)
        gradients += [None if s is None else g for s, g in zip(given.state, memory.d_first, strict=True)]
        if d_x is not None:
            (later if n else now).append(Product(d_x, memory.d_input, given.parameters[0], add=n > 0))
    multiply(now)
    for product in later:
        multiply([product])
    if d_x is not None:
        if tokens.picked is not None:
            d_x = d_x.new_zeros(B * T, d_x.shape[1]).index_copy_(0, tokens.picked, d_x)
        d_x = d_x.view(x.shape)
    return d_x, gradients


def _of_parameters(
    plan: Plan, given: Sequence[Tensor], tokens: Tokens, memory: _Memory, now: list[Product], later: list[Product]
) -> list[Tensor]:
    """The gradients in the plan's order; products are added to the lists and must be carried out after."""
    program, H = plan.program, plan.program.hidden_size
    gradients: dict[str, Tensor] = {}
    if tokens.is_ids:
        gradients["weight_ih"] = add_by_id(tokens.flat, memory.d_input, given[0].shape[1]).t()
    else:
        gradients["weight_ih"] = empty(tuple(given[0].shape), given[0].dtype)
        now.append(Product(gradients["weight_ih"], memory.d_input.t(), tokens.flat))
    seen: set[tuple[str, int]] = set()
    for run_ in plan.weight_runs:
        weight, size = given[plan.at[run_.name]], run_.blocks * H
        if run_.name not in gradients:
            whole = sum(r.blocks for r in plan.weight_runs if r.name == run_.name) * H * H >= weight.numel()
            target = gradients[run_.name] = empty(tuple(weight.shape), weight.dtype)
            if not whole:
                target.zero_()
        target = gradients[run_.name]
        operand = memory.columns(program.products[run_.product].operand, H, 1)
        d = memory.columns(run_.gradient, H, run_.blocks)
        # A weight used twice, on different operands: the second product adds to the first.
        rows = {(run_.name, run_.start + i) for i in range(0, size, H)}
        add, works = bool(rows & seen), later if rows & seen else now
        seen |= rows
        if run_.turned:
            works.append(Product(target[:, run_.start : run_.start + size], operand.t(), d, add=add))
        else:
            works.append(Product(target[run_.start : run_.start + size], d.t(), operand, add=add))
    plan.vector_gradients(memory.sums, given, gradients)
    return [gradients[name] for name in plan.names]
