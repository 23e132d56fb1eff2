"""The settings of `weft train ngram`."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.config import setting
from weft.text.config import TextConfig


@dataclass(frozen=True)
class NgramModelConfig:
    order: int = setting(5, "tokens of the longest n-gram: one is told from the order - 1 before it", low=1, high=50)


@dataclass(frozen=True)
class NgramConfig:
    """The settings of `weft train ngram`."""

    text: TextConfig = field(default_factory=TextConfig)
    model: NgramModelConfig = field(default_factory=NgramModelConfig)
