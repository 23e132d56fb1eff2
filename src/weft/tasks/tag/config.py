"""Settings of sequence tagging and word segmentation (`weft train tag`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weft.config import AUTO, setting
from weft.tasks.config import EncoderConfig, ExamplesConfig, LayerRates, LengthBatchConfig
from weft.text.config import NORMALIZATIONS
from weft.training.search_space import Choice, Range, SearchSpace

LONGEST_MATCH = 20  # characters of the longest words that can be looked up in a text


@dataclass(frozen=True)
class TagDataConfig(ExamplesConfig):
    """The `data` section: the columns of a file of tagged sentences or series, and the vocabulary built from it."""

    task: str = setting(
        "tags", "tags: learn a tag for each word; segments: learn to segment text into words",
        choices=("tags", "segments"), option="--segment=segments",
    )  # fmt: skip
    tag_column: int | str = setting(
        "", "column of the tags: a CoNLL-U name, a number from 1, or -1 for the last; empty: upos, else the last",
        option="--column",
    )  # fmt: skip
    word_column: int | str = setting("", "column of the words; empty: form, else the first")
    scheme: str = setting(
        "auto", "span scheme of the tags; none: tags are not spans",
        choices=("auto", "none", "bio", "bioes", "bilou", "bmes", "bmewo"),
    )  # fmt: skip
    invalid_spans: str = setting("repair", "how to treat spans that violate the scheme", choices=("repair", "refuse"))
    unknown_tags: str = setting(
        "refuse", "how to treat tags of --dev that --data lacks; count: as errors", choices=("refuse", "count")
    )
    strict: bool = setting(
        False, "refuse sentences that lack a word or a tag; else they are left out and counted", option="--strict"
    )
    normalization: str = setting("NFC", "Unicode normalization form", choices=NORMALIZATIONS)
    lower: bool = setting(True, "look words up in lower case; their characters are read unchanged")
    min_count: int = setting(1, "replace words with a lower count by <unk>", low=1)
    min_bigram_count: int = setting(2, "segments: replace character bigrams with a lower count by <unk>", low=1)
    match_length: int = setting(
        5, "segments: characters of the longest training words that are looked up in a text; 0: none",
        low=0, high=LONGEST_MATCH,
    )  # fmt: skip
    max_length: int = setting(1000, "split longer training sentences into parts of this many words", low=2)
    holdout: float = setting(0.1, "fraction of the sentences held out for evaluation without --dev", low=0, high=0.9)


@dataclass(frozen=True)
class TagModelConfig(EncoderConfig):
    """The `model` section."""

    hidden_size: int = 160
    embedding_dim: int = setting(100, "dimension of word embeddings (segments: of characters); 0: none", low=0)
    shape_dim: int = setting(16, "dimension of word shape embeddings (upper case, digits); 0: none", low=0)
    char_dim: int = setting(32, "dimension of the embeddings of a word's characters; 0: none", low=0)
    char_hidden_size: int = setting(48, "hidden units per direction of the character encoder", low=1)
    bigram_dim: int = setting(64, "segments: dimension of character bigram embeddings; 0: none", low=0)
    match_dim: int = setting(32, "segments: dimension of the embeddings of matching words; 0: none", low=0)
    output: str = setting("crf", "crf: tags are predicted jointly; softmax: independently", choices=("crf", "softmax"))
    span_calibration: bool = setting(True, "spans: calibrate the span-start bias of each type on held-out data")
    neighbour_loss_weight: float = setting(
        0.1, "spans, segments: weight of the auxiliary loss of predicting the neighbouring tokens; 0: none", low=0
    )
    word_dropout_alpha: float = setting(
        2.0, "a word with count n is replaced by <unk> in training with probability alpha / (alpha + n)", low=0
    )
    embedding_dropout: float = 0.4
    dropout: float = 0.4


@dataclass(frozen=True)
class TagBatchConfig(LengthBatchConfig):
    """The `batch` section."""

    max_tokens: int = 300
    mention_replacement: float = setting(
        0.5, "spans of words: probability that a training span is replaced by another of its type", low=0, high=1
    )


@dataclass(frozen=True)
class TagTrainConfig(LayerRates):
    """The `train` section."""

    epochs: int = setting(
        AUTO, "passes over the training sentences; auto: 14, of few series more, for 400 steps", low=0, auto=True
    )
    ema_decay: float = 0.995


@dataclass(frozen=True)
class TagConfig:
    """All settings of `weft train tag`."""

    data: TagDataConfig = field(default_factory=TagDataConfig)
    model: TagModelConfig = field(default_factory=TagModelConfig)
    batch: TagBatchConfig = field(default_factory=TagBatchConfig)
    train: TagTrainConfig = field(default_factory=TagTrainConfig)

    search_space: ClassVar[SearchSpace] = {
        "train.learning_rate": Range(1e-3, 1e-2, log=True),
        "train.weight_decay": Range(1e-3, 0.3, log=True),
        "train.epochs": Range(8, 24),
        "model.hidden_size": Choice((96, 128, 160, 224)),
        "model.embedding_dim": Choice((64, 100, 150)),
        "model.char_hidden_size": Choice((32, 48, 64)),
        "model.embedding_dropout": Range(0.1, 0.6),
        "model.dropout": Range(0.1, 0.6),
        "model.word_dropout_alpha": Range(0.25, 4.0, log=True),
        "batch.max_tokens": Choice((200, 300, 600)),
    }
