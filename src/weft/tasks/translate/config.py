"""Settings of translation (`weft train translate`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weft.config import AUTO, setting
from weft.tasks.config import LengthBatchConfig, ModelConfig, TaskTrainConfig
from weft.text.config import PairTextConfig
from weft.training.search_space import Choice, Range, SearchSpace


@dataclass(frozen=True)
class TranslateTextConfig(PairTextConfig):
    """The `text` section."""

    max_vocab_size: int = 4000
    limit: int = setting(0, "number of pairs to read; 0: all", low=0)
    holdout: float = setting(
        0.02, "fraction of the source sentences, with all translations, held out for evaluation without --dev",
        low=0, high=0.9,
    )  # fmt: skip
    max_tokens: int = setting(100, "maximum sentence length; longer pairs are excluded from training", low=1)


@dataclass(frozen=True)
class TranslateModelConfig(ModelConfig):
    """The `model` section. "auto": chosen by the number of pairs and the time limit, by `recipe.py`."""

    cell: str = "gru"
    hidden_size: int = setting(384, "hidden units per layer of the decoder", low=1)
    num_layers: int = setting(1, "number of decoder layers", low=1, high=1000)
    embedding_dim: int = setting(256, "embedding dimension", low=1)
    tied: bool = setting(True, "share the target embedding with the output layer")
    dropout: float = setting(float(AUTO), "dropout rate of layer outputs", low=0, high=0.95, auto=True)
    bidirectional: bool = setting(True, "the encoder reads the source in both directions")
    encoder_cell: str = setting("", "cell of the encoder; empty: the decoder's")
    encoder_hidden_size: int = setting(
        0, "hidden units per direction of the encoder; 0: hidden_size divided among the directions", low=0
    )
    encoder_num_layers: int = setting(0, "number of encoder layers; 0: as many as the decoder's", low=0, high=1000)
    decoder: str = setting(
        "attend_after",
        "use of the source: initial state only, context vector in every step, attention before or after a step",
        choices=("state", "context", "attend_before", "attend_after"),
    )
    attention: str = setting("dot", "attention scoring function", choices=("additive", "bilinear", "dot", "scaled_dot"))


@dataclass(frozen=True)
class TranslateBatchConfig(LengthBatchConfig):
    """The `batch` section."""

    max_tokens: int = setting(800, "maximum number of tokens per batch, padding included, on the longer side", low=1)
    size: int = setting(512, "maximum number of pairs per batch", low=1)


@dataclass(frozen=True)
class TranslateTrainConfig(TaskTrainConfig):
    """The `train` section."""

    epochs: int = setting(AUTO, "passes over the training data", low=0, auto=True)
    optimizer: str = "muon"
    learning_rate: float = 0.0045
    warmup_steps: int = 200
    ema_decay: float = 0.998
    label_smoothing: float = setting(0.1, "label smoothing: target probability spread over all tokens", low=0, high=0.9)
    scheduled_sampling: float = setting(
        0.0, "scheduled sampling: final probability that a decoder input is the model's own prediction", low=0, high=1
    )


@dataclass(frozen=True)
class TranslateConfig:
    """All settings of `weft train translate`."""

    text: TranslateTextConfig = field(default_factory=TranslateTextConfig)
    model: TranslateModelConfig = field(default_factory=TranslateModelConfig)
    batch: TranslateBatchConfig = field(default_factory=TranslateBatchConfig)
    train: TranslateTrainConfig = field(default_factory=TranslateTrainConfig)

    search_space: ClassVar[SearchSpace] = {
        "train.learning_rate": Range(8e-4, 8e-3, log=True),
        "train.weight_decay": Range(1e-3, 0.3, log=True),
        "train.label_smoothing": Range(0.0, 0.2),
        "model.hidden_size": Choice((256, 384, 512)),
        "model.embedding_dim": Choice((128, 256, 384)),
        "model.num_layers": Choice((1, 2)),
        "model.dropout": Range(0.0, 0.4),
        "model.attention": Choice(("dot", "scaled_dot", "additive")),
        "batch.max_tokens": Choice((400, 800, 1600)),
    }
