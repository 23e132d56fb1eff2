"""What every probe returns: plain data with names, as JSON and as a table."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from weft.results import Array as Array
from weft.results import PlainResult


@dataclass(frozen=True, eq=False)
class ProbeResult(PlainResult):
    """Base class of the results of probes."""


def to_array(tensor: Tensor) -> Array:
    """A tensor as a numpy array of float64."""
    return tensor.detach().double().cpu().numpy()
