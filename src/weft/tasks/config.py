"""Settings of a recurrent model that several tasks share."""

from __future__ import annotations

from dataclasses import dataclass

from weft.config import setting


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
