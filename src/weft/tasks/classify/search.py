"""What `weft tune classify` searches."""

from __future__ import annotations

from weft.training.search_space import Choice, Range, SearchSpace

SPACE: SearchSpace = {
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
