"""The settings of training that every trained task has."""

from __future__ import annotations

from dataclasses import dataclass

from weft.config import setting


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
