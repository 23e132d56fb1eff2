"""The settings of `weft train translate`."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.config import setting
from weft.tasks.config import ModelConfig
from weft.text.config import PairTextConfig
from weft.training.config import TrainConfig


@dataclass(frozen=True)
class TranslateTextConfig(PairTextConfig):
    max_size: int = setting(4000, "largest vocabulary, reserved symbols included; 0: no limit (subword: 2000)", low=0)
    limit: int = setting(0, "read only so many pairs; 0: all", low=0)
    holdout: float = setting(
        0.02, "share of the source sentences held out, with all their translations, when no --dev is given",
        low=0, high=0.9,
    )  # fmt: skip
    max_tokens: int = setting(100, "longest sentence; pairs with a longer one are left out of training", low=1)


@dataclass(frozen=True)
class TranslateModelConfig(ModelConfig):
    cell: str = setting("gru", "the recurrent cell, a name of weft.cells.CELLS")
    hidden: int = setting(384, "hidden units of each layer of the decoder", low=1)
    layers: int = setting(1, "layers of the decoder", low=1)
    embedding: int = setting(256, "numbers that stand for a token", low=1)
    tied: bool = setting(True, "use the target's embedding as the output weights too")
    dropout: float = setting(0.1, "share of a layer's outputs dropped while training", low=0, high=0.95)
    bidirectional: bool = setting(True, "the encoder reads the source from both ends")
    encoder_cell: str = setting("", "the encoder's cell; empty: the decoder's")
    encoder_hidden: int = setting(0, "hidden units of the encoder, in each direction; 0: together the decoder's", low=0)
    encoder_layers: int = setting(0, "layers of the encoder; 0: as many as the decoder has", low=0)
    decoder: str = setting(
        "attend_after",
        "how the source comes in: by the state alone, as a context in every step, by attention before or after a step",
        choices=("state", "context", "attend_before", "attend_after"),
    )
    attention: str = setting("dot", "how attention scores", choices=("additive", "bilinear", "dot", "scaled_dot"))


@dataclass(frozen=True)
class TranslateBatchConfig:
    tokens: int = setting(800, "most tokens of a batch, padding included, in its longer language", low=1)
    size: int = setting(512, "most pairs of a batch", low=1)


@dataclass(frozen=True)
class TranslateTrainConfig(TrainConfig):
    epochs: int = setting(4, "passes over the pairs", low=0)
    rate: float = setting(0.003, "learning rate", low=0)
    warmup: int = setting(200, "cosine: steps until the full rate, at most a quarter of all", low=0)
    average: float = setting(
        0.998, "weights are judged and kept as running means with so much memory, such as 0.999; 0: as they are",
        low=0, high=0.99999,
    )  # fmt: skip
    smoothing: float = setting(0.1, "share of each target's probability spread over all tokens", low=0, high=0.9)
    sampling: float = setting(
        0.0, "share of the decoder's inputs that are its own guesses by the end of training (scheduled sampling)",
        low=0, high=1,
    )  # fmt: skip


@dataclass(frozen=True)
class TranslateConfig:
    """The settings of `weft train translate`."""

    text: TranslateTextConfig = field(default_factory=TranslateTextConfig)
    model: TranslateModelConfig = field(default_factory=TranslateModelConfig)
    batch: TranslateBatchConfig = field(default_factory=TranslateBatchConfig)
    train: TranslateTrainConfig = field(default_factory=TranslateTrainConfig)
