"""Quantization: the recurrent weights of a finished model in int8, for inference.

Each row of a weight has a scale: w is about scale * q, with q a whole number from -127 to 127. The engine multiplies
int8 weights by int8 activations, whose scales it finds row by row as it runs; sums are exact, states and gates are
float32.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TypeVar

from torch import nn

from weft.cells import Cell
from weft.engine import is_quantized, quantize_cell
from weft.errors import WeftError
from weft.nn.freezing import keep_packed

Quantized = TypeVar("Quantized")


def quantize(model: Quantized) -> Quantized:
    """Returns a copy of a model whose recurrent layers have int8 weights, for inference.

    The weights of recurrent cells take a quarter of the memory. Embeddings, output layers, biases and everything else
    stay as they are. The copy is in evaluation mode, and its parameters have no gradients.

    Args:
        model: a module with weft's recurrent layers, or what `weft.load` returns.

    Returns:
        The copy.

    Raises:
        WeftError: there is nothing to quantize.

    >>> import torch
    >>> from weft.nn import LSTMCell, Recurrent
    >>> layer = quantize(Recurrent(LSTMCell(64, 64)))
    >>> layer.cell.weight_hh_int8.dtype, layer(torch.zeros(1, 2, 64))[0].shape
    (torch.int8, torch.Size([1, 2, 64]))
    """
    if not isinstance(model, nn.Module):
        if not isinstance(getattr(model, "model", None), nn.Module):
            raise WeftError(f"quantize: {type(model).__name__}", expected="a module, or a recurrent model of weft.load")
        return replace(model, model=quantize(model.model))  # type: ignore[type-var,attr-defined]
    quantized = copy.deepcopy(model).eval().requires_grad_(False)
    cells = [module for module in quantized.modules() if isinstance(module, Cell) and not is_quantized(module)]
    if not cells:
        raise WeftError(
            f"quantize: {type(model).__name__} has no recurrent cells of weft in float32",
            expected="a model with Recurrent, Bidirectional or Stack layers",
        )
    for cell in cells:
        quantize_cell(cell)
    keep_packed(quantized)
    return quantized
