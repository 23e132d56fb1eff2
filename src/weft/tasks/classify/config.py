"""The settings of `weft train classify`."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.config import setting
from weft.text.config import TextConfig
from weft.training.config import TrainConfig


@dataclass(frozen=True)
class LabelledConfig:
    """Where text and label stand in a file of examples. What is left open is guessed from its first lines."""

    format: str = setting(
        "auto", "how the file is written; csv is quoted", choices=("auto", "tsv", "csv", "jsonl", "lines")
    )
    header: str = setting("auto", "whether the first row names the columns", choices=("auto", "yes", "no"))
    text: int | str = setting("", "column of the text: its name, or its number from 1; empty: guessed")
    label: int | str = setting("", "column of the label: its name, or its number from 1; empty: guessed")
    max_tokens: int = setting(2000, "of a longer text only the beginning and the end are read", low=2)


@dataclass(frozen=True)
class ClassifyTextConfig(TextConfig):
    level: str = setting("word", "what a token is; a Chinese character is a word", choices=("char", "word", "subword"))
    lower: bool = setting(True, "turn text to lower case")
    min_count: int = setting(2, "tokens seen less often become <unk>", low=1)
    limit: int = setting(0, "train on so many examples only, chosen by chance; 0: all", low=0)
    holdout: float = setting(0.1, "share of the examples held out by chance when no --dev is given", low=0, high=0.9)


@dataclass(frozen=True)
class ClassifyModelConfig:
    cell: str = setting("lstm", "the recurrent cell, a name of weft.cells.CELLS")
    hidden: int = setting(128, "hidden units of each layer, in each direction", low=1)
    layers: int = setting(1, "layers", low=1)
    bidirectional: bool = setting(True, "read from both ends")
    residual: bool = setting(False, "add a layer's input to its output")
    pooling: str = setting(
        "max", "from the states of all tokens to one vector", choices=("last", "mean", "max", "attention")
    )
    embedding: int = setting(256, "numbers that stand for a token; 0: its one-hot vector", low=0)
    vectors: str = setting("", "a text file of word vectors (word2vec, GloVe) to begin with")
    word_dropout: float = setting(0.1, "share of tokens read as <unk> while training", low=0, high=0.95)
    embedding_dropout: float = setting(0.6, "share of the embedding's numbers dropped while training", low=0, high=0.95)
    recurrent_dropout: float = setting(
        0.0, "share of a state's units dropped while training, the same at all steps", low=0, high=0.95
    )
    dropout: float = setting(0.5, "share dropped between layers and before the output while training", low=0, high=0.95)


@dataclass(frozen=True)
class ExampleBatchConfig:
    tokens: int = setting(16384, "most tokens of a batch, padding included", low=1)
    rows: int = setting(32, "most texts of a batch", low=1)


@dataclass(frozen=True)
class ClassifyTrainConfig(TrainConfig):
    epochs: int = setting(6, "passes over the examples", low=0)
    rate: float = setting(0.0015, "learning rate", low=0)
    average: float = setting(
        0.99, "weights are judged and kept as running means with so much memory, such as 0.999; 0: as they are",
        low=0, high=0.99999,
    )  # fmt: skip
    class_weights: str = setting(
        "none", "balanced: rare labels count as much as frequent ones; or numbers, as spam=3, ham=0.5, others 1"
    )


@dataclass(frozen=True)
class ClassifyConfig:
    """The settings of `weft train classify`."""

    data: LabelledConfig = field(default_factory=LabelledConfig)
    text: ClassifyTextConfig = field(default_factory=ClassifyTextConfig)
    model: ClassifyModelConfig = field(default_factory=ClassifyModelConfig)
    batch: ExampleBatchConfig = field(default_factory=ExampleBatchConfig)
    train: ClassifyTrainConfig = field(default_factory=ClassifyTrainConfig)
