"""The scikit-learn estimators, in scikit-learn's own tools."""

from __future__ import annotations

import pickle

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from weft.errors import WeftError
from weft.sklearn import Forecaster, SequenceTagger, TextClassifier

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


MONTHS = pandas.date_range("2020-01-01", periods=60, freq="MS")
WAVE = 20 + 5 * np.sin(np.arange(60) * np.pi / 6)


SALES = pandas.Series(WAVE + np.random.default_rng(0).normal(0, 0.5, 60), MONTHS, name="sales")


@pytest.fixture(scope="module")
def forecaster():
    return Forecaster(horizon=6, settings={"model.kind": "linear"}).fit(SALES)


def test_a_forecaster_gives_what_it_was_given(forecaster):
    found = forecaster.predict()
    assert found.name == "sales"
    assert found.index.tolist() == pandas.date_range("2025-01-01", periods=6, freq="MS").tolist()
    np.testing.assert_allclose(found, WAVE[:6], atol=1.5)
    assert forecaster.predict(fh=[2, 5]).tolist() == found.iloc[[1, 4]].tolist()
    assert forecaster.predict(3).tolist() == found.iloc[:3].tolist()
    assert len(forecaster.predict(9)) == 9  # beyond the horizon
    copied = pickle.loads(pickle.dumps(forecaster))
    assert copied.predict().tolist() == found.tolist()
    values = Forecaster(horizon=6, season=12, settings={"model.kind": "linear"}).fit(SALES.to_numpy())
    np.testing.assert_allclose(values.predict(), found)
    assert isinstance(values.predict(), np.ndarray)


def test_intervals_of_a_forecaster(forecaster):
    found = forecaster.predict_interval(fh=4, coverage=[0.5, 0.9])
    assert found.columns.tolist() == [("y", share, side) for share in (0.5, 0.9) for side in ("lower", "upper")]
    middle = forecaster.predict(4)
    rows = np.stack([found["y", 0.9, "lower"], found["y", 0.5, "lower"], middle, found["y", 0.5, "upper"],
                     found["y", 0.9, "upper"]])  # fmt: skip
    assert (np.diff(rows, axis=0) >= 0).all()
    assert (rows[-1] > rows[0]).all()


def test_a_forecaster_with_covariates_and_channels():
    random = np.random.default_rng(0)
    price = random.uniform(0, 9, (84, 1))
    y = 50 - 3 * price[:80, 0] + random.normal(0, 0.1, 80)
    model = Forecaster(4, season=1, settings={"model.kind": "linear"}).fit(y, price[:80])
    np.testing.assert_allclose(model.predict(X=price[80:]), 50 - 3 * price[80:, 0], atol=2)
    with pytest.raises(WeftError, match="known for 0 of the 4 steps"):
        model.predict()
    with pytest.raises(WeftError, match="a row for each step"):
        model.fit(y, price)
    both = Forecaster(4, season=12, settings={"model.kind": "baselines"}).fit(
        pandas.DataFrame({"a": WAVE, "b": 2 * WAVE}, MONTHS)
    )
    assert both.predict().columns.tolist() == ["a", "b"]
    np.testing.assert_allclose(both.predict()["b"], 2 * both.predict()["a"], rtol=1e-3)
    assert both.predict_interval(coverage=0.8).shape == (4, 4)


def test_conventions_of_a_forecaster(forecaster):
    assert clone(forecaster).get_params() == forecaster.get_params()
    assert set(forecaster.get_params()) == {"horizon", "season", "random_state", "settings", "run_dir"}
    with pytest.raises(NotFittedError):
        Forecaster().predict()
    for steps in ([], [0], [1.5]):
        with pytest.raises(WeftError, match="`fh`"):
            forecaster.predict(fh=steps)
    with pytest.raises(WeftError, match="coverage"):
        forecaster.predict_interval(coverage=90)
    with pytest.raises(WeftError, match="shape"):
        Forecaster(2).fit(np.zeros((2, 3, 4)))
