"""The likeliest ids of an output layer, without its logits ever being written down."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine import abi
from weft.engine.graph import address
from weft.engine.library import check, loaded_library, reads
from weft.errors import WeftError

_pack_call, _top_k_call = abi.packer(abi.PackCall), abi.packer(abi.TopKCall)
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
            call = _pack_call(
                is_double=weight.dtype is torch.float64,
                threads=torch.get_num_threads(),
                classes=self.size,
                inputs=self.inputs,
                weight=address(self.weight),
                bias=address(self.bias),
                packed=address(self._packed),
            )
            check(loaded_library().weft_pack_output_layer(call))

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
        call = _top_k_call(
            is_double=x.dtype is torch.float64,
            threads=torch.get_num_threads(),
            rows=len(x),
            inputs=self.inputs,
            classes=self.size,
            k=many,
            x=address(x),
            packed=address(self._packed),
            values=address(values),
            ids=address(ids),
        )
        check(loaded_library().weft_top_k(call))
        return values, ids
