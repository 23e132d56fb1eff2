"""Packed weights of cells that stand from call to call, and the writes that make them invalid.

The core reads weights in panels (core/panels.hpp). A call packs them anew, since a weight may have changed; packed
weights of a cell that is kept here are used again until a write is seen. Writes are seen by the version counters of
torch; those through `.data`, NumPy or C++ are not. A cell is kept in this process only: a copy, pickled or not, is
another object.
"""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from weft import abi
from weft.abi import Precision
from weft.cells import Cell
from weft.engine.library import check, loaded_library
from weft.engine.plan import Plan
from weft.engine.tensors import address
from weft.errors import WeftError

_pack_call = abi.values_of(abi.PackWeightsCall)


class PackedWeights:
    """The weights of a plan as layers and streams read them, for a precision, and for token ids or for values."""

    def __init__(self, plan: Plan, parameters: Sequence[Tensor], *, by_id: bool, precision: Precision) -> None:
        core, handle, size = loaded_library(), ctypes.c_void_p(), ctypes.c_int64()
        call = _pack_call(
            is_double=parameters[0].dtype is torch.float64,
            program=plan.address,
            inputs=parameters[0].shape[1],
            by_id=by_id,
            precision=precision,
            bytes=ctypes.addressof(size),
            weights=ctypes.addressof(handle),
        )
        check(core.weft_pack_weights(array("q", [*call, *map(address, parameters)]).tobytes()))
        assert handle.value is not None
        self.plan, self.bytes, self.address = plan, size.value, handle.value  # the plan must stay alive
        weakref.finalize(self, core.weft_free_weights, self.address)


class _Weight(NamedTuple):
    """A parameter or buffer where its module has it, and its state when it was packed."""

    name: str
    own: dict[str, Any]
    key: str
    tensor: Tensor | None  # None: torch does not count writes to it, so it is never current
    version: int
    address: int

    def is_current(self) -> bool:
        tensor = self.tensor
        if self.own.get(self.key) is not tensor or tensor is None:
            return False
        return bool(tensor._version == self.version and tensor.data_ptr() == self.address)

    def has_moved(self) -> bool:
        """Whether it was only moved, to other memory or to another type: its values are as they were."""
        now, before = self.own.get(self.key), self.tensor
        if not isinstance(now, Tensor) or before is None or now.shape != before.shape or now.is_meta:
            return False
        if now is before:
            return before._version == self.version
        return torch.equal(now.to(before.device, before.dtype), before)


class KeptWeights:
    """The packed weights of a cell, which follow from the parameters and buffers of `owner`."""

    def __init__(self, owner: nn.Module, promised: str | None = None, *, were_kept: bool = False) -> None:
        self.owner = weakref.ref(owner)
        # The name of the owner, if it is frozen, and whether its packed weights were kept before it was.
        self.promised, self.were_kept = promised, were_kept
        self.packed: dict[tuple[Plan, bool, Precision, int], PackedWeights] = {}
        self.weights = self._read()

    def is_current(self) -> bool:
        """Whether no write was seen since the weights were packed."""
        for _, own, key, tensor, version, place in self.weights:  # as _Weight.is_current: each step waits for this
            if own.get(key) is not tensor or tensor is None:
                return False
            if tensor._version != version or tensor.data_ptr() != place:
                return False
        return True

    def refresh(self) -> None:
        """Forgets what was packed before a write.

        Raises:
            WeftError: there was a write, and it was promised that there would be none.
        """
        if self.is_current():
            return
        if self.promised is not None:
            for weight in self.weights:
                if not weight.is_current() and not weight.has_moved():
                    raise WeftError(
                        f"{weight.name} was written after weft.freeze",
                        expected="no write to the weights of a frozen model",
                        hint="weft.unfreeze(model) before you train or load weights; weft.freeze it again afterwards",
                    )
        self.packed, self.weights = {}, self._read()

    def pack(
        self, plan: Plan, number: int, parameters: Sequence[Tensor], *, by_id: bool, precision: Precision
    ) -> PackedWeights:
        """The packed weights of head `number` of the cell."""
        key = plan, by_id, precision, number
        if key not in self.packed:
            self.packed[key] = PackedWeights(plan, parameters, by_id=by_id, precision=precision)
        return self.packed[key]

    def _read(self) -> list[_Weight]:
        owner, found = self.owner(), list[_Weight]()
        assert owner is not None
        for path, module in owner.named_modules():
            for own in (module._parameters, module._buffers):
                for key, tensor in own.items():
                    if tensor is None:
                        continue
                    name = ".".join(part for part in (self.promised, path, key) if part)
                    if not tensor.is_inference():
                        found.append(_Weight(name, own, key, tensor, tensor._version, tensor.data_ptr()))
                    elif self.promised is None:
                        found.append(_Weight(name, own, key, None, 0, 0))
                    else:
                        raise WeftError(
                            f"{name} was made in torch.inference_mode, which does not count writes",
                            expected="weights made outside of torch.inference_mode",
                        )
        return found


_kept: weakref.WeakKeyDictionary[Cell, KeptWeights] = weakref.WeakKeyDictionary()
_changes = 0  # how often a cell was added or taken away


def changes() -> int:
    """A number that differs once other cells are kept."""
    return _changes


def kept_weights(cell: Cell) -> KeptWeights | None:
    """The cell's packed weights, without those from before a write; None if they are not kept."""
    kept = _kept.get(cell) if _kept else None
    if kept is not None:
        kept.refresh()
    return kept


def keep_weights(cell: Cell, owner: nn.Module) -> None:
    """Keeps the cell's packed weights from call to call, until a write to a parameter or buffer of `owner` is seen.

    `owner` is the cell, or the layer whose parameters the cell's weights are or follow from.
    """
    _put(cell, KeptWeights(owner))


def freeze_weights(cell: Cell, owner: nn.Module, name: str) -> None:
    """The same with the promise that there will be no write; `name` is the owner's name in its model."""
    before = _kept.get(cell)
    were_kept = before is not None and (before.promised is None or before.were_kept)
    _put(cell, KeptWeights(owner, name, were_kept=were_kept))


def unfreeze_weights(cell: Cell) -> None:
    """Ends the promise. Weights that were kept before it stay so."""
    kept = _kept.get(cell)
    if kept is None or kept.promised is None:
        return
    owner = kept.owner()
    _put(cell, KeptWeights(owner) if kept.were_kept and owner is not None else None)


def _put(cell: Cell, kept: KeptWeights | None) -> None:
    global _changes
    _changes += 1
    if kept is None:
        del _kept[cell]
    else:
        _kept[cell] = kept


def packed_bytes(cells: Iterable[Cell]) -> int:
    """Memory of all packed weights that these cells keep now."""
    every = [kept for cell in cells if (kept := _kept.get(cell)) is not None]
    return sum(packed.bytes for kept in every for packed in kept.packed.values())
