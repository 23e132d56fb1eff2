"""Custom operators that put a layer into the graphs of torch.compile.

A layer that is being compiled calls `weft::run_layer`; its backward pass is `weft::run_layer_backward`. torch needs the
shapes of their results. Operators take tensors and integers, so a program is passed as a hash of its content, which is
the same in every process, since compiled graphs are cached on disk. With lengths, the memory for the backward pass is
as large as if all rows were full: its size must be known before the lengths are.

This is a module of its own because defining operators loads torch's compiler, which takes a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import and_, not_
from typing import Any, Optional

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch.utils._pytree import tree_flatten, tree_unflatten

from weft.abi import Precision
from weft.cells import Cell, State
from weft.compiler import StepMasks
from weft.engine.autograd import one_at_a_time
from weft.engine.cells import another_kind, check_lengths, first_of_another_kind, plan_of, readable
from weft.engine.functions import Samples, divided_memory
from weft.engine.heads import Pass
from weft.engine.layers import Direction, Layers, backward, forward
from weft.engine.library import mapped, usable, warn_if_missing
from weft.engine.plan import Plan, reach
from weft.engine.tensors import as_int64, checked
from weft.errors import TensorError, WeftError

_plans: dict[int, Plan] = {}  # by content hash; a few kilobytes for each program that was ever compiled


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def described(cell: Cell, training: bool, recurrent_dropout: bool, zoneout: bool, expected_zoneout: str) -> str:
    """The hash of the cell's plan, its number of states and the names of its parameters; "" if it has no plan.

    torch takes the result as a constant. It calls again for another cell, or when `training` changes.
    """
    # torch's custom operators have no rule for torch.func.grad.
    if not (usable() or mapped(TransformType.Vmap)) or not readable(cell):
        warn_if_missing()
        return ""
    plan = plan_of(cell, StepMasks(recurrent_dropout, zoneout, float.fromhex(expected_zoneout)))
    if plan is None:
        return ""
    _plans[plan.content_hash] = plan
    return " ".join([str(plan.content_hash), str(plan.states), *plan.names])


def _description(run: Pass) -> str:
    recurrent_dropout, zoneout, expected_zoneout = run.noise
    # Read here, so that torch guards on their values: otherwise a float that changes becomes a symbol.
    return described(  # type: ignore[no-any-return]
        run.cell, bool(run.cell.training), recurrent_dropout, zoneout, expected_zoneout.hex()
    )


def run_layer(
    passes: Sequence[Pass], x: Tensor, states: Sequence[State], lengths: Tensor | None, precision: Precision
) -> tuple[Tensor, list[list[State]]] | None:
    """As engine.run_layers, for the passes of one layer."""
    if x.device.type != "cpu" or any(_description(run) == "" for run in passes):
        return None
    hashes, reverse, counts = [], [], []
    given: list[Tensor | None] = []
    masks: list[Tensor | None] = []
    for run, state in zip(passes, states, strict=True):
        plan_hash, count, *names = _description(run).split(" ")
        hashes.append(int(plan_hash))
        counts.append(int(count))
        reverse.append(run.reverse)
        given += [reach(run.cell, name.split(".")) for name in names]
        given += [None] * int(count) if state is None else list(state)
        masks += [run.row_mask, run.step_mask]
    x = x if x.is_floating_point() else x.to(torch.int64)
    # Lists of tensors with gradients cannot contain None: pass the tensors, and where they belong.
    tensors, there = _without_gaps(given)
    noise, noisy = _without_gaps(masks)
    train = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in [x, *tensors])
    outputs, *rest = run_operator(x, lengths, tensors, noise, there, noisy, hashes, reverse, int(precision), train)
    last = []
    for run, parts in zip(passes, counts, strict=True):
        last.append(run.cell.state_type(*rest[:parts]))
        rest = rest[parts:]
    return outputs, [last]


def _without_gaps(values: Sequence[Tensor | None]) -> tuple[list[Tensor], list[bool]]:
    return [value for value in values if value is not None], [value is not None for value in values]


def _with_gaps(values: Sequence[Any], there: Sequence[bool]) -> list[Any]:
    following = iter(values)
    return [next(following) if is_there else None for is_there in there]


class _Ready:
    """The arguments of the operators, checked, as the core reads them."""

    def __init__(
        self,
        x: Tensor,
        lengths: Tensor | None,
        tensors: Sequence[Tensor],
        noise: Sequence[Tensor],
        there: Sequence[bool],
        noisy: Sequence[bool],
        hashes: Sequence[int],
        reverse: Sequence[bool],
        precision: int,
    ) -> None:
        if any(plan_hash not in _plans for plan_hash in hashes):
            raise WeftError(
                "a compiled graph asks for a cell that this process has not compiled",
                expected="torch.compile of the same model here first",
            )
        kinds = [*tensors, *noise, *([x] if x.is_floating_point() else [])]
        names = [*["a parameter or state"] * len(tensors), *["a mask"] * len(noise), "x"]
        if (wrong := first_of_another_kind(kinds)) is not None:
            raise another_kind("a compiled layer", names[wrong], kinds[wrong], kinds[0])
        self.given = _with_gaps([tensor.detach().contiguous() for tensor in tensors], there)
        masks = iter(_with_gaps(noise, noisy))
        rows, steps, dtype = x.shape[0], x.shape[1], kinds[0].dtype
        directions, at = [], 0
        for plan_hash, turned in zip(hashes, reverse, strict=True):
            plan, inputs = _plans[plan_hash], self.given[at].shape[1]
            shapes = [(rows, plan.hidden_size), (rows, steps, plan.states * plan.hidden_size)]
            row_mask, step_mask = (
                None if mask is None else checked("a mask", mask, dtype, shape)
                for mask, shape in zip([next(masks), next(masks)], shapes, strict=True)
            )
            directions.append(Direction(plan, inputs, turned, row_mask, step_mask))
            first, end = at + len(plan.names), at + len(plan.names) + plan.states
            plan.check_shapes("a compiled layer", self.given[at:first])
            for part in self.given[first:end]:
                if part is not None:
                    checked("a state", part, dtype, (rows, plan.hidden_size))
            if x.is_floating_point() and x.shape[2] != inputs:
                raise TensorError(f"a compiled layer: x is {tuple(x.shape)}", expected=f"(B, T, {inputs})")
            at = end
        self.layers, self.x = Layers([directions], precision=Precision(precision)), x.contiguous()
        self.lengths = None if lengths is None else checked("lengths", as_int64(lengths), torch.int64, (rows,))


# torch reads the types: there, an Optional is none of the new unions.
@torch.library.custom_op("weft::run_layer", mutates_args=())
def run_operator(
    x: Tensor,
    lengths: Optional[Tensor],  # noqa: UP045
    tensors: Sequence[Tensor],
    noise: Sequence[Tensor],
    there: Sequence[bool],
    noisy: Sequence[bool],
    hashes: Sequence[int],
    reverse: Sequence[bool],
    precision: int,
    train: bool,
) -> list[Tensor]:
    """Outputs, the final states and, to train, the memory for the backward pass."""
    ready = _Ready(x, lengths, tensors, noise, there, noisy, hashes, reverse, precision)
    if ready.lengths is not None:  # a compiled layer cannot check it
        check_lengths("a compiled layer", ready.lengths, x.shape[1])
    room = x.shape[0] * x.shape[1]
    outputs, last, memory = forward(ready.layers, ready.x, ready.lengths, ready.given, train, room)
    if memory is None:
        return [outputs, *last]
    if ready.lengths is not None:  # results must be deterministic: clear what no row fills
        memory[int(ready.lengths.sum()) * _kept_size(hashes) :] = 0
    return [outputs, *last, memory]


def _kept_size(hashes: Sequence[int]) -> int:
    """Elements that the directions of a layer keep for each token."""
    return sum(sum(_plans[plan_hash].kept_sizes) for plan_hash in hashes)


@run_operator.register_fake
def _(
    x: Tensor,
    lengths: Tensor | None,
    tensors: Sequence[Tensor],
    noise: Sequence[Tensor],
    there: Sequence[bool],
    noisy: Sequence[bool],
    hashes: Sequence[int],
    reverse: Sequence[bool],
    precision: int,
    train: bool,
) -> list[Tensor]:
    plans, like, (rows, steps) = [_plans[plan_hash] for plan_hash in hashes], tensors[0], x.shape[:2]
    found = [like.new_empty(rows, steps, sum(plan.hidden_size for plan in plans))]
    found += [like.new_empty(rows, plan.hidden_size) for plan in plans for _ in range(plan.states)]
    if train:
        found.append(like.new_empty(rows * steps * _kept_size(hashes)))
    return found


@torch.library.custom_op("weft::run_layer_backward", mutates_args=())
def _backward_operator(
    x: Tensor,
    lengths: Optional[Tensor],  # noqa: UP045
    tensors: Sequence[Tensor],
    noise: Sequence[Tensor],
    there: Sequence[bool],
    noisy: Sequence[bool],
    hashes: Sequence[int],
    reverse: Sequence[bool],
    precision: int,
    memory: Tensor,
    d_outputs: Optional[Tensor],  # noqa: UP045
    d_last: Sequence[Optional[Tensor]],  # noqa: UP045
    wants_x: bool,
    wanted: Sequence[bool],
) -> list[Tensor]:
    """The gradients that are wanted, of x and of `tensors`."""
    ready = _Ready(x, lengths, tensors, noise, there, noisy, hashes, reverse, precision)
    wants = [wants is True for wants in _with_gaps(wanted, there)]
    given, room = ready.given, x.shape[0] * x.shape[1] * _kept_size(hashes)
    memory = checked("what a compiled layer keeps", memory, given[0].dtype, (room,))
    found = backward(ready.layers, ready.x, ready.lengths, given, memory, d_outputs, d_last, wants_x, wants)
    return [gradient for gradient in found if gradient is not None]


@_backward_operator.register_fake
def _(
    x: Tensor,
    lengths: Tensor | None,
    tensors: Sequence[Tensor],
    noise: Sequence[Tensor],
    there: Sequence[bool],
    noisy: Sequence[bool],
    hashes: Sequence[int],
    reverse: Sequence[bool],
    precision: int,
    memory: Tensor,
    d_outputs: Tensor | None,
    d_last: Sequence[Tensor | None],
    wants_x: bool,
    wanted: Sequence[bool],
) -> list[Tensor]:
    wants = [wants_x, *wanted]
    return [each.new_empty(each.shape) for each, is_wanted in zip([x, *tensors], wants, strict=True) if is_wanted]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, lengths, tensors, noise, *ctx.settings, train = inputs
    assert train, "weft::run_layer: gradients are wanted of a run that keeps nothing for them"
    ctx.count = len(tensors)
    ctx.mark_non_differentiable(output[-1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, lengths, output[-1], *tensors, *noise)


def _differentiate(ctx: Any, gradients: Sequence[Tensor | None]) -> Any:
    x, lengths, memory, *rest = ctx.saved_tensors
    tensors, noise = rest[: ctx.count], rest[ctx.count :]
    wants_x, _, wanted, *_ = ctx.needs_input_grad
    d_outputs, *d_last, _ = gradients
    found = _backward_operator(x, lengths, tensors, noise, *ctx.settings, memory, d_outputs, d_last, wants_x, wanted)
    d_x, *d_tensors = _with_gaps(found, [wants_x, *wanted])
    return d_x, None, d_tensors, [None] * len(noise), None, None, None, None, None, None


run_operator.register_autograd(_differentiate, setup_context=_remember)


def _one_by_one(
    operator: Any, info: Any, in_dims: Sequence[Any], args: Sequence[Any]
) -> tuple[list[Tensor], list[int]]:
    """An operator under vmap, for one sample after the other."""
    (flat, spec), (dims, _) = tree_flatten(args), tree_flatten(in_dims)
    samples = Samples(info.batch_size, flat, dims)
    found = [operator(*tree_unflatten(samples.one(n), spec)) for n in range(samples.size)]
    return [torch.stack(parts) for parts in zip(*found, strict=True)], [0] * len(found[0])


@run_operator.register_vmap
def _(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[list[Tensor], list[int]]:
    """Folds the mapped dimension into the rows, unless samples have lengths or parameters of their own."""
    x, lengths, tensors, noise, there, noisy, hashes, *rest, train = args
    of_x, _, of_tensors, of_noise, *_ = in_dims
    plans = [_plans[plan_hash] for plan_hash in hashes]
    places = [own for plan in plans for own in [True] * len(plan.names) + [False] * plan.states]
    are_parameters = [own for own, is_there in zip(places, there, strict=True) if is_there]
    samples = Samples(info.batch_size, [x, *tensors, *noise], [of_x, *of_tensors, *of_noise])
    if lengths is not None or any(map(and_, are_parameters, samples.are_mapped[1:])):
        return _one_by_one(run_operator, info, in_dims, args)
    x, *flat = samples.folded([True, *map(not_, are_parameters), *(True for _ in noise)])
    tensors, noise = flat[: len(tensors)], flat[len(tensors) :]
    found = run_operator(x, None, tensors, noise, there, noisy, hashes, *rest, train)
    memory = [found.pop()] if train else []
    results = [each.unflatten(0, (samples.size, -1)) for each in found]
    tokens = results[0].shape[1] * results[0].shape[2]
    sizes = [tokens * size for plan in plans for size in plan.kept_sizes]
    results += [divided_memory(each, samples.size, sizes) for each in memory]
    return results, [0] * len(results)


@_backward_operator.register_vmap
def _(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[list[Tensor], list[int]]:
    return _one_by_one(_backward_operator, info, in_dims, args)


def _backward_of_each(*args: Any) -> list[Tensor]:
    """For several gradients at once, as `is_grads_batched=True` gives them."""
    flat, spec = tree_flatten(args)
    return list(one_at_a_time(lambda _, *one: tuple(_backward_operator(*tree_unflatten(one, spec))))(None, *flat))


_LIBRARY: Any = torch.library.Library("weft", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.impl("run_layer_backward", _backward_of_each, "Batched")
