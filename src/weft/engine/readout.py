"""The output layer with its cost: from what a stack gives to the nats of the ids that were wanted.

As one operation it reads out only places that want an id, writes the table of logits once, as its derivative, and needs
no masks for what is dropped.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine import abi
from weft.engine.cells import check_lengths
from weft.engine.graph import address, applied, once, whole
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.engine.noise import NOTHING, Drop
from weft.errors import WeftError

IGNORE_INDEX = -100  # as torch's cross-entropy has it
_pack = abi.packer(abi.CrossEntropyCall)


def readout_nats(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    wanted: Tensor,
    *,
    lengths: Tensor | None = None,
    smoothing: float = 0.0,
    drop: Drop = NOTHING,
    total: bool = False,
    ignore_index: int = IGNORE_INDEX,
) -> Tensor:
    """The nats (B, T) of the wanted ids (B, T) by the logits x weight^T + bias, of x (B, T, I) and a weight (V, I).

    They are exactly 0 past a row's length and where the wanted id is `ignore_index`. With smoothing s, a share s of
    every target is spread over all ids: nats = -(1 - s) log p_wanted - s mean(log p). With `total`, their sum: a loss.

    >>> readout_nats(torch.zeros(1, 2, 3), torch.zeros(10, 3), None, torch.tensor([[4, -100]]))
    tensor([[2.3026, 0.0000]])
    """
    _check(x, weight, bias, wanted, lengths)
    if not (reads(x, weight) if bias is None else reads(x, weight, bias)):
        nats = _plain(x, weight, bias, wanted.to(x.device), lengths, smoothing, drop, ignore_index)
        return nats.sum() if total else nats
    return _apply(  # type: ignore[no-any-return]
        x.contiguous(),
        weight.contiguous(),
        None if bias is None else bias.contiguous(),
        whole(wanted),
        None if lengths is None else whole(lengths),
        smoothing,
        (*drop.draw(), total, ignore_index),
    )


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, lengths: Tensor | None) -> None:
    shape, sizes = x.shape, weight.shape
    wrong = len(shape) != 3 or wanted.shape != shape[:2] or len(sizes) != 2 or sizes[1] != shape[2]
    if wrong or (bias is not None and bias.shape != sizes[:1]):
        beside = "no bias" if bias is None else f"a bias {tuple(bias.shape)}"
        raise WeftError(
            f"readout: x {tuple(x.shape)}, a weight {tuple(weight.shape)}, {beside}, ids {tuple(wanted.shape)}",
            expected="x (B, T, I), a weight (V, I), a bias (V), ids (B, T)",
        )
    if lengths is not None:
        if lengths.shape != shape[:1]:
            raise WeftError(f"readout: lengths {tuple(lengths.shape)}", expected=f"({shape[0]},), one for each row")
        check_lengths("readout", lengths, shape[1])


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    wanted: Tensor,
    lengths: Tensor | None,
    smoothing: float,
    drop: Drop,
    ignore_index: int,
) -> Tensor:
    """The same by torch."""
    x = drop.apply(x)
    if lengths is not None:
        past = torch.arange(x.shape[1], device=x.device) >= lengths.to(x.device)[:, None]
        wanted = wanted.masked_fill(past, ignore_index)
    asked = wanted != ignore_index
    logits = F.linear(x[asked], weight, bias)
    nats = F.cross_entropy(logits, wanted[asked], reduction="none", label_smoothing=smoothing)
    return torch.zeros_like(wanted, dtype=nats.dtype).masked_scatter(asked, nats)


class _Nats(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: Tensor,
        lengths: Tensor | None,
        smoothing: float,
        how: tuple[int, int, bool, bool, int],
    ) -> Tensor:
        nats, derivative = torch.empty(() if how[3] else wanted.shape, dtype=x.dtype), None
        if any(ctx.needs_input_grad):
            tokens = wanted.numel() if lengths is None else sum(lengths.tolist())
            derivative = empty((tokens, weight.shape[0]), x.dtype)
        ctx.how = how
        ctx.save_for_backward(x, weight, bias, wanted, lengths, derivative)
        call = _call(x, weight, bias, wanted, lengths, how, smoothing, derivative, losses=address(nats))
        check(loaded_library().weft_cross_entropy(call))
        return nats

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, bias, wanted, lengths, derivative = ctx.saved_tensors
        found = [
            empty(tuple(tensor.shape), x.dtype) if wants else None
            for tensor, wants in zip((x, weight, bias), ctx.needs_input_grad, strict=False)
        ]
        stride = 0 if not any(gradient.stride()) else 1  # of a sum: one value for all
        gradient = gradient if stride == 0 else gradient.contiguous()
        d_x, d_weight, d_bias = map(address, found)
        call = _call(
            x, weight, bias, wanted, lengths, ctx.how, 0.0, derivative, d_losses=gradient.data_ptr(),
            d_losses_stride=stride, d_x=d_x, d_weight=d_weight, d_bias=d_bias,
        )  # fmt: skip
        check(loaded_library().weft_cross_entropy_backward(call))
        return *found, None, None, None, None


_apply = applied(_Nats)


def _call(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    wanted: Tensor,
    lengths: Tensor | None,
    how: tuple[int, int, bool, bool, int],
    smoothing: float,
    derivative: Tensor | None,
    *,
    losses: int = 0,
    d_losses: int = 0,
    d_losses_stride: int = 0,
    d_x: int = 0,
    d_weight: int = 0,
    d_bias: int = 0,
) -> bytes:
    rows, steps, inputs = x.shape
    keep, seed, shared_over_time, total, ignore_index = how
    return _pack(
        is_double=x.dtype is torch.float64,
        threads=torch.get_num_threads(),
        rows=rows,
        steps=steps,
        inputs=inputs,
        classes=weight.shape[0],
        x=address(x),
        weight=address(weight),
        bias=address(bias),
        targets=address(wanted),
        lengths=address(lengths),
        ignore_index=ignore_index,
        keep=keep,
        seed=seed,
        shared_over_time=shared_over_time,
        label_smoothing=smoothing,
        sum=total,
        losses=losses,
        d_logits=address(derivative),
        d_losses=d_losses,
        d_losses_stride=d_losses_stride,
        d_x=d_x,
        d_weight=d_weight,
        d_bias=d_bias,
    )
