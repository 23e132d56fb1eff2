"""Tracing: from a cell's `step` to its equations, by running it once on two dummy rows.

A TorchDispatchMode sees every operation. Views (chunk, slices, transposes, unbind) need no rules: the memory address of
a tensor tells which blocks of which result, or which part of which parameter, it is. An operation that the engine does
not have raises `Untraceable` with the name of the operation and the line of the cell.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from weft.cells import Cell
from weft.compiler.graph import Equations, Graph, Origin, Product, Vector, Weight
from weft.errors import WeftError

_ROWS = 2
_OURS, _TORCH = str(Path(__file__).parent), str(Path(torch.__file__).parent)


class Untraceable(WeftError):  # noqa: N818  a WeftError that says what is the matter
    """A cell's step uses an operation that cannot be compiled. The cell still runs as plain torch."""


class _Base:
    """The memory of a traced result: (2, n*H) or (2, n, H), with a node for each of n blocks, or narrow, (2, n).

    A value computed from parameters alone is the same for all rows: its row step is zero.
    """

    def __init__(self, lanes: list[int], row_step: int, narrow: bool) -> None:
        self.lanes, self.row_step, self.narrow = lanes, row_step, narrow


def trace(cell: Cell) -> Equations:
    """Traces one step of a cell.

    Raises:
        Untraceable: an operation cannot be compiled; the message names it and its line.
    """
    cell, computed = _with_computed(cell)
    recorder = _Recorder(cell, computed)
    H, G = cell.hidden_size, cell.blocks
    with torch.enable_grad():
        x = _dummy(cell, G * H)
        state = [_dummy(cell, H) for _ in cell.initial_state(1)]
        recorder.track(x, [recorder.graph.leaf("x", g) for g in range(G)])
        for i, part in enumerate(state):
            recorder.track(part, [recorder.graph.leaf("state", i)])
        with recorder:
            new, _ = cell.step(x, cell.state_type(*state))
    if len(new) != len(state):
        raise Untraceable(f"{type(cell).__name__}.step returns {len(new)} states", expected=f"{len(state)}, as it got")
    outputs = [recorder.lanes_of(part, (_ROWS, H))[0] for part in new]
    return Equations(recorder.graph, recorder.products, recorder.vectors, outputs, G, H)


def _with_computed(cell: Cell) -> tuple[Cell, dict[str, Tensor]]:
    """Returns the cell with its computed weights as constants, so that the trace sees them as it sees parameters."""
    computed: dict[str, Tensor] = {name: getattr(cell, name).detach() for name in cell.computed}
    if computed:
        cell = copy.copy(cell)
        cell.__class__ = type(type(cell).__name__, (type(cell),), computed)
    return cell, computed


def _dummy(cell: Cell, columns: int) -> Tensor:
    """Returns fixed values of shape (2, columns), without using the random state."""
    line = torch.linspace(-0.5, 0.5, _ROWS * columns, dtype=cell.weight_ih.dtype, device=cell.weight_ih.device)
    return line.reshape(_ROWS, columns).clone()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, a second of start-up, to disable it here

    def __init__(self, cell: Cell, computed: dict[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cell, self.H = cell, cell.hidden_size
        self.graph, self.products, self.vectors = Graph(), [], []
        self._bases: dict[int, _Base] = {}
        self._alive: list[Tensor] = []  # keeps results alive, so that no memory address is reused
        named = [*cell.named_parameters(), *cell.named_buffers(), *computed.items()]
        self._named = {value.untyped_storage().data_ptr(): (name, value) for name, value in named}
        self._constants: dict[int, tuple[Tensor, float]] = {}

    products: list[Product]
    vectors: list[Vector]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        result = func(*args, **kwargs)
        tensors = [a for a in _flat((args, kwargs)) if isinstance(a, Tensor)]
        if func._schema.is_mutable:
            raise self.refuse(name, "changes a tensor in place")
        if name in _FACTORIES and isinstance(result, Tensor) and result.numel():
            first = result.flatten()[0]
            self._constants[result.untyped_storage().data_ptr()] = (result, float(first))
            return result
        if not torch.is_grad_enabled() and any(self._known(t) for t in tensors):
            raise self.refuse(name, "is inside torch.no_grad(); use detach() for values without gradient")
        if name == "detach" and self._known(tensors[0]):
            result = result.clone()  # a copy, to distinguish it from its source by its address
        first_result = result[0] if isinstance(result, (tuple, list)) else result
        if isinstance(first_result, Tensor) and any(_same_memory(first_result, t) for t in tensors):
            return result  # a view: its address identifies it
        if not any(self._known(t) for t in tensors):
            return result
        rule = _RULES.get(name)
        if rule is None:
            why = (
                "needs the values themselves" if name == "_local_scalar_dense" else "is not an operation of the engine"
            )
            raise self.refuse(name, why)
        if any(self._has_rows(t) for t in tensors):
            self.track(first_result, rule(self, first_result, *args, **kwargs))
        else:  # from parameters alone: the same for both rows
            shape = first_result.shape or (1,)
            lanes = rule(self, first_result.expand(_ROWS, *shape), *args, **kwargs)
            self._bases[first_result.untyped_storage().data_ptr()] = _Base(
                lanes, 0, first_result.numel() == len(lanes) and self.H > 1
            )
        self._alive.append(first_result)
        return result

    def refuse(self, name: str, why: str) -> Untraceable:
        frame: Any = sys._getframe(1)
        while frame and frame.f_code.co_filename.startswith((_OURS, _TORCH)):
            frame = frame.f_back
        where = f"{frame.f_code.co_filename}, line {frame.f_lineno}" if frame else "its step"
        return Untraceable(f"{type(self.cell).__name__}: `{name}` {why} ({where})")

    def track(self, tensor: Tensor, lanes: list[int]) -> None:
        assert tensor.is_contiguous()
        narrow = tensor.numel() == _ROWS * len(lanes) and self.H > 1
        self._bases[tensor.untyped_storage().data_ptr()] = _Base(lanes, tensor.numel() // _ROWS, narrow)
        self._alive.append(tensor)

    def _known(self, tensor: Tensor) -> bool:
        place = tensor.untyped_storage().data_ptr()
        return place in self._bases or place in self._named

    def _has_rows(self, tensor: Tensor) -> bool:
        base = self._bases.get(tensor.untyped_storage().data_ptr())
        return base is not None and base.row_step > 0

    def lanes_of(self, value: Any, shape: Sequence[int]) -> list[int]:
        """Returns the nodes of an argument broadcast to a shape: (2, n*H), (2, n, H) or, narrow, (2, n, 1)."""
        if not isinstance(value, Tensor):
            return [self.graph.constant(value)] * self._count(shape)
        place = value.untyped_storage().data_ptr()
        if place in self._constants:
            return [self.graph.constant(self._constants[place][1])] * self._count(shape)
        try:
            spread = value.expand(tuple(shape))
        except RuntimeError:
            raise self.refuse("broadcast", f"of {tuple(value.shape)} to {tuple(shape)} mixes rows") from None
        starts, inner = self._starts(spread)
        return [self._lane(place, start, inner, spread.stride(0)) for start in starts]

    def _count(self, shape: Sequence[int]) -> int:
        size = 1
        for n in shape[1:]:
            size *= n
        return size if shape[-1] == 1 else size // self.H

    def _starts(self, spread: Tensor) -> tuple[list[int], int]:
        """Returns the offsets of the blocks of the first row, and the stride between units."""
        shape, strides, first = spread.shape, spread.stride(), int(spread.storage_offset())
        if shape[0] != _ROWS or spread.dim() not in (2, 3):
            raise self.refuse("shape", f"{tuple(shape)} is not (rows, units) or (rows, blocks, units)")
        if shape[-1] % self.H and shape[-1] != 1:
            raise self.refuse("shape", f"{tuple(shape)} does not end in whole blocks of H={self.H}")
        width = self.H if shape[-1] % self.H == 0 else 1
        starts = [first + k * width * strides[-1] for k in range(shape[-1] // width)]
        if spread.dim() == 3:
            starts = [start + j * strides[1] for j in range(shape[1]) for start in starts]
        return starts, strides[-1] if width > 1 else 0

    def _lane(self, place: int, start: int, inner: int, row_step: int) -> int:
        H = self.H
        if place in self._bases:
            base = self._bases[place]
            lane = start if base.narrow else start // H
            fits = inner == 0 if base.narrow else (start % H == 0 and (inner == 1 or H == 1))
            if row_step == base.row_step and lane < len(base.lanes) and fits:
                return base.lanes[lane]
        elif place in self._named:
            name, parameter = self._named[place]
            offset = start - int(parameter.storage_offset())
            if row_step == 0 and inner in (0, 1) and parameter.is_contiguous():
                vector = Vector(name, offset, inner == 0 and H > 1)
                if vector not in self.vectors:
                    self.vectors.append(vector)
                return self.graph.leaf("vector", self.vectors.index(vector))
        raise self.refuse("indexing", "picks units that are not a whole block of H, or a tensor made outside the step")

    def product(self, operand: Tensor, weight: Tensor) -> list[int]:
        """Records operand (2, H) times weight (H, n*H), which is a parameter or a transposed slice of one."""
        H, place = self.H, weight.untyped_storage().data_ptr()
        if place not in self._named or operand.shape[-1] != H or weight.shape[0] != H or weight.shape[1] % H:
            raise self.refuse(
                "matmul", f"of {tuple(operand.shape)} and {tuple(weight.shape)} is not a state times a weight"
            )
        name, parameter = self._named[place]
        value = self.lanes_of(operand, (_ROWS, H))[0]
        offset, columns = int(weight.storage_offset() - parameter.storage_offset()), parameter.shape[-1]
        turned = weight.stride(1) == 1 and not (weight.stride(0) == 1 and columns == H)
        whole = parameter.dim() == 2 and parameter.is_contiguous() and (turned or columns == H)
        if not whole or weight.stride() not in ((1, columns), (columns, 1)):
            raise self.refuse("matmul", f"with this view of {name} is not a product with whole rows of it")
        first = offset if turned else offset // columns
        product = next((p for p in self.products if p.operand == value), None)
        if product is None:
            product = Product(value, [], [])
            self.products.append(product)
        lanes = []
        for block in range(weight.shape[1] // H):
            piece = Weight(name, first + block * H, turned)
            if piece not in product.weights:
                product.weights.append(piece)
                product.origins.append(Origin(-1, ()))
            lanes.append(self.graph.leaf("product", self.products.index(product), product.weights.index(piece)))
        return lanes


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in _flat(part)]
    return [leaf for part in value.values() for leaf in _flat(part)] if isinstance(value, dict) else [value]


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


_FACTORIES = {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
              "scalar_tensor", "lift_fresh"}  # fmt: skip
Rule = Callable[..., list[int]]
_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for torch operations: (recorder, result, *arguments) -> the nodes of the result."""

    def add(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return add


from weft.compiler import rules  # noqa: E402, F401  the table of operations, filled on import
