"""The field of values: steps of one or more numbers, such as the channels of a sensor over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.data.column import Array
from weft.data.field import Field
from weft.errors import WeftError


@dataclass(frozen=True)
class Values(Field[Any]):
    """Rows of numbers (T, C), stored with mean 0 and standard deviation 1 in each of the C channels.

    >>> field = Values.fit([[[1.0, 10.0], [3.0, 30.0]]], ["speed", "load"])
    >>> field.encode([[3.0, 10.0]]).tolist(), field.decode([[1.0, -1.0]]).tolist(), field.names([[0, 0], [0, 0]])
    ([[1.0, -1.0]], [[3.0, 10.0]], ('1', '2'))
    """

    channels: tuple[str, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    @classmethod
    def fit(cls, values: Iterable[Any], settings: Sequence[str] | None = None) -> Values:
        """The field of values; `settings` are the names of the channels, by default their numbers from 1."""
        rows = [_numbers(value, None) for value in values]
        if not rows or not sum(map(len, rows)) or len({row.shape[1] for row in rows}) > 1:
            raise WeftError("the values have no steps, or not the same channels", expected="rows of equal width")
        joined = np.concatenate(rows)
        names = tuple(settings or map(str, range(1, joined.shape[1] + 1)))
        if len(names) != joined.shape[1]:
            raise WeftError(f"there are {len(names)} names of channels", expected=f"{joined.shape[1]}")
        deviations = joined.std(0)
        return cls(names, tuple(joined.mean(0).tolist()), tuple(np.where(deviations > 0, deviations, 1.0).tolist()))

    def encode(self, value: Any) -> Array:
        """The values (T, C) as they are stored, in single precision."""
        scaled = (_numbers(value, self.channels) - self.means) / self.deviations
        return scaled.astype(np.float32)

    def decode(self, row: Any) -> Array:
        return np.asarray(row, np.float64) * self.deviations + self.means

    def names(self, value: Any) -> tuple[str, ...]:
        """The numbers of the steps, from 1."""
        return tuple(map(str, range(1, len(value) + 1)))

    @property
    def schema(self) -> dict[str, Any]:
        count = len(self.channels)
        step = {"type": "array", "items": {"type": "number"}, "minItems": count, "maxItems": count}
        return {"type": "array", "items": step, "minItems": 1}

    def to_json(self) -> dict[str, Any]:
        return {"channels": list(self.channels), "means": list(self.means), "deviations": list(self.deviations)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Values:
        channels, means, deviations = (tuple(data[name]) for name in ("channels", "means", "deviations"))
        finite = all(type(number) in (int, float) and math.isfinite(number) for number in (*means, *deviations))
        if not finite or not all(isinstance(name, str) for name in channels) or min(deviations, default=0) <= 0:
            raise ValueError("the channels of values are names, with finite means and deviations above 0")
        if not len(channels) == len(means) == len(deviations):
            raise ValueError("the channels of values have a mean and a deviation each")
        return cls(channels, means, deviations)


def _numbers(value: Any, channels: Sequence[str] | None) -> Array:
    """A value as an array (T, C); a single channel may be a plain list."""
    try:
        found = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise WeftError(f"a value is {str(value)[:60]}", expected="rows of numbers") from error
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or not np.isfinite(found).all() or (channels and found.shape[1] != len(channels)):
        wanted = f"{len(channels)} in each step ({', '.join(channels)})" if channels else "rows of equal width"
        raise WeftError(f"a value has the shape {found.shape}", expected=f"finite numbers, {wanted}")
    return found
