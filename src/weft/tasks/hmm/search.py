"""What `weft tune hmm` searches."""

from __future__ import annotations

from weft.training.search_space import Choice, Range, SearchSpace

SPACE: SearchSpace = {
    "model.num_states": Choice((16, 32, 64, 96)),
    "train.smoothing": Range(1e-3, 1.0, log=True),
    "train.restarts": Range(1, 3),
}
