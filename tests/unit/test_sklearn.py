"""The scikit-learn estimators, in scikit-learn's own tools."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from weft.errors import WeftError
from weft.sklearn import SequenceTagger, TextClassifier

TEXTS = [f"{word} {thing}" for word in ("good", "fine", "bad", "poor") for thing in ("film", "book", "day", "meal")] * 6
LABELS = np.array([int(text.split()[0] in ("good", "fine")) for text in TEXTS])
SMALL = {"epochs": 3, "hidden_size": 8, "settings": {"train.learning_rate": 0.01, "text.min_count": 1}}

WORDS = [["the", "cat", "sees", "Rome"], ["a", "dog", "sleeps"]] * 16
TAGS = [["D", "N", "V", "P"], ["D", "N", "V"]] * 16


@pytest.fixture(scope="module")
def classifier():
    return TextClassifier(**SMALL).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def tagger():
    return SequenceTagger(
        epochs=30, hidden_size=16, learning_rate=0.02, settings={"data.holdout": 0, "batch.size": 4}
    ).fit(WORDS, TAGS)


def test_predictions_have_the_type_of_the_labels(classifier):
    assert classifier.predict(["good film", "poor day"]).tolist() == [1, 0]
    names = np.where(LABELS == 1, "yes", "no")
    named = TextClassifier(**SMALL).fit(TEXTS, names)
    assert named.classes_.tolist() == ["no", "yes"]
    assert named.predict(["good film"])[0] == "yes"
    probabilities = named.predict_proba(["good film", "bad day"])
    assert probabilities.shape == (2, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert classifier.score(TEXTS, LABELS) > 0.9


def test_cross_validation_and_clones():
    estimator = TextClassifier(**SMALL)
    assert clone(estimator).get_params() == estimator.get_params()
    scores = cross_val_score(estimator, TEXTS, LABELS, cv=2)
    assert scores.shape == (2,)
    assert scores.mean() > 0.7


def test_grid_search_in_a_pipeline():
    pipeline = make_pipeline(
        FunctionTransformer(lambda texts: [text.lower() for text in texts]), TextClassifier(**SMALL)
    )
    search = GridSearchCV(pipeline, {"textclassifier__epochs": [1, 3]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_params_["textclassifier__epochs"] in (1, 3)
    assert search.predict(["GOOD film"]).tolist() == [1]


def test_fitted_estimators_survive_pickling(classifier, tagger):
    for fitted, given in ((classifier, TEXTS[:5]), (tagger, WORDS[:2])):
        copy = pickle.loads(pickle.dumps(fitted))
        for one, other in zip(copy.predict_proba(given), fitted.predict_proba(given), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_tagger(tagger):
    assert tagger.predict(WORDS[:2]) == TAGS[:2]
    assert tagger.score(WORDS, TAGS) == 1.0
    (probabilities,) = tagger.predict_proba([["the", "dog"]])
    assert probabilities.shape == (2, len(tagger.classes_))
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-4)
    assert tagger.classes_[probabilities[0].argmax()] == "D"


def test_the_run_can_be_kept(tmp_path):
    import weft

    TextClassifier(**SMALL, run_dir=tmp_path / "run").fit(TEXTS, LABELS)
    assert weft.load(tmp_path / "run").classify(["good film"])[0].label == "1"


def test_mistakes_are_named():
    with pytest.raises(NotFittedError, match="call fit first"):
        TextClassifier().predict(["a"])
    with pytest.raises(WeftError, match="2 texts and 1 labels"):
        TextClassifier().fit(["a", "b"], [1])
    with pytest.raises(WeftError, match=r"train\.epoch"):
        TextClassifier(settings={"train.epoch": 3}).fit(TEXTS, LABELS)
