"""Settings of recurrent language models (`weft train lm`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weft.config import AUTO, Settings, setting
from weft.tasks.config import ModelConfig, TaskTrainConfig
from weft.text.config import CorpusConfig
from weft.training.search_space import Choice, Range, SearchSpace


@dataclass(frozen=True)
class LmModelConfig(ModelConfig):
    """The `model` section. "auto": chosen from the amount of data and the time limit, by `recipe.py`."""

    cell: str = setting(
        "auto", "recurrent cell, a name in weft.cells.CELLS; auto: gru above 1,000 tokens, else lstm", auto=True
    )
    hidden_size: int = setting(AUTO, "hidden units per layer", low=1, auto=True)
    embedding_dim: int = setting(AUTO, "embedding dimension; 0: one-hot", low=0, auto=True)
    dropout: float = setting(
        float(AUTO),
        "dropout rate of layer outputs; above 1,000 tokens also of the embedding",
        low=0,
        high=0.95,
        auto=True,
    )
    recurrent_dropout: float = setting(
        0.0, "dropout rate of the recurrent state, one mask for all steps of a window", low=0, high=0.95
    )
    softmax: str = setting(
        "auto",
        "output layer; adaptive: rare tokens in clusters with shorter, tied embeddings; auto: above 10,000 tokens",
        choices=("auto", "full", "adaptive"),
    )
    ngram_order: int = setting(
        AUTO,
        "order of the n-gram model of the training text that the network is interpolated with; 0: none",
        low=0, high=50, auto=True,
    )  # fmt: skip
    backward: bool = setting(
        False, "also train layers that predict each token from those after it, for `--encoder` of other tasks"
    )


@dataclass(frozen=True)
class LmBatchConfig(Settings):
    """The `batch` section."""

    size: int = setting(32, "rows per batch", low=1, option="--batch-size")
    seq_length: int = setting(35, "steps per row", low=1)
    sampling: str = setting(
        "sequential",
        "sequential: consecutive batches continue each other and carry the state; random: independent windows",
        choices=("sequential", "random"),
    )


@dataclass(frozen=True)
class BpttConfig(Settings):
    """The `bptt` section: backpropagation through time."""

    method: str = setting(
        "full",
        "how far gradients flow: through the window; the same with less memory, for long windows; exactly `steps` "
        "steps; truncated at random, unbiased",
        choices=("full", "checkpointed", "truncated", "randomized"),
    )
    steps: int = setting(16, "truncated: number of steps a gradient flows back", low=1)
    keep_probability: float = setting(
        0.9, "randomized: probability that a gradient flows on to the previous step", low=0.01, high=1
    )


@dataclass(frozen=True)
class LmTrainConfig(TaskTrainConfig):
    """The `train` section."""

    epochs: int = setting(AUTO, "passes over the training data", low=0, auto=True)
    learning_rate: float = setting(float(AUTO), "peak learning rate", low=0, auto=True)
    weight_decay: float = setting(float(AUTO), "adamw: weight decay", low=0, auto=True)


@dataclass(frozen=True)
class LmConfig:
    """All settings of `weft train lm`."""

    text: CorpusConfig = field(default_factory=CorpusConfig)
    model: LmModelConfig = field(default_factory=LmModelConfig)
    batch: LmBatchConfig = field(default_factory=LmBatchConfig)
    bptt: BpttConfig = field(default_factory=BpttConfig)
    train: LmTrainConfig = field(default_factory=LmTrainConfig)

    search_space: ClassVar[SearchSpace] = {
        "train.learning_rate": Range(5e-4, 2e-2, log=True),
        "train.weight_decay": Range(1e-3, 0.3, log=True),
        "model.cell": Choice(("lstm", "gru")),
        "model.hidden_size": Choice((64, 128, 192, 256, 384, 512, 768)),
        "model.embedding_dim": Choice((64, 128, 256)),
        "model.num_layers": Choice((1, 2)),
        "model.dropout": Range(0.0, 0.6),
        "model.recurrent_dropout": Range(0.0, 0.5),
        "batch.size": Choice((16, 32, 64)),
        "batch.seq_length": Choice((35, 70, 140)),
    }
