"""Cross-fitting of the n-gram models: each fifth of the training texts is scored by models of the other four.

So the weights of the n-gram models are fitted to all training texts, where the held-out texts alone would be too few.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.tasks.classify.ngram_features import TextKeys

FOLDS = 5
FEW_HELD_OUT = 500  # held-out texts from which on they suffice
LEAST_TEXTS = 50
MOST_WORK = 1 << 23  # features of all texts, times labels: keeps cross-fitting within about half a minute


def is_worthwhile(texts: Sequence[TextKeys], labels: int, held_out: int) -> bool:
    """Whether to cross-fit: the held-out texts are few, and the training texts neither few nor many."""
    work = labels * sum(len(group) for text in texts for group in text)
    return held_out < FEW_HELD_OUT and len(texts) >= LEAST_TEXTS and work <= MOST_WORK


def folds(texts: Sequence[TextKeys]) -> list[tuple[list[int], list[int]]]:
    """For each fold the texts outside of it, which models are fitted to, and those inside, which they score."""
    fold_of = _folds(texts)
    found = []
    for fold in range(FOLDS):
        inside = [row for row, own in enumerate(fold_of) if own == fold]
        others = [row for row, own in enumerate(fold_of) if own != fold]
        if inside and others:
            found.append((others, inside))
    return found


def _folds(texts: Sequence[TextKeys]) -> list[int]:
    """The fold of each text. Equal texts have the same one."""
    known: dict[tuple[bytes, bytes], int] = {}
    return [known.setdefault((text.tokens.tobytes(), text.characters.tobytes()), len(known)) % FOLDS for text in texts]
