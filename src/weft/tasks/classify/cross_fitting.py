"""Cross-fitting of the n-gram models: each fifth of the training texts is scored by models of the other four.

So the weights of the n-gram models are fitted to all training texts, where the held-out texts alone would be too few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from weft.tasks.classify.ngram_features import TextKeys

FOLDS = 5
FEW_HELD_OUT = 500  # held-out texts from which on they suffice
LEAST_TEXTS = 50
MOST_WORK = 1 << 23  # features of all texts, times labels: keeps cross-fitting within about half a minute

# (texts and labels to fit to, texts to score) -> their scores, (N, labels, 2)
FitAndScore = Callable[[Sequence[TextKeys], Sequence[int], Sequence[TextKeys]], Tensor]


def is_worthwhile(texts: Sequence[TextKeys], labels: int, held_out: int) -> bool:
    """Whether to cross-fit: the held-out texts are few, and the training texts neither few nor many."""
    work = labels * sum(len(group) for text in texts for group in text)
    return held_out < FEW_HELD_OUT and len(texts) >= LEAST_TEXTS and work <= MOST_WORK


def cross_scores(texts: Sequence[TextKeys], labels: Sequence[int], score: FitAndScore) -> Tensor:
    """The scores of all texts by models that were not fitted to them, (N, labels, 2)."""
    folds = _folds(texts)
    rows: list[int] = []
    found: list[Tensor] = []
    for fold in range(FOLDS):
        inside = [row for row, own in enumerate(folds) if own == fold]
        others = [row for row, own in enumerate(folds) if own != fold]
        if inside and others:
            rows += inside
            parts = [texts[row] for row in others], [labels[row] for row in others], [texts[row] for row in inside]
            found.append(score(*parts))
    joined = torch.cat(found)
    return joined[torch.argsort(torch.tensor(rows))]


def _folds(texts: Sequence[TextKeys]) -> list[int]:
    """The fold of each text. Equal texts have the same one."""
    known: dict[tuple[bytes, bytes], int] = {}
    return [known.setdefault((text.tokens.tobytes(), text.characters.tobytes()), len(known)) % FOLDS for text in texts]
