"""Settings of hidden Markov models (`weft train hmm`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weft.config import Settings, setting
from weft.text.config import CorpusConfig
from weft.training.search_space import Choice, Range, SearchSpace


@dataclass(frozen=True)
class HmmModelConfig(Settings):
    """The `model` section."""

    num_states: int = setting(32, "number of hidden states", low=1)


@dataclass(frozen=True)
class HmmTrainConfig(Settings):
    """The `train` section: Baum-Welch."""

    iterations: int = setting(50, "maximum number of Baum-Welch iterations", low=0)
    tolerance: float = setting(1e-4, "stop when an iteration gains less than this, in nats per token", low=0)
    smoothing: float = setting(0.01, "additive smoothing: pseudocount added to every expected count", low=0, fixed=True)
    restarts: int = setting(1, "random initializations, of which the best result is kept", low=1)
    seq_length: int = setting(500, "length in tokens of the sequences that the text is split into", low=2, fixed=True)
    minutes: float = setting(
        0.0, "maximum time in minutes, reading the data included; 0: no limit", low=0, option="--minutes"
    )
    seed: int = setting(1, "random seed", low=0, fixed=True, option="--seed")
    slices: int = setting(1, "parts of the text, computed one by one or by several workers", low=1, high=4096)


@dataclass(frozen=True)
class HmmConfig:
    """All settings of `weft train hmm`."""

    text: CorpusConfig = field(default_factory=CorpusConfig)
    model: HmmModelConfig = field(default_factory=HmmModelConfig)
    train: HmmTrainConfig = field(default_factory=HmmTrainConfig)

    search_space: ClassVar[SearchSpace] = {
        "model.num_states": Choice((16, 32, 64, 96)),
        "train.smoothing": Range(1e-3, 1.0, log=True),
        "train.restarts": Range(1, 3),
    }
