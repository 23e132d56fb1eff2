"""The autograd functions of layers: gradients, gradients of gradients, and torch.func's transforms.

Inside `torch.func.vmap` the mapped dimension is folded into the rows, so that all samples run at once. Where samples
have parameters of their own, or gradients of the parameters for each, they run one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch

from weft.abi import Precision
from weft.engine.autograd import apply_of, differentiable_gradients, one_at_a_time
from weft.engine.embedding import lookup
from weft.engine.layers import Layers, backward, forward
from weft.engine.precision import keeps_half
from weft.engine.recompute import recompute
from weft.engine.tensors import as_int64

_MOST_ROWS = 256  # of samples that are folded for a backward pass, each of which may need a copy of the memory


def run(
    layers: Layers, x: Tensor | None, lengths: Tensor | None, flat: Sequence[Tensor | None]
) -> tuple[Tensor, list[Tensor]]:
    """Outputs (B, T, sum of H) of the last layer and the final states of all directions, with gradients.

    `flat` has for each direction its parameters and its initial states, None for zeros; all are contiguous.
    """
    if x is not None:
        x = x.contiguous() if x.is_floating_point() else as_int64(x)
    tables = layers.embedded.tables if layers.embedded is not None else ()
    train = torch.is_grad_enabled() and any(_requires_grad(t) for t in (x, *flat, *tables) if t is not None)
    if train and layers.precision is Precision.int8:
        layers.precision = Precision.exact  # it has no backward pass
    layers.in_transform = _in_transform()
    if train and not layers.in_transform and keeps_half():
        layers.keep_half()
    if train or layers.in_transform:
        outputs, *last, _ = _apply(_LayersOverTime, layers, len(flat), train, lengths, x, *flat, *tables)
    else:
        outputs, last, _ = forward(layers, x, lengths, flat, False)
    return outputs, last


def _in_transform() -> bool:
    return _functorch.peek_interpreter_stack() is not None


def _apply(function: type[torch.autograd.Function], *given: Any) -> Any:
    if not _in_transform():
        return apply_of(function)(*given)
    apply: Any = function.apply
    if "torch._dynamo" in sys.modules:  # a compiled model that is transformed runs as it stands: nothing in here is its
        apply = torch.compiler.disable(apply)  # type: ignore[no-untyped-call]
    return apply(*given)


def _requires_grad(tensor: Tensor) -> bool:
    """Whether autograd, or a transform of torch.func, wants its gradient."""
    while not tensor.requires_grad and _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor.requires_grad


class _LayersOverTime(torch.autograd.Function):
    """Layers over rows: outputs, final states, and the memory for the backward pass."""

    @staticmethod
    def forward(layers: Layers, count: int, train: bool, lengths: Tensor | None, x: Tensor | None, *given: Any) -> Any:
        # Samples of a transform have as much memory as each other, whatever their lengths are.
        room = x.shape[0] * x.shape[1] if x is not None and layers.in_transform else 0
        outputs, last, memory = forward(layers, x, lengths, given[:count], train, room)
        return outputs, *last, outputs.new_empty(0) if memory is None else memory

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        layers, count, _, lengths, x, *given = inputs
        ctx.layers, ctx.count = layers, count
        ctx.mark_non_differentiable(output[-1])
        ctx.set_materialize_grads(False)
        ids = layers.embedded.ids if layers.embedded is not None else ()
        ctx.save_for_backward(lengths, x, output[-1], *given[:count], *ids)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return (_gradients if _in_transform() else _gradients_of_each)(ctx, *gradients)

    @staticmethod
    def vmap(info: Any, in_dims: Any, layers: Layers, count: int, train: bool, *tensors: Tensor | None) -> Any:
        samples = Samples(info.batch_size, tensors, in_dims[3:])
        if samples.are_mapped[0] or layers.has_parameters(samples.are_mapped[2:]):
            found = [_apply(_LayersOverTime, layers, count, train, *samples.one(n)) for n in range(samples.size)]
            results = [torch.stack(parts) for parts in zip(*found, strict=True)]
        else:
            rows_of = [True, True, *(not each for each in layers.are_parameters)]
            *found, memory = _apply(_LayersOverTime, layers, count, train, *samples.folded(rows_of))
            results = [each.unflatten(0, (samples.size, -1)) for each in found]
            results.append(divided_memory(memory, samples.size, samples.memory_sizes(layers) if train else [0]))
        return tuple(results), (0,) * len(results)


def _gradients(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> Any:
    lengths, x, memory, *flat = ctx.saved_tensors
    layers, flat, of_states = ctx.layers, flat[: ctx.count], d_last[:-1]  # without that of the memory
    wants_x, *wanted = ctx.needs_input_grad[4:]
    if torch.is_grad_enabled() or _in_transform():  # a graph of the gradients may be wanted
        tables = () if layers.embedded is None else layers.embedded.tables
        given = (memory, d_outputs, *of_states, *flat, *tables)
        found = _apply(_Backward, layers, ctx.count, (wants_x, *wanted), lengths, x, *given)
    else:
        found = backward(layers, x, lengths, flat, memory, d_outputs, of_states, wants_x, wanted)
    return None, None, None, None, *found


_gradients_of_each = one_at_a_time(_gradients)


class _Backward(torch.autograd.Function):
    """The gradients of `_LayersOverTime`, which are differentiated in torch."""

    @staticmethod
    def forward(
        layers: Layers, count: int, wants: Sequence[bool], lengths: Tensor | None, x: Tensor | None, *given: Any
    ) -> Any:
        first = 2 + len(layers.states)  # of the parameters and initial states
        memory, d_outputs, *d_last = given[:first]
        flat = [None if each is None else each.contiguous() for each in given[first : first + count]]
        x, lengths = (None if each is None else each.contiguous() for each in (x, lengths))
        return tuple(backward(layers, x, lengths, flat, memory.contiguous(), d_outputs, d_last, wants[0], wants[1:]))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.layers, _, ctx.wants, lengths, x, _, *given = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(lengths, x, *given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        lengths, *inputs = ctx.saved_tensors
        layers, end = ctx.layers, 1 + len(ctx.layers.states)  # of the gradients of outputs and states

        def run(x: Tensor | None, *given: Tensor | None) -> list[Tensor]:
            return recompute(layers, lambda *tables: lookup(layers.embedded, *tables), lengths, x, given)

        def run_backward(x: Tensor | None, *given: Tensor | None) -> list[Tensor | None]:
            return differentiable_gradients(run, (x, *given[end:]), given[:end], ctx.wants)

        wants_x, _, *wanted = ctx.needs_input_grad[4:]
        d_x, *found = differentiable_gradients(run_backward, inputs, gradients, (wants_x, *wanted))
        return None, None, None, None, d_x, None, *found

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, layers: Layers, count: int, wants: Sequence[bool], *tensors: Tensor | None
    ) -> Any:
        samples = Samples(info.batch_size, tensors, in_dims[3:])
        end = 4 + len(layers.states)
        results: list[Any] = []
        if samples.are_mapped[0] or layers.has_parameters(samples.are_mapped[end:]) or layers.has_parameters(wants[1:]):
            for n in range(samples.size):
                found = _apply(_Backward, layers, count, wants, *samples.one(n))
                results.append([None if each is None else each[None] for each in found])
        else:
            rows_of = [True, True, False, *(True for _ in range(3, end)), *(not each for each in layers.are_parameters)]
            for some in samples.parts(max(1, _MOST_ROWS // max(1, samples.rows))):
                lengths, x, memory, *folded = some.folded(rows_of)
                memory = folded_memory(
                    memory if some.are_mapped[2] else memory.expand(some.size, -1), some.memory_sizes(layers)
                )
                found = _apply(_Backward, layers, count, wants, lengths, x, memory, *folded)
                results.append([None if each is None else each.unflatten(0, (some.size, -1)) for each in found])
        found = tuple(None if parts[0] is None else torch.cat(parts) for parts in zip(*results, strict=True))
        return found, tuple(None if each is None else 0 for each in found)


class Samples:
    """The tensors of a function under vmap, lengths and x first; those that are mapped have the samples first."""

    def __init__(self, size: int, tensors: Sequence[Any], dims: Sequence[int | None]) -> None:
        self.size, self.are_mapped = size, [dim is not None for dim in dims]
        pairs = zip(tensors, dims, strict=True)
        self.tensors: list[Any] = [each if dim is None else each.movedim(dim, 0) for each, dim in pairs]

    def one(self, number: int) -> list[Any]:
        pairs = zip(self.tensors, self.are_mapped, strict=True)
        return [each[number] if mapped else each for each, mapped in pairs]

    def parts(self, size: int) -> list[Samples]:
        """Several at a time."""
        found = []
        for first in range(0, self.size, size):
            pairs = zip(self.tensors, self.are_mapped, strict=True)
            some = [each[first : first + size] if mapped else each for each, mapped in pairs]
            dims = [0 if mapped else None for mapped in self.are_mapped]
            found.append(Samples(min(size, self.size - first), some, dims))
        return found

    def folded(self, have_rows: Sequence[bool]) -> list[Any]:
        """All samples as one with the rows of all."""
        found = []
        for each, mapped, has_rows in zip(self.tensors, self.are_mapped, have_rows, strict=True):
            if each is not None and has_rows:
                each = (each if mapped else each.expand(self.size, *each.shape)).flatten(0, 1)
            found.append(each)
        return found

    @property
    def rows(self) -> int:
        """Of each sample."""
        return int(self.tensors[1].shape[self.are_mapped[1]])

    def memory_sizes(self, layers: Layers) -> list[int]:
        """The sizes of the parts of a sample's memory."""
        lengths, x = self.one(0)[:2]
        rows, steps = x.shape[:2]
        return layers.memory_sizes(rows * steps, rows * steps if lengths is None else int(lengths.sum()))


def divided_memory(memory: Tensor, samples: int, sizes: list[int]) -> Tensor:
    """The memory of samples whose rows were folded, (samples, sum of sizes)."""
    parts = torch.split(memory[: samples * sum(sizes)], [samples * size for size in sizes])
    return torch.cat([part.view(samples, -1) for part in parts], 1)


def folded_memory(memory: Tensor, sizes: list[int]) -> Tensor:
    """The memory of samples, (samples, size), for their rows folded."""
    return torch.cat([part.flatten() for part in torch.split(memory[:, : sum(sizes)], sizes, 1)])
