"""What a number of an evaluation, or a loss, says: its name, its unit, what is counted, which direction is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

Statistics = TypeVar("Statistics", bound="Additive")

LONGEST_NAME = 200  # of what a run from a stranger may say


def plural(noun: str) -> str:
    """The plural of what is counted.

    >>> plural("text"), plural("series")
    ('texts', 'series')
    """
    return noun if noun.endswith("s") else f"{noun}s"


@dataclass(frozen=True)
class Metric:
    """The description of a metric. Runs, progress lines, plots, comparisons and the page print what stands here.

    Attributes:
        name: its name in reports, such as "cross_entropy" or "mean_absolute_error".
        unit: of its values, such as "nats" or "mm"; empty: it has none.
        per: what is counted, of which it is the mean, such as "token" or "day".
        higher_is_better: its direction, by which the best weights are chosen.
        of_loss: its value where the loss has a given value, for a metric that is a function of the loss.

    >>> Metric("mean_absolute_error", "mm", "day").label
    'mm per day'
    """

    name: str
    unit: str = ""
    per: str = "example"
    higher_is_better: bool = False
    of_loss: Callable[[float], float] | None = field(default=None, compare=False, repr=False)

    def of(self, per: str) -> Metric:
        """The same metric as a mean of something else."""
        return replace(self, per=per)

    @property
    def label(self) -> str:
        """What an axis of its values says."""
        return f"{self.unit} per {self.per}" if self.unit else self.name

    def show(self, value: float, digits: str = ".3f") -> str:
        """The name and a value, in a line for people."""
        return f"{self.name} {value:{digits}}{self.unit and f' {self.unit}'}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "unit": self.unit, "per": self.per, "higher_is_better": self.higher_is_better}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Metric:
        """The inverse of `to_json`.

        Raises:
            ValueError: the data is not that of a metric.
        """
        if not isinstance(data, Mapping) or set(data) != {"name", "unit", "per", "higher_is_better"}:
            raise ValueError("it is not a metric")
        texts = (data["name"], data["unit"], data["per"])
        short = all(isinstance(text, str) and len(text) <= LONGEST_NAME for text in texts)
        if not short or not isinstance(data["higher_is_better"], bool):
            raise ValueError("it is not a metric")
        return cls(*texts, data["higher_is_better"])


MEAN_ABSOLUTE_ERROR = Metric("mean_absolute_error", per="value")


class Additive:
    """Sufficient statistics as a dataclass: those of two parts of the data are added field by field."""

    def __add__(self: Statistics, other: Statistics) -> Statistics:
        names = [one.name for one in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))
