"""What `weft tune tag` searches."""

from __future__ import annotations

from weft.training.search_space import Choice, Range, SearchSpace

SPACE: SearchSpace = {
    "train.learning_rate": Range(1e-3, 1e-2, log=True),
    "train.weight_decay": Range(1e-3, 0.3, log=True),
    "train.epochs": Range(8, 24),
    "model.hidden_size": Choice((96, 128, 160, 224)),
    "model.embedding_dim": Choice((64, 100, 150)),
    "model.char_hidden_size": Choice((32, 48, 64)),
    "model.embedding_dropout": Range(0.1, 0.6),
    "model.dropout": Range(0.1, 0.6),
    "model.word_dropout_alpha": Range(0.25, 4.0, log=True),
    "batch.max_tokens": Choice((200, 300, 600)),
}
