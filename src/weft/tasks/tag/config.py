"""The settings of `weft train tag`."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.config import setting
from weft.training.config import TrainConfig


@dataclass(frozen=True)
class TagDataConfig:
    """Where words and tags stand in a file, and what is made of them."""

    task: str = setting(
        "tags", "tags: a tag for each word; segments: words in a text without spaces", choices=("tags", "segments")
    )
    column: int | str = setting(
        "", "column of the tags: a name of CoNLL-U, a number from 1, or -1 for the last; empty: upos, else the last"
    )
    words: int | str = setting("", "column of the words; empty: form, or the first one")
    scheme: str = setting(
        "auto", "how spans are written in the tags; none: tags are not spans",
        choices=("auto", "none", "bio", "bioes", "bilou", "bmes", "bmewo"),
    )  # fmt: skip
    broken: str = setting(
        "repair", "what to do with a span that does not begin or end as it must", choices=("repair", "refuse")
    )
    unknown_tags: str = setting(
        "refuse", "what to do with a tag of --dev that --data lacks; count: as wrong", choices=("refuse", "count")
    )
    normal_form: str = setting("NFC", "Unicode normalisation", choices=("NFC", "NFKC", "none"))
    lower: bool = setting(True, "words have their numbers in lower case; their characters are read as they are")
    min_count: int = setting(1, "words seen less often have no number of their own", low=1)
    pair_count: int = setting(2, "segments: pairs of characters seen less often have no number", low=1)
    longest: int = setting(1000, "while training, longer sentences are cut into parts of so many words", low=2)
    holdout: float = setting(0.1, "share of the sentences held out when no --dev is given", low=0, high=0.9)


@dataclass(frozen=True)
class TagModelConfig:
    cell: str = setting("lstm", "the recurrent cell, a name of weft.cells.CELLS")
    hidden: int = setting(160, "hidden units of each layer, in each direction", low=1)
    layers: int = setting(1, "layers", low=1)
    residual: bool = setting(False, "add a layer's input to its output")
    embedding: int = setting(100, "numbers that stand for a word (segments: a character); 0: none", low=0)
    shapes: int = setting(16, "numbers that stand for what a word looks like (upper case, digits); 0: none", low=0)
    characters: int = setting(32, "numbers that stand for a character of a word; 0: words are not spelled", low=0)
    character_hidden: int = setting(48, "hidden units that read a word's characters, in each direction", low=1)
    pairs: int = setting(64, "segments: numbers that stand for a pair of characters; 0: none", low=0)
    output: str = setting("crf", "crf: tags told together; softmax: each for itself", choices=("crf", "softmax"))
    balance: bool = setting(True, "spans: fit how readily those of each kind begin to held-out sentences")
    neighbours: float = setting(
        0.1, "spans of words: weight of telling the words beside each place, too, while training; 0: none", low=0
    )
    forget: float = setting(
        2.0, "while training, a word seen n times is read as unknown with the chance forget / (forget + n)", low=0
    )
    embedding_dropout: float = setting(0.4, "share of what a word is read as that is dropped", low=0, high=0.95)
    recurrent_dropout: float = setting(
        0.0, "share of a state's units dropped while training, the same at all steps", low=0, high=0.95
    )
    dropout: float = setting(0.4, "share dropped between layers and before the output while training", low=0, high=0.95)


@dataclass(frozen=True)
class TagBatchConfig:
    tokens: int = setting(300, "most words of a batch, padding included", low=1)
    rows: int = setting(64, "most sentences of a batch", low=1)
    swap: float = setting(
        0.5, "spans of words: share of them that, while training, another of their kind stands for", low=0, high=1
    )


@dataclass(frozen=True)
class TagTrainConfig(TrainConfig):
    epochs: int = setting(14, "passes over the sentences", low=0)
    rate: float = setting(0.004, "learning rate", low=0)
    average: float = setting(
        0.995, "weights are judged and kept as running means with so much memory, such as 0.999; 0: as they are",
        low=0, high=0.99999,
    )  # fmt: skip


@dataclass(frozen=True)
class TagConfig:
    """The settings of `weft train tag`."""

    data: TagDataConfig = field(default_factory=TagDataConfig)
    model: TagModelConfig = field(default_factory=TagModelConfig)
    batch: TagBatchConfig = field(default_factory=TagBatchConfig)
    train: TagTrainConfig = field(default_factory=TagTrainConfig)
