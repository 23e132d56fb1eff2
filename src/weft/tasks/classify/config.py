"""Settings of text classification (`weft train classify`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weft.config import AUTO, setting
from weft.tasks.config import EncoderConfig, ExamplesConfig, LayerRates, LengthBatchConfig
from weft.text.config import TextConfig
from weft.training.search_space import Choice, Range, SearchSpace


@dataclass(frozen=True)
class ClassifyDataConfig(ExamplesConfig):
    """The `data` section: the format of a file of labelled texts or series. What is not set is inferred."""

    format: str = setting(
        "auto", "file format; csv fields may be quoted", choices=("auto", "tsv", "csv", "jsonl", "lines")
    )
    header: str = setting("auto", "whether the first row holds column names", choices=("auto", "yes", "no"))
    text_column: int | str = setting(
        "", "column of the text: a name, or a number from 1; several, as title,body, are joined; empty: inferred"
    )
    label_column: int | str = setting("", "column of the label: a name, or a number from 1; empty: inferred")
    label_separator: str = setting("", "keep only what stands before it in a label: with : NUM:date is NUM; empty: all")
    encoding: str = setting("utf-8", "encoding of the files, as latin-1 or gb18030", option="--encoding")
    unlabelled: str = setting(
        "", "texts without labels, one per line: trained on with the labels of the teacher", option="--unlabelled"
    )
    teacher: str = setting(
        "", "run of a classifier with the same labels, which labels the texts without labels", option="--teacher"
    )
    strict: bool = setting(
        False, "refuse rows without a text or a label; else they are left out and counted", option="--strict"
    )
    max_tokens: int = setting(2000, "maximum length of a text or series; the middle of a longer one is left out", low=2)


@dataclass(frozen=True)
class ClassifyTextConfig(TextConfig):
    """The `text` section."""

    tokenizer: str = setting(
        "word", "unit of a token; a Chinese character is a word", choices=("char", "word", "subword")
    )
    lower: bool = True
    min_count: int = 2
    limit: int = setting(0, "number of training examples, drawn at random; 0: all", low=0)
    holdout: float = setting(
        0.1, "fraction of the examples, drawn at random, held out for evaluation without --dev", low=0, high=0.9
    )


@dataclass(frozen=True)
class ClassifyModelConfig(EncoderConfig):
    """The `model` section."""

    bidirectional: bool = setting(True, "read in both directions")
    pooling: str = setting(
        "max", "pooling of the states of all tokens into one vector", choices=("last", "mean", "max", "attention")
    )
    word_vectors: str = setting("", "text file of pretrained word vectors (word2vec, GloVe); empty: none")
    word_dropout: float = setting(0.1, "probability that a token is replaced by <unk> in training", low=0, high=0.95)
    embedding_dropout: float = 0.6
    wide: bool = setting(True, "mix the network with linear models of n-grams, of series of convolutions")


@dataclass(frozen=True)
class ClassifyBatchConfig(LengthBatchConfig):
    """The `batch` section."""

    size: int = 32


@dataclass(frozen=True)
class ClassifyTrainConfig(LayerRates):
    """The `train` section."""

    epochs: int = setting(
        AUTO,
        "passes over the training texts; auto: 6, with few more, for 300 steps; of series for 500",
        low=0,
        auto=True,
    )
    learning_rate: float = 0.0015
    ema_decay: float = 0.99
    class_weights: str = setting(
        "none", "weights of the labels in the loss: none, balanced, or values such as spam=3, ham=0.5 (others 1)"
    )


@dataclass(frozen=True)
class ClassifyConfig:
    """All settings of `weft train classify`."""

    data: ClassifyDataConfig = field(default_factory=ClassifyDataConfig)
    text: ClassifyTextConfig = field(default_factory=ClassifyTextConfig)
    model: ClassifyModelConfig = field(default_factory=ClassifyModelConfig)
    batch: ClassifyBatchConfig = field(default_factory=ClassifyBatchConfig)
    train: ClassifyTrainConfig = field(default_factory=ClassifyTrainConfig)

    search_space: ClassVar[SearchSpace] = {
        "train.learning_rate": Range(3e-4, 6e-3, log=True),
        "train.weight_decay": Range(1e-3, 0.3, log=True),
        "train.epochs": Range(3, 12),
        "model.cell": Choice(("lstm", "gru")),
        "model.hidden_size": Choice((64, 128, 192, 256)),
        "model.embedding_dim": Choice((128, 256, 384)),
        "model.embedding_dropout": Range(0.2, 0.8),
        "model.dropout": Range(0.1, 0.7),
        "model.word_dropout": Range(0.0, 0.3),
        "model.pooling": Choice(("max", "mean", "attention")),
        "batch.size": Choice((16, 32, 64)),
    }
