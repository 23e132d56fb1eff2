"""The settings of `weft train hmm`."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.config import setting
from weft.text.config import TextConfig


@dataclass(frozen=True)
class HmmModelConfig:
    states: int = setting(32, "hidden states", low=1)


@dataclass(frozen=True)
class HmmTrainConfig:
    iterations: int = setting(50, "most steps of Baum-Welch in a run", low=0)
    tolerance: float = setting(1e-4, "a run ends when a step gains fewer nats a token", low=0)
    smoothing: float = setting(0.01, "added to every count, so that nothing is impossible", low=0)
    restarts: int = setting(1, "runs from different random models, of which the best is kept", low=1)
    length: int = setting(500, "tokens of the sequences that the text is cut into", low=2)
    seed: int = setting(1, "seed of all randomness", low=0)


@dataclass(frozen=True)
class HmmConfig:
    """The settings of `weft train hmm`."""

    text: TextConfig = field(default_factory=TextConfig)
    model: HmmModelConfig = field(default_factory=HmmModelConfig)
    train: HmmTrainConfig = field(default_factory=HmmTrainConfig)
