"""Settings of the trainer, shared by all tasks that train a neural model."""

from __future__ import annotations

from dataclasses import dataclass

from weft.config import Settings, setting


@dataclass(frozen=True)
class TrainConfig(Settings):
    """The `train` section."""

    epochs: int = setting(20, "passes over the training data", low=0, option="--epochs")
    minutes: float = setting(
        0.0, "maximum time in minutes, reading the data included; 0: no limit", low=0, option="--minutes"
    )
    optimizer: str = setting(
        "adamw", "optimizer; muon: for matrices of hidden layers, adamw for the rest",
        choices=("sgd", "adam", "adamw", "muon"), fixed=True,
    )  # fmt: skip
    learning_rate: float = setting(0.004, "peak learning rate", low=0, option="--learning-rate")
    momentum: float = setting(0.0, "sgd: momentum", low=0, high=0.999)
    weight_decay: float = setting(0.01, "adamw, muon: weight decay", low=0)
    schedule: str = setting("cosine", "learning rate schedule", choices=("constant", "cosine", "plateau"))
    warmup_steps: int = setting(50, "cosine: steps of linear warmup, at most a quarter of all steps", low=0)
    plateau_factor: float = setting(
        0.5, "plateau: factor of the learning rate when the held-out loss stops improving", low=0.01, high=1
    )
    plateau_patience: int = setting(1, "plateau: evaluations without improvement before the rate is reduced", low=0)
    clip_norm: float = setting(1.0, "maximum global norm of the gradient; 0: no clipping", low=0)
    ema_decay: float = setting(
        0.0, "decay of the exponential moving average of the weights that is evaluated and saved; 0: no averaging",
        low=0, high=0.99999,
    )  # fmt: skip
    patience: int = setting(0, "stop after this many evaluations without improvement; 0: never", low=0)
    evaluate_every: int = setting(0, "steps between evaluations; 0: once per epoch", low=0)
    save_seconds: float = setting(20.0, "seconds between checkpoints for resuming", low=0)
    seed: int = setting(1, "random seed", low=0, option="--seed")
    members: int = setting(
        1, "models with different seeds, trained one after the other, whose predictions are averaged", low=1, high=100,
        fixed=True, option="--members",
    )  # fmt: skip
    slices: int = setting(
        1, "parts of a batch, computed one by one or by several workers: the weights depend on it, not on the workers",
        low=1, high=4096,
    )  # fmt: skip
    device: str = setting("cpu", "device to train on: cpu, cuda, cuda:1, mps, ...", option="--device")
    precision: str = setting(
        "float32", "matrix products on the CPU: float32, or bf16 with float32 sums", choices=("float32", "bf16"),
        option="--precision",
    )  # fmt: skip
