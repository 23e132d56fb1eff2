"""Layers of cells over time: the calls of the core's forward and backward pass.

The core projects the input of all steps, runs the time loop and computes the gradients of all parameters. This module
allocates its memory. Training keeps the values that the program's derivative needs, partly in the memory of the
projected input, and what each layer reads; otherwise nothing is kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft import abi
from weft.abi import Precision
from weft.engine.dropout import draw_seed, keep_threshold
from weft.engine.embedding import Drawn
from weft.engine.kept import PackedWeights
from weft.engine.library import check, loaded_library
from weft.engine.memory import empty, empty_like
from weft.engine.plan import Plan
from weft.engine.tensors import address, check_tensor, checked
from weft.engine.threads import thread_count

_run_call, _layer, _direction = abi.values_of(abi.RunCall), abi.values_of(abi.Layer), abi.values_of(abi.Direction)


class Direction(NamedTuple):
    """One pass over the rows, forward or in reverse, with the masks its program asks for."""

    plan: Plan
    inputs: int  # features of x, or the size of the vocabulary
    reverse: bool
    row_mask: Tensor | None = None  # (B, H)
    step_mask: Tensor | None = None  # (B, T, states * H)
    weights: PackedWeights | None = None  # its parameters, packed; a forward pass that trains does not read them


class Layers:
    """Layers of directions over the same rows, with dropout between layers.

    The first layer reads an embedding lookup if there is one, else x.
    """

    def __init__(
        self,
        layers: Sequence[Sequence[Direction]],
        dropout: float = 0.0,
        embedded: Drawn | None = None,
        *,
        precision: Precision = Precision.exact,
    ) -> None:
        self.directions = layers  # alive: the addresses of plans and masks are in the records
        self.dropouts: list[tuple[int, int]] = []  # before each layer: keep probability times 2^32 (0: none), seed
        self.embedded, self.precision = embedded, precision
        self.count = len(layers)
        self.tables = 0 if embedded is None else len(embedded.tables)
        self.records: list[int] = []  # of the layers, for the core
        self.states: list[int] = []  # the width of each part of a final state
        self.kept = 0  # elements that a token keeps for the backward pass
        self.between = 0  # features of all outputs but those of the last layer
        self.width = 0  # of the outputs
        self.are_parameters: list[bool] = []  # or initial states, in the order of `run`
        self.in_transform = False  # of torch.func
        self.half_kept = False  # what is kept is in bfloat16
        keep = keep_threshold(dropout) if dropout else 0
        for layer in layers:
            self.between += self.width
            self.width = 0
            drops = keep and layer is not layers[0]
            self.dropouts.append((keep, draw_seed()) if drops else (0, 0))
            self.records += _layer(len(layer), *self.dropouts[-1])
            for plan, inputs, reverse, row_mask, step_mask, weights in layer:
                packed = 0 if weights is None else weights.address
                self.records += _direction(plan.address, inputs, reverse, address(row_mask), address(step_mask), packed)
                self.states += plan.state_widths
                self.kept += sum(plan.kept_sizes)
                self.width += plan.hidden_size
                self.are_parameters += [True] * len(plan.names) + [False] * plan.states

    def keep_half(self) -> None:
        """Keeps values in bfloat16, if the core can: where products read them as they are, it has no such kernel."""
        self.half_kept = all(direction.plan.keeps_half for layer in self.directions for direction in layer)

    def kept_elements(self, tokens: int) -> int:
        """The elements of the memory that are kept for so many tokens."""
        if not self.half_kept:
            return tokens * self.kept
        return sum(-(-tokens * sum(each.plan.kept_sizes) // 2) for layer in self.directions for each in layer)

    def has_parameters(self, marked: Sequence[bool]) -> bool:
        """Whether a parameter, not a state, is marked among them."""
        return any(mark and own for mark, own in zip(marked, self.are_parameters, strict=True))

    def memory_sizes(self, positions: int, tokens: int) -> list[int]:
        """The sizes of the parts of the memory, without embedded rows. Each part has its values row after row."""
        found: list[int] = []
        for layer in self.directions:
            found += [tokens * size for direction in layer for size in direction.plan.kept_sizes]
            found.append(positions * sum(direction.plan.hidden_size for direction in layer))
        return found[:-1]  # the outputs of the last layer are not among them

    def shape(self, x: Tensor | None) -> tuple[int, int]:
        """Rows and steps."""
        rows, steps, *_ = self.embedded.shape if x is None and self.embedded is not None else x.shape  # type: ignore[union-attr]
        return rows, steps

    def inside(self, positions: int) -> int:
        """Elements of embedded rows and of outputs between layers, for B * T positions."""
        size = positions * self.between
        if self.embedded is not None:
            size += -(-positions * self.embedded.shape[-1] // 16) * 16  # what follows begins on a cache line
        return size


def forward(
    layers: Layers, x: Tensor | None, lengths: Tensor | None, flat: Sequence[Any], train: bool, room: int = 0
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Outputs (B, T, sum of H), the final states of each direction, and the memory for the backward pass: what each
    direction keeps, with room for at least `room` tokens, embedded rows and outputs between layers."""
    rows, steps = layers.shape(x)
    dtype, size = flat[0].dtype, layers.inside(rows * steps)
    layers.half_kept = layers.half_kept and train and dtype is torch.float32
    outputs = empty((rows, steps, layers.width), dtype)
    last = [torch.empty(rows, width, dtype=dtype) for width in layers.states]
    if train:
        tokens = rows * steps if lengths is None else sum(lengths.tolist())
        size += layers.kept_elements(max(tokens, room))
    memory = empty((size,), dtype) if train or size else None
    by_id = x is not None and not x.is_floating_point()
    call = _run_call(
        is_double=dtype is torch.float64,
        threads=thread_count(),
        rows=rows,
        steps=steps,
        lengths=0 if lengths is None else lengths.data_ptr(),
        ids=x.data_ptr() if by_id else 0,  # type: ignore[union-attr]
        x=0 if by_id or x is None else x.data_ptr(),
        d_x=0,
        memory=0 if memory is None else memory.data_ptr(),
        d_memory=0,
        outputs=outputs.data_ptr(),
        d_outputs=0,
        d_outputs_stride=0,
        train=train,
        precision=layers.precision,
        half_kept=layers.half_kept,
        tables=layers.tables,
        layers=layers.count,
    )
    embedded = () if layers.embedded is None else layers.embedded.records(layers.embedded.tables)
    records = [*call, *embedded, *layers.records, *_addresses((*flat, *last))]
    if code := loaded_library().weft_forward(array("q", records).tobytes()):
        check(code)
    return outputs, last, memory


def backward(
    layers: Layers,
    x: Tensor | None,
    lengths: Tensor | None,
    flat: Sequence[Any],
    memory: Tensor,
    d_outputs: Tensor | None,
    d_last: Sequence[Tensor | None],
    wants_x: bool,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of x, of everything in `flat` and of the embedding tables; None where none is wanted."""
    gradients = [empty_like(each) if wants else None for each, wants in zip(flat, wanted, strict=False)]
    d_x = empty_like(x) if x is not None and wants_x else None
    d_tables, embedded = list[Tensor | None](), list[int]()
    if layers.embedded is not None:
        d_tables, embedded = layers.embedded.gradients(wanted[len(flat) :])
    rows, steps = layers.shape(x)
    dtype = memory.dtype
    d_last = [
        None if each is None else checked("the gradient of a state", each, dtype, (rows, width))
        for each, width in zip(d_last, layers.states, strict=True)
    ]
    size = layers.inside(rows * steps)
    d_memory = empty((size,), memory.dtype) if size else None
    stride = 0  # of rows of d_outputs; 0 for the gradient of a sum or a mean, which is one value for all
    if d_outputs is not None:
        check_tensor("the gradient of the outputs", d_outputs, dtype, (rows, steps, layers.width))
        if d_outputs.stride() != (0, 0, 0):
            d_outputs, stride = d_outputs.contiguous(), layers.width
    by_id = x is not None and not x.is_floating_point()
    call = _run_call(
        is_double=dtype is torch.float64,
        threads=thread_count(),
        rows=rows,
        steps=steps,
        lengths=0 if lengths is None else lengths.data_ptr(),
        ids=x.data_ptr() if by_id else 0,  # type: ignore[union-attr]
        x=0 if by_id or x is None else x.data_ptr(),
        d_x=0 if d_x is None else d_x.data_ptr(),
        memory=memory.data_ptr(),
        d_memory=0 if d_memory is None else d_memory.data_ptr(),
        outputs=0,
        d_outputs=0 if d_outputs is None else d_outputs.data_ptr(),
        d_outputs_stride=stride,
        train=True,
        precision=layers.precision,
        half_kept=layers.half_kept,
        tables=layers.tables,
        layers=layers.count,
    )
    addresses = _addresses((*flat, *d_last, *gradients))
    if code := loaded_library().weft_backward(array("q", [*call, *embedded, *layers.records, *addresses]).tobytes()):
        check(code)
    return [d_x, *gradients, *d_tables]


def _addresses(tensors: Sequence[Tensor | None]) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
