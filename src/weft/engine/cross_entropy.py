"""An output layer and its cross-entropy as one operation.

It computes logits only where there is a target, writes the matrix of logits once, as the derivative of the loss, and
stores no dropout masks.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from weft import abi
from weft.abi import Precision
from weft.engine.autograd import apply_of, differentiable_gradients, one_at_a_time
from weft.engine.cells import check_lengths
from weft.engine.dropout import NO_DROPOUT, Dropout, drop_with_seed
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.engine.precision import current_precision
from weft.engine.tensors import address, as_int64
from weft.engine.threads import thread_count
from weft.errors import TensorError

IGNORE_INDEX = -100  # as torch's cross-entropy has it
_pack = abi.packer(abi.CrossEntropyCall)


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    lengths: Tensor | None = None,
    label_smoothing: float = 0.0,
    dropout: Dropout = NO_DROPOUT,
    reduction: Literal["none", "sum"] = "none",
    ignore_index: int = IGNORE_INDEX,
) -> Tensor:
    """The cross-entropy, in nats, of targets under the logits x weight^T + bias.

    Args:
        x: (B, T, I).
        weight: (V, I).
        bias: (V), or None.
        targets: ids (B, T).
        lengths: (B), or None: every row has T steps. The loss past a row's length is exactly 0.
        label_smoothing: with s, the loss is -(1 - s) log p_target - s mean(log p).
        dropout: on x.
        reduction: "none" gives (B, T), "sum" the sum of all losses.
        ignore_index: a target whose loss is exactly 0.

    >>> linear_cross_entropy(torch.zeros(1, 2, 3), torch.zeros(10, 3), None, torch.tensor([[4, -100]]))
    tensor([[2.3026, 0.0000]])
    """
    _check(x, weight, bias, targets, lengths)
    if not (reads(x, weight) if bias is None else reads(x, weight, bias)):
        losses = _plain(x, weight, bias, targets.to(x.device), lengths, label_smoothing, dropout, ignore_index)
        return losses.sum() if reduction == "sum" else losses
    return _apply(  # type: ignore[no-any-return]
        x.contiguous(),
        weight.contiguous(),
        None if bias is None else bias.contiguous(),
        as_int64(targets),
        None if lengths is None else as_int64(lengths),
        label_smoothing,
        (*dropout.draw(), reduction == "sum", ignore_index, current_precision()),
    )


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, lengths: Tensor | None) -> None:
    shape, sizes = x.shape, weight.shape
    wrong = len(shape) != 3 or targets.shape != shape[:2] or len(sizes) != 2 or sizes[1] != shape[2]
    if wrong or (bias is not None and bias.shape != sizes[:1]):
        given_bias = "no bias" if bias is None else f"a bias {tuple(bias.shape)}"
        raise TensorError(
            f"linear_cross_entropy: x {tuple(x.shape)}, a weight {tuple(weight.shape)}, {given_bias}, "
            f"targets {tuple(targets.shape)}",
            expected="x (B, T, I), a weight (V, I), a bias (V), targets (B, T)",
        )
    if lengths is not None:
        if lengths.shape != shape[:1]:
            raise TensorError(
                f"linear_cross_entropy: lengths {tuple(lengths.shape)}", expected=f"({shape[0]},), one for each row"
            )
        check_lengths("linear_cross_entropy", lengths, shape[1])


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    lengths: Tensor | None,
    label_smoothing: float,
    dropout: Dropout,
    ignore_index: int,
) -> Tensor:
    """The same in torch."""
    x = dropout.apply(x)
    if lengths is not None:
        past = torch.arange(x.shape[1], device=x.device) >= lengths.to(x.device)[:, None]
        targets = targets.masked_fill(past, ignore_index)
    counted = targets != ignore_index
    logits = F.linear(x[counted], weight, bias)
    losses = F.cross_entropy(logits, targets[counted], reduction="none", label_smoothing=label_smoothing)
    return torch.zeros_like(targets, dtype=losses.dtype).masked_scatter(counted, losses)


# keep, seed, shared over time; whether only the sum; ignore_index; precision
_Settings = tuple[int, int, bool, bool, int, Precision]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        lengths: Tensor | None,
        label_smoothing: float,
        settings: _Settings,
    ) -> Tensor:
        losses, d_logits = torch.empty(() if settings[3] else targets.shape, dtype=x.dtype), None
        if any(ctx.needs_input_grad):
            tokens = targets.numel() if lengths is None else sum(lengths.tolist())
            d_logits = empty((tokens, weight.shape[0]), x.dtype)
        ctx.settings, ctx.label_smoothing = settings, label_smoothing
        ctx.save_for_backward(x, weight, bias, targets, lengths, d_logits)
        call = _call(x, weight, bias, targets, lengths, settings, label_smoothing, d_logits, losses=address(losses))
        check(loaded_library().weft_cross_entropy(call))
        return losses

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, bias, targets, lengths, d_logits = ctx.saved_tensors
        if torch.is_grad_enabled():  # a graph of the gradients is wanted
            keep, seed, shared_over_time, total, ignore_index, _ = ctx.settings

            def again(x: Tensor, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
                x = drop_with_seed(x, keep, seed, shared_over_time) if keep else x
                losses = _plain(x, weight, bias, targets, lengths, ctx.label_smoothing, NO_DROPOUT, ignore_index)
                return [losses.sum() if total else losses]

            found = differentiable_gradients(again, (x, weight, bias), (gradient,), ctx.needs_input_grad[:3])
            return *found, None, None, None, None
        found = [
            empty(tuple(tensor.shape), x.dtype) if wants else None
            for tensor, wants in zip((x, weight, bias), ctx.needs_input_grad, strict=False)
        ]
        stride = 0 if not any(gradient.stride()) else 1  # the gradient of a sum is one value for all
        gradient = gradient if stride == 0 else gradient.contiguous()
        d_x, d_weight, d_bias = map(address, found)
        call = _call(
            x, weight, bias, targets, lengths, ctx.settings, 0.0, d_logits, d_losses=gradient.data_ptr(),
            d_losses_stride=stride, d_x=d_x, d_weight=d_weight, d_bias=d_bias,
        )  # fmt: skip
        check(loaded_library().weft_cross_entropy_backward(call))
        return *found, None, None, None, None


_apply = apply_of(_CrossEntropy)


def _call(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    lengths: Tensor | None,
    settings: _Settings,
    label_smoothing: float,
    d_logits: Tensor | None,
    *,
    losses: int = 0,
    d_losses: int = 0,
    d_losses_stride: int = 0,
    d_x: int = 0,
    d_weight: int = 0,
    d_bias: int = 0,
) -> bytes:
    rows, steps, inputs = x.shape
    keep, seed, shared_over_time, total, ignore_index, precision = settings
    return _pack(
        is_double=x.dtype is torch.float64,
        threads=thread_count(),
        rows=rows,
        steps=steps,
        inputs=inputs,
        classes=weight.shape[0],
        x=address(x),
        weight=address(weight),
        bias=address(bias),
        targets=address(targets),
        lengths=address(lengths),
        ignore_index=ignore_index,
        keep=keep,
        seed=seed,
        shared_over_time=shared_over_time,
        label_smoothing=label_smoothing,
        precision=precision,
        sum=total,
        losses=losses,
        d_logits=address(d_logits),
        d_losses=d_losses,
        d_losses_stride=d_losses_stride,
        d_x=d_x,
        d_weight=d_weight,
        d_bias=d_bias,
    )
