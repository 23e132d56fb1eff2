"""Settings that tasks have in common: the text, the recurrent layers, the training."""

from __future__ import annotations

from dataclasses import dataclass

from weft.config.strict import setting


@dataclass(frozen=True)
class TextConfig:
    level: str = setting("char", "what a token is", choices=("char", "word", "space", "subword"))
    normal_form: str = setting("NFC", "Unicode normalisation", choices=("NFC", "NFKC", "none"))
    lower: bool = setting(False, "turn text to lower case")
    letters_only: bool = setting(False, "turn every run of other characters than a-z, A-Z into one space")
    min_count: int = setting(1, "tokens seen less often become <unk>", low=1)
    max_size: int = setting(0, "largest vocabulary, reserved symbols included; 0: no limit (subword: 2000)", low=0)
    limit: int = setting(0, "read only so many tokens; 0: all", low=0)
    holdout: float = setting(0.1, "share of the text's end held out when no --dev is given", low=0, high=0.9)


@dataclass(frozen=True)
class ModelConfig:
    cell: str = setting("lstm", "the recurrent cell, a name of weft.cells.CELLS")
    hidden: int = setting(256, "hidden units of each layer", low=1)
    layers: int = setting(1, "layers", low=1)
    embedding: int = setting(0, "numbers that stand for a token; 0: its one-hot vector", low=0)
    tied: bool = setting(False, "use the embedding as the output weights too (needs embedding = hidden)")
    dropout: float = setting(0.3, "share of a layer's outputs dropped while training", low=0, high=0.95)
    residual: bool = setting(False, "add a layer's input to its output")
    bidirectional: bool = setting(False, "read from both ends (refused where it would see the answer)")


@dataclass(frozen=True)
class TrainConfig:
    epochs: int = setting(20, "passes over the text", low=0)
    minutes: float = setting(0.0, "stop after so many minutes of training; 0: no limit", low=0)
    optimizer: str = setting("adamw", "the optimizer", choices=("sgd", "adam", "adamw"))
    rate: float = setting(0.004, "learning rate", low=0)
    momentum: float = setting(0.0, "sgd: momentum", low=0, high=0.999)
    weight_decay: float = setting(0.01, "adamw: weight decay", low=0)
    schedule: str = setting("cosine", "course of the learning rate", choices=("constant", "cosine", "plateau"))
    warmup: int = setting(50, "cosine: steps until the full rate, at most a quarter of all", low=0)
    plateau_factor: float = setting(
        0.5, "plateau: the rate's factor when held-out loss stops falling", low=0.01, high=1
    )
    plateau_patience: int = setting(1, "plateau: evaluations without a better one before it falls", low=0)
    clip: float = setting(1.0, "largest global norm of the gradient; 0: not clipped", low=0)
    average: float = setting(
        0.0, "weights are judged and kept as running means with so much memory, such as 0.999; 0: as they are",
        low=0, high=0.99999,
    )  # fmt: skip
    patience: int = setting(0, "stop after so many evaluations without a better one; 0: never", low=0)
    evaluate_every: int = setting(0, "steps between evaluations; 0: after each epoch", low=0)
    save_seconds: float = setting(20.0, "seconds between saves of everything a resumed run needs", low=0)
    seed: int = setting(1, "seed of all randomness", low=0)
    device: str = setting("cpu", "where to train: cpu, cuda, cuda:1, mps, ...")
