"""What `weft tune lm` searches."""

from __future__ import annotations

from weft.training.search_space import Choice, Range, SearchSpace

SPACE: SearchSpace = {
    "train.learning_rate": Range(5e-4, 2e-2, log=True),
    "train.weight_decay": Range(1e-3, 0.3, log=True),
    "model.cell": Choice(("lstm", "gru")),
    "model.hidden_size": Choice((64, 128, 192, 256, 384, 512, 768)),
    "model.embedding_dim": Choice((64, 128, 256)),
    "model.num_layers": Choice((1, 2)),
    "model.dropout": Range(0.0, 0.6),
    "model.recurrent_dropout": Range(0.0, 0.5),
    "batch.size": Choice((16, 32, 64)),
    "batch.seq_length": Choice((35, 70, 140)),
}
