"""What `weft tune ngram` searches."""

from __future__ import annotations

from weft.training.search_space import Choice, SearchSpace

SPACE: SearchSpace = {
    "model.order": Choice((2, 3, 4, 5, 6, 7, 8)),
}
