"""The large products outside the loop, through the core's own kernel."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from weft.engine.library import loaded_library
from weft.errors import WeftError


class Product(NamedTuple):
    """target = start + left @ right, or, with `add`, what stands in target + left @ right. Any of them may be a view
    with one dimension that runs along memory; target's must be the second."""

    target: Tensor
    left: Tensor
    right: Tensor
    start: Tensor | None = None
    add: bool = False


def check(code: int) -> None:
    """The core's answers in words."""
    if code == 1:
        raise MemoryError("weft engine: out of memory")
    if code == 2:
        raise WeftError("a token id is outside the vocabulary", expected="ids from 0 to input_size - 1")


def multiply(works: list[Product]) -> None:
    """Products that do not depend on each other, all at once."""
    numbers: list[int] = []
    for target, left, right, start, add in works:
        rows, depth = left.shape
        columns = right.shape[1]
        assert target.shape == (rows, columns)
        assert right.shape[0] == depth
        a_row, a_depth = left.stride()
        b_depth, b_column = right.stride()
        # A dimension of size one has whatever stride torch gave it; the core needs one of the two to be 1.
        a_row, a_depth = (a_row, 1) if a_depth == 1 or depth == 1 else (1, a_depth)
        b_depth, b_column = (b_depth, 1) if b_column == 1 or columns == 1 else (1, b_column)
        numbers += [rows, columns, depth, left.data_ptr(), a_row, a_depth, right.data_ptr(), b_depth, b_column]
        numbers += [target.data_ptr(), target.stride(0), 0 if start is None else start.data_ptr(), int(add)]
    if works:
        array = (ctypes.c_int64 * len(numbers))(*numbers)
        is_double = works[0].target.dtype == torch.float64
        check(loaded_library().weft_products(array, len(works), torch.get_num_threads(), is_double))


def add_by_id(ids: Tensor, values: Tensor, count: int) -> Tensor:
    """(count, columns): the sum of the rows of `values` (N, columns) that have each id."""
    result = values.new_zeros(count, values.shape[1])
    code = loaded_library().weft_scatter_add(
        ids.data_ptr(),
        ids.shape[0],
        values.data_ptr(),
        values.shape[1],
        result.data_ptr(),
        torch.get_num_threads(),
        values.dtype == torch.float64,
    )
    check(code)
    return result
