"""The metrics of classification equal those of scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from weft.metrics import Confusion

metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn, which hmmlearn brings along, is not installed")


@pytest.mark.parametrize("seed", range(20))
def test_scores(seed):
    """Random answers over few and many labels, some of which never occur or are never predicted."""
    generator = np.random.default_rng(seed)
    labels = tuple("abcdefgh"[: generator.integers(2, 9)])
    size = int(generator.integers(1, 40))
    true, predicted = (generator.choice(labels, size, p=generator.dirichlet(np.ones(len(labels)) / 2)) for _ in "ab")
    found = Confusion.of(labels, zip(true.tolist(), predicted.tolist(), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found.accuracy == pytest.approx(metrics.accuracy_score(true, predicted))
        assert found.macro_f1 == pytest.approx(metrics.f1_score(true, predicted, average="macro", zero_division=0))
        assert np.array_equal(found.counts, metrics.confusion_matrix(true, predicted, labels=labels))
        table = metrics.precision_recall_fscore_support(true, predicted, labels=labels, zero_division=0)
    for number, name in enumerate(("precision", "recall", "f1", "support")):
        assert [getattr(score, name) for score in found.scores] == pytest.approx(table[number])
