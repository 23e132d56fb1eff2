"""Settings of recurrent models and their batches, shared by several tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from weft.config import Settings, as_config, setting
from weft.series.reader import AGGREGATES
from weft.training.config import TrainConfig


@dataclass(frozen=True)
class StackConfig(Settings):
    """A stack of recurrent layers."""

    cell: str = setting("lstm", "recurrent cell, a name in weft.cells.CELLS")
    hidden_size: int = setting(256, "hidden units per layer", low=1)
    num_layers: int = setting(1, "number of layers", low=1, high=1000)
    residual: bool = setting(False, "add a residual connection around each layer")
    dropout: float = setting(0.3, "dropout rate of layer outputs", low=0, high=0.95)


@dataclass(frozen=True)
class ModelConfig(StackConfig):
    """The `model` section of a model that predicts tokens."""

    embedding_dim: int = setting(0, "embedding dimension; 0: one-hot", low=0)
    tied: bool = setting(False, "share the embedding with the output layer, through a projection if sizes differ")
    bidirectional: bool = setting(False, "read in both directions (refused where the model would see its target)")


@dataclass(frozen=True)
class EncoderConfig(StackConfig):
    """The `model` section of a model that reads a whole text: a classifier or a tagger."""

    hidden_size: int = setting(128, "hidden units per layer and direction", low=1)
    embedding_dim: int = setting(256, "embedding dimension; 0: one-hot", low=0)
    embedding_dropout: float = setting(0.5, "dropout rate of the embedding", low=0, high=0.95)
    recurrent_dropout: float = setting(
        0.0, "dropout rate of the recurrent state, one mask for all steps", low=0, high=0.95
    )
    dropout: float = setting(0.5, "dropout rate between layers and before the output layer", low=0, high=0.95)


@dataclass(frozen=True)
class TaskTrainConfig(TrainConfig):
    """The `train` section of a task: a new run chooses the precision by the CPU and records it."""

    precision: str = setting(
        "auto",
        "matrix products on the CPU: float32, or bf16 with float32 sums; auto: bf16 if the CPU has AVX512_BF16",
        choices=("float32", "bf16"), auto=True,
    )  # fmt: skip


@dataclass(frozen=True)
class LayerRates(TaskTrainConfig):
    """The `train` section of tasks whose models can start from pretrained layers."""

    layer_decay: float = setting(
        1.0, "factor of the learning rate from each group of layers to the one below; 1: equal", low=0.01, high=1
    )
    unfreeze_epochs: float = setting(
        0.0, "epochs after which the next lower group of layers is trained too; 0: all from the start", low=0
    )


@dataclass(frozen=True)
class LengthBatchConfig(Settings):
    """The `batch` section of tasks whose batches hold examples of similar length."""

    max_tokens: int = setting(16384, "maximum number of tokens per batch, padding included", low=1)
    size: int = setting(64, "maximum number of examples per batch", low=1, option="--batch-size")


@dataclass(frozen=True)
class ExamplesConfig(Settings):
    """The part of the `data` section that says whether examples are texts or series, and how series are read."""

    input: str = setting(
        "auto", "what the examples are: text, or series of numbers; auto: as the data look",
        choices=("auto", "text", "series"),
    )  # fmt: skip
    id: str = setting("", "series: column that names a series; empty: by its name", option="--id")
    time: str = setting("", "series: column of times; empty: by its name", option="--time")
    channels: str = setting("", "series: columns of values, with commas; empty: all numbers", option="--channels")
    freq: str = setting(
        "", "series: step of time, such as h or 10ms; other times are resampled; empty: inferred", option="--freq"
    )
    aggregate: str = setting("mean", "series: how the values of a step are joined in resampling", choices=AGGREGATES)


TEXT_EXAMPLES, SERIES_EXAMPLES = "text", "series"  # the names of their fields and columns
EPOCHS_SETTING = "train.epochs"
SERIES_SETTINGS = ("id", "time", "channels", "freq")  # that texts do not have


def with_input(kind: type[Any], config: Any, input: str) -> Any:
    """The settings of a task with `data.input`, if it has that."""
    if not hasattr(getattr(as_config(kind, None), "data", None), "input"):
        return config
    if config is None or isinstance(config, Mapping):
        return {**(config or {}), "data.input": input}
    return replace(config, data=replace(config.data, input=input))


def with_strict(kind: type[Any], config: Any) -> Any:
    """The settings of a task with `data.strict`, or `text.strict`: rows that lack something are refused."""
    section = "data" if hasattr(as_config(kind, None), "data") else "text"
    if config is None or isinstance(config, Mapping):
        return {**(config or {}), f"{section}.strict": True}
    return replace(config, **{section: replace(getattr(config, section), strict=True)})
