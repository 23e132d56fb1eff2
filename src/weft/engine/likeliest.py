"""The likeliest ids of an output layer, without its logits ever being written down."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine.graph import address
from weft.engine.library import check, loaded_library, reads
from weft.errors import WeftError

_COLUMNS = 64  # a multiple of every panel of the core


class Likeliest:
    """An output layer, a weight (V, I) and a bias (V), packed once for many calls. Make a new one when they change.

    >>> likeliest = Likeliest(torch.eye(3), torch.tensor([0.0, 9.0, 0.0]))
    >>> likeliest(torch.tensor([[5.0, 0.0, 1.0]]), 2)[1]
    tensor([[1, 0]])
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        if weight.dim() != 2 or not all(weight.shape) or (bias is not None and bias.shape != weight.shape[:1]):
            beside = "no bias" if bias is None else f"a bias {tuple(bias.shape)}"
            raise WeftError(
                f"Likeliest: a weight {tuple(weight.shape)}, {beside}",
                expected="a weight (V, I) and a bias (V), neither empty",
            )
        self.weight = weight.detach().contiguous()
        self.bias = None if bias is None else bias.detach().contiguous()
        self.size, self.inputs = weight.shape
        self._packed = None
        if reads(self.weight, *([] if self.bias is None else [self.bias])):
            columns = -(-self.size // _COLUMNS) * _COLUMNS
            self._packed = torch.empty(columns * (self.inputs + 1), dtype=weight.dtype)
            places = map(address, (self.weight, self.bias, self._packed))
            self._call(loaded_library().weft_pack_ids, [self.size, self.inputs, *places])

    def __call__(self, x: Tensor, many: int) -> tuple[Tensor, Tensor]:
        """The log-probabilities and the ids of the `many` likeliest, both (R, many), best first, after x (R, I)."""
        if x.dim() != 2 or x.shape[1] != self.inputs or not 1 <= many <= self.size:
            raise WeftError(
                f"Likeliest: x is {tuple(x.shape)}, {many} ids are wanted",
                expected=f"(R, {self.inputs}), 1 to {self.size} ids",
            )
        if self._packed is None or not reads(x, self._packed):
            found = F.log_softmax(F.linear(x, self.weight, self.bias), -1).topk(many)
            return found.values, found.indices
        x = x.detach().contiguous()
        values, ids = torch.empty(len(x), many, dtype=x.dtype), torch.empty(len(x), many, dtype=torch.int64)
        places = map(address, (x, self._packed, values, ids))
        self._call(loaded_library().weft_likeliest, [len(x), self.inputs, self.size, many, *places])
        return values, ids

    def _call(self, function: object, numbers: list[int]) -> None:
        data = array("q", numbers)
        check(function(data.buffer_info()[0], torch.get_num_threads(), self.weight.dtype == torch.float64))  # type: ignore[operator]
