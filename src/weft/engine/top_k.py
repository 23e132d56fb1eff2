"""The k most probable classes of an output layer, without writing its logits to memory."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from weft import abi
from weft.engine.library import check, loaded_library, reads
from weft.engine.tensors import address
from weft.engine.threads import thread_count
from weft.errors import TensorError

_pack_call, _top_k_call = abi.packer(abi.PackCall), abi.packer(abi.TopKCall)
_COLUMNS = 64  # a multiple of the core's panels


class TopK:
    """An output layer, a weight (V, I) and a bias (V), packed once for many calls. Make a new one when they change.

    >>> top_k = TopK(torch.eye(3), torch.tensor([0.0, 9.0, 0.0]))
    >>> top_k(torch.tensor([[5.0, 0.0, 1.0]]), 2)[1]
    tensor([[1, 0]])
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        if weight.dim() != 2 or not all(weight.shape) or (bias is not None and bias.shape != weight.shape[:1]):
            beside = "no bias" if bias is None else f"a bias {tuple(bias.shape)}"
            raise TensorError(
                f"TopK: a weight {tuple(weight.shape)}, {beside}",
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
                threads=thread_count(),
                classes=self.size,
                inputs=self.inputs,
                weight=address(self.weight),
                bias=address(self.bias),
                packed=address(self._packed),
            )
            check(loaded_library().weft_pack_output_layer(call))

    def __call__(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The log-probabilities and ids of the k most probable classes for x (R, I), both (R, k), best first."""
        if x.dim() != 2 or x.shape[1] != self.inputs or not 1 <= k <= self.size:
            raise TensorError(
                f"TopK: x is {tuple(x.shape)}, k is {k}",
                expected=f"(R, {self.inputs}), k from 1 to {self.size}",
            )
        if self._packed is None or not reads(x, self._packed):
            found = F.log_softmax(F.linear(x, self.weight, self.bias), -1).topk(k)
            return found.values, found.indices
        x = x.detach().contiguous()
        values, ids = torch.empty(len(x), k, dtype=x.dtype), torch.empty(len(x), k, dtype=torch.int64)
        call = _top_k_call(
            is_double=x.dtype is torch.float64,
            threads=thread_count(),
            rows=len(x),
            inputs=self.inputs,
            classes=self.size,
            k=k,
            x=address(x),
            packed=address(self._packed),
            values=address(values),
            ids=address(ids),
        )
        check(loaded_library().weft_top_k(call))
        return values, ids
