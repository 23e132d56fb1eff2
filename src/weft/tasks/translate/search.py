"""What `weft tune translate` searches."""

from __future__ import annotations

from weft.training.search_space import Choice, Range, SearchSpace

SPACE: SearchSpace = {
    "train.learning_rate": Range(8e-4, 8e-3, log=True),
    "train.weight_decay": Range(1e-3, 0.3, log=True),
    "train.label_smoothing": Range(0.0, 0.2),
    "model.hidden_size": Choice((256, 384, 512)),
    "model.embedding_dim": Choice((128, 256, 384)),
    "model.num_layers": Choice((1, 2)),
    "model.dropout": Range(0.0, 0.4),
    "model.attention": Choice(("dot", "scaled_dot", "additive")),
    "batch.max_tokens": Choice((400, 800, 1600)),
}
