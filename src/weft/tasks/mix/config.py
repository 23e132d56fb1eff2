"""Settings of a mixture of language models (`weft mix`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.config import Settings, setting
from weft.text.config import CorpusConfig


@dataclass(frozen=True)
class MixModelConfig(Settings):
    """The `model` section."""

    cache: bool = setting(True, "whether a neural cache over the first recurrent model is one of the parts")
    cache_size: int = setting(2000, "tokens that the cache holds", low=1, high=100_000)


@dataclass(frozen=True)
class MixConfig:
    """All settings of `weft mix`. `text` is that of the parts."""

    text: CorpusConfig = field(default_factory=CorpusConfig)
    model: MixModelConfig = field(default_factory=MixModelConfig)
