"""Settings of n-gram language models (`weft train ngram`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weft.config import Settings, setting
from weft.text.config import CorpusConfig
from weft.training.search_space import Choice, SearchSpace


@dataclass(frozen=True)
class NgramModelConfig(Settings):
    """The `model` section."""

    order: int = setting(5, "order n: a token is predicted from the n - 1 tokens before it", low=1, high=50)


@dataclass(frozen=True)
class NgramConfig:
    """All settings of `weft train ngram`."""

    text: CorpusConfig = field(default_factory=CorpusConfig)
    model: NgramModelConfig = field(default_factory=NgramModelConfig)

    search_space: ClassVar[SearchSpace] = {
        "model.order": Choice((2, 3, 4, 5, 6, 7, 8)),
    }
