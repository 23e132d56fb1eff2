"""The output layer with its cost: from what a stack gives to the nats of the ids that were wanted.

As one operation it reads out only places that want an id, writes the table of logits once, as its derivative, and needs
no masks for what is dropped.
"""

from __future__ import annotations

from array import array
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.engine.cells import check_lengths
from weft.engine.graph import address, applied, once, whole
from weft.engine.library import check, loaded_library, reads
from weft.engine.memory import empty
from weft.engine.noise import NOTHING, Drop
from weft.errors import WeftError


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
) -> Tensor:
    """The nats (B, T) of the wanted ids (B, T) by the logits x weight^T + bias, of x (B, T, I) and a weight (V, I).

    They are exactly 0 past a row's length and where the wanted id is IGNORED. With smoothing s, a share s of every
    target is spread over all ids: nats = -(1 - s) log p_wanted - s mean(log p). With `total`, their sum: a loss.

    >>> readout_nats(torch.zeros(1, 2, 3), torch.zeros(10, 3), None, torch.tensor([[4, IGNORED]]))
    tensor([[2.3026, 0.0000]])
    """
    _check(x, weight, bias, wanted, lengths)
    if not (reads(x, weight) if bias is None else reads(x, weight, bias)):
        nats = _plain(x, weight, bias, wanted.to(x.device), lengths, smoothing, drop)
        return nats.sum() if total else nats
    return _apply(  # type: ignore[no-any-return]
        x.contiguous(),
        weight.contiguous(),
        None if bias is None else bias.contiguous(),
        whole(wanted),
        None if lengths is None else whole(lengths),
        smoothing,
        (*drop.draw(), total),
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
) -> Tensor:
    """The same by torch."""
    x = drop.apply(x)
    if lengths is not None:
        past = torch.arange(x.shape[1], device=x.device) >= lengths.to(x.device)[:, None]
        wanted = wanted.masked_fill(past, IGNORED)
    asked = wanted != IGNORED
    logits = F.linear(x[asked], weight, bias)
    nats = F.cross_entropy(logits, wanted[asked], reduction="none", label_smoothing=smoothing)
    return torch.zeros_like(wanted, dtype=nats.dtype).masked_scatter(asked, nats)


IGNORED = -100  # a target that is not counted, as in torch's cross_entropy


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
        how: tuple[int, int, bool, bool],
    ) -> Tensor:
        nats, derivative = torch.empty(() if how[-1] else wanted.shape, dtype=x.dtype), None
        if any(ctx.needs_input_grad):
            tokens = wanted.numel() if lengths is None else sum(lengths.tolist())
            derivative = empty((tokens, weight.shape[0]), x.dtype)
        ctx.how = how
        ctx.save_for_backward(x, weight, bias, wanted, lengths, derivative)
        numbers = _numbers(x, weight, bias, wanted, lengths, how, nats, derivative)
        run = loaded_library().weft_read_out
        check(run(numbers.buffer_info()[0], smoothing, torch.get_num_threads(), x.dtype == torch.float64))
        return nats

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, bias, wanted, lengths, derivative = ctx.saved_tensors
        numbers = _numbers(x, weight, bias, wanted, lengths, ctx.how, None, derivative)
        found = [
            empty(tuple(tensor.shape), x.dtype) if wants else None
            for tensor, wants in zip((x, weight, bias), ctx.needs_input_grad, strict=False)
        ]
        each = 0 if not any(gradient.stride()) else 1  # of a sum: one number for all
        gradient = gradient if each == 0 else gradient.contiguous()
        back = array("q", [gradient.data_ptr(), each, *map(address, found)])
        addresses = numbers.buffer_info()[0], back.buffer_info()[0]
        check(loaded_library().weft_read_back(*addresses, torch.get_num_threads(), x.dtype == torch.float64))
        return *found, None, None, None, None


_apply = applied(_Nats)


def _numbers(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    wanted: Tensor,
    lengths: Tensor | None,
    how: tuple[int, int, bool, bool],
    nats: Tensor | None,
    derivative: Tensor | None,
) -> array[int]:
    """As core/readout.hpp reads them."""
    places = map(address, (x, weight, bias, wanted, lengths))
    return array("q", [*x.shape, weight.shape[0], *places, *how, address(nats), address(derivative)])
