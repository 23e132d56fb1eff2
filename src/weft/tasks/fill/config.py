"""The settings of `weft train fill`."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.config import setting
from weft.tasks.config import ModelConfig
from weft.text.config import TextConfig
from weft.training.config import TrainConfig


@dataclass(frozen=True)
class FillTextConfig(TextConfig):
    level: str = setting("word", "what a token is, and so a blank", choices=("char", "word", "subword"))
    lower: bool = setting(True, "turn text to lower case")
    min_count: int = setting(2, "tokens seen less often become <unk>", low=1)


@dataclass(frozen=True)
class FillModelConfig(ModelConfig):
    hidden: int = setting(128, "hidden units of each layer, in each direction", low=1)
    embedding: int = setting(128, "numbers that stand for a token; 0: its one-hot vector", low=0)
    tied: bool = setting(True, "use the embedding as the output weights too (needs embedding = hidden)")
    bidirectional: bool = setting(True, "read what stands after a blank too; false: only what stands before it")


@dataclass(frozen=True)
class FillBatchConfig:
    size: int = setting(16, "rows of a batch", low=1)
    steps: int = setting(32, "tokens of a row", low=2)
    blanks: float = setting(
        0.2, "share of a row's tokens shown as blanks, so that a text with several is nothing new", low=0, high=0.5
    )


@dataclass(frozen=True)
class FillConfig:
    """The settings of `weft train fill`."""

    text: FillTextConfig = field(default_factory=FillTextConfig)
    model: FillModelConfig = field(default_factory=FillModelConfig)
    batch: FillBatchConfig = field(default_factory=FillBatchConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
