"""Settings of fill-in-the-blank models (`weft train fill`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weft.config import Settings, setting
from weft.tasks.config import LayerRates, ModelConfig
from weft.text.config import CorpusConfig
from weft.training.search_space import Choice, Range, SearchSpace


@dataclass(frozen=True)
class FillTextConfig(CorpusConfig):
    """The `text` section."""

    tokenizer: str = setting("word", "unit of a token and of a blank", choices=("char", "word", "subword"))
    lower: bool = True
    min_count: int = 2


@dataclass(frozen=True)
class FillModelConfig(ModelConfig):
    """The `model` section."""

    hidden_size: int = setting(128, "hidden units per layer and direction", low=1)
    embedding_dim: int = 128
    tied: bool = True
    bidirectional: bool = setting(True, "use the context on both sides of a blank; false: only the left context")


@dataclass(frozen=True)
class FillBatchConfig(Settings):
    """The `batch` section."""

    size: int = setting(16, "rows per batch", low=1, option="--batch-size")
    seq_length: int = setting(32, "tokens per row", low=2)
    mask_rate: float = setting(0.2, "fraction of a row's tokens that are masked", low=0, high=0.5)


@dataclass(frozen=True)
class FillConfig:
    """All settings of `weft train fill`."""

    text: FillTextConfig = field(default_factory=FillTextConfig)
    model: FillModelConfig = field(default_factory=FillModelConfig)
    batch: FillBatchConfig = field(default_factory=FillBatchConfig)
    train: LayerRates = field(default_factory=LayerRates)

    search_space: ClassVar[SearchSpace] = {
        "train.learning_rate": Range(5e-4, 2e-2, log=True),
        "train.weight_decay": Range(1e-3, 0.3, log=True),
        "model.cell": Choice(("lstm", "gru")),
        "model.hidden_size = model.embedding_dim": Choice((64, 128, 192, 256)),
        "model.dropout": Range(0.0, 0.6),
        "batch.size": Choice((8, 16, 32)),
        "batch.seq_length": Choice((32, 64)),
        "batch.mask_rate": Range(0.05, 0.4),
    }
