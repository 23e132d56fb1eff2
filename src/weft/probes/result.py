"""What every probe returns: plain data with names, and its pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from weft.pictures.figures import Figure
from weft.pictures.page import to_fragment
from weft.results import Array as Array
from weft.results import PlainResult


@dataclass(frozen=True, eq=False)
class ProbeResult(PlainResult):
    """Base class of the results of probes."""

    def figures(self) -> list[Figure]:
        """Its pictures, which `weft.pictures` draws; none unless a result has some."""
        return []

    def _repr_html_(self) -> str | None:
        return "".join(map(to_fragment, self.figures())) or None


def rows_by_step(steps: Sequence[str], **columns: Any) -> Iterator[dict[str, Any]]:
    """A row for each step: its position, what it is, and what each column has there."""
    lists = {name: one.tolist() if isinstance(one, np.ndarray) else one for name, one in columns.items()}
    for position, step in enumerate(steps):
        yield {"position": position, "step": step, **{name: values[position] for name, values in lists.items()}}


def count_values(value: Any) -> int:
    """How many numbers and strings a result has."""
    if isinstance(value, np.ndarray):
        return int(value.size)
    if dataclasses.is_dataclass(value):
        return sum(count_values(getattr(value, field.name)) for field in dataclasses.fields(value))
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else None
    return 1 if parts is None else sum(map(count_values, parts))


def to_array(tensor: Tensor) -> Array:
    """A tensor as a numpy array of float64."""
    return tensor.detach().double().cpu().numpy()
