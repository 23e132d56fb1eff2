"""The settings of `weft train lm`."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.config import setting
from weft.tasks.config import ModelConfig
from weft.text.config import TextConfig
from weft.training.config import TrainConfig


@dataclass(frozen=True)
class BatchConfig:
    size: int = setting(32, "rows of a batch", low=1)
    steps: int = setting(35, "steps of a row", low=1)
    sampling: str = setting(
        "sequential",
        "sequential: adjacent batches continue each other, state carried; random: windows anywhere, fresh state",
        choices=("sequential", "random"),
    )


@dataclass(frozen=True)
class BpttConfig:
    method: str = setting(
        "full",
        "how far gradients flow: full window; each prediction exactly `steps` back; cut at random, unbiased",
        choices=("full", "truncated", "randomized"),
    )
    steps: int = setting(16, "truncated: steps a gradient flows back", low=1)
    keep: float = setting(0.9, "randomized: chance that a gradient goes on to the step before", low=0.01, high=1)


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    embedding: int = setting(128, "numbers that stand for a token; 0: its one-hot vector", low=0)


@dataclass(frozen=True)
class LanguageTrainConfig(TrainConfig):
    epochs: int = setting(26, "passes over the text", low=0)


@dataclass(frozen=True)
class LanguageConfig:
    """The settings of `weft train lm`."""

    text: TextConfig = field(default_factory=TextConfig)
    model: LanguageModelConfig = field(default_factory=LanguageModelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    bptt: BpttConfig = field(default_factory=BpttConfig)
    train: LanguageTrainConfig = field(default_factory=LanguageTrainConfig)
