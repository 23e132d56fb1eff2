"""scikit-learn estimators: weft's classifier and tagger for pipelines, cross-validation and grid search.

    from weft.sklearn import TextClassifier
    cross_val_score(TextClassifier(epochs=3), texts, labels)

Needs scikit-learn (`pip install weft[sklearn]`).
"""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.config import load_config
from weft.errors import WeftError
from weft.tasks import get_task
from weft.text.columns import read_rows
from weft.text.dataframes import is_missing
from weft.text.word_tables import WORD_NAMES

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import NotFittedError
except ImportError as error:
    raise ImportError("weft.sklearn needs scikit-learn: pip install scikit-learn, or weft[sklearn]") from error


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators do: train in a run directory of their own, and survive pickling."""

    _task: str
    _predictor: Any

    def __init__(
        self,
        *,
        epochs: int | None = None,
        learning_rate: float | None = None,
        hidden_size: int | None = None,
        random_state: int | None = None,
        settings: Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
    ) -> None:
        self.epochs, self.learning_rate, self.hidden_size = epochs, learning_rate, hidden_size
        self.random_state, self.settings, self.run_dir = random_state, settings, run_dir

    def _train(self, examples: list[Any]) -> Any:
        task = get_task(self._task)
        named = {
            "train.epochs": self.epochs,
            "train.learning_rate": self.learning_rate,
            "model.hidden_size": self.hidden_size,
            "train.seed": self.random_state,
        }
        sets = {key: value for key, value in named.items() if value is not None} | dict(self.settings or {})
        config = load_config(task.config_class, sets=sets)
        out = self._new_folder() / "run" if self.run_dir is None else Path(self.run_dir)
        self._predictor = task.train(examples, out, config)

    def _new_folder(self) -> Path:
        """A folder that goes when the estimator does."""
        folder = tempfile.mkdtemp(prefix="weft-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def _fitted(self) -> Any:
        if getattr(self, "_predictor", None) is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._predictor

    def __getstate__(self) -> dict[str, Any]:
        """The parameters and, once fitted, the content of the run directory."""
        state: dict[str, Any] = dict(super().__getstate__())
        predictor = state.pop("_predictor", None)
        if predictor is not None:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
                for file in sorted(predictor.run.path.iterdir()):
                    if file.is_file() and file.suffix in (".json", ".safetensors"):
                        archive.add(file, file.name)
            state["_run"] = buffer.getvalue()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        from weft.tasks import load

        content = state.pop("_run", None)
        super().__setstate__(state)
        if content is not None:
            folder = self._new_folder()
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(folder, filter="data")
            self._predictor = load(folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class TextClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A recurrent text classifier with scikit-learn's interface.

    Args:
        epochs: Passes over the training texts; None: the default of `weft train classify`. Likewise the next three.
        learning_rate: The learning rate.
        hidden_size: Hidden units per layer and direction.
        random_state: The seed of all randomness.
        settings: Further settings by name, such as `{"model.cell": "gru"}`.
        run_dir: The run directory to create; None: a temporary one.

    Attributes:
        classes_: The labels, sorted.

    >>> texts, labels = ["good film", "bad film", "good book", "bad book"] * 20, [1, 0, 1, 0] * 20
    >>> model = TextClassifier(epochs=4, hidden_size=16).fit(texts, labels)
    >>> model.predict(["a good one"]).tolist(), model.classes_.tolist()
    ([1], [0, 1])
    """

    _task = "classify"

    def fit(self, X: Iterable[str], y: Iterable[Any]) -> TextClassifier:
        """Train on texts and their labels."""
        texts, labels = read_rows(X).values, list(y)
        if len(texts) != len(labels):
            raise WeftError(f"there are {len(texts)} texts and {len(labels)} labels", expected="one label a text")
        known = [place for place, label in enumerate(labels) if not is_missing(label)]
        self.classes_, indices = np.unique(np.asarray([labels[place] for place in known]), return_inverse=True)
        names = dict(zip(known, map(str, indices), strict=True))
        self._train([(text, names.get(place)) for place, text in enumerate(texts)])
        return self

    def predict(self, X: Iterable[str]) -> Any:
        """The most probable label of each text, (N,)."""
        self._fitted()
        return self.classes_[self.predict_proba(X).argmax(1)]

    def predict_proba(self, X: Iterable[str]) -> Any:
        """The probability of each label, (N, classes), in the order of `classes_`; the prior where there is no text."""
        predictor = self._fitted()
        columns = [str(index) for index in range(len(self.classes_))]
        found = [one.probabilities or predictor.prior for one in predictor.classify(X)]
        return np.array([[shares[name] for name in columns] for shares in found]).reshape(-1, len(columns))


def _word_lists(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """The words of each row, or its tags; none where they are missing."""
    return [[] if is_missing(row) else list(row) for row in read_rows(rows, names=WORD_NAMES).values]


class SequenceTagger(_Estimator):
    """A recurrent sequence tagger with scikit-learn's interface: a tag for each word of a sentence.

    Args:
        epochs: Passes over the training sentences; None: the default of `weft train tag`. Likewise the next three.
        learning_rate: The learning rate.
        hidden_size: Hidden units per layer and direction.
        random_state: The seed of all randomness.
        settings: Further settings by name.
        run_dir: The run directory to create; None: a temporary one.

    Attributes:
        classes_: The tags, sorted.

    >>> words, tags = [["the", "cat"], ["a", "dog"]] * 20, [["DET", "NOUN"], ["DET", "NOUN"]] * 20
    >>> SequenceTagger(epochs=6, hidden_size=16).fit(words, tags).predict([["the", "dog"]])
    [['DET', 'NOUN']]
    """

    _task = "tag"

    def fit(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> SequenceTagger:
        """Train on sentences (lists of words) and their tags."""
        sentences, tags = _word_lists(X), _word_lists(y)
        if len(sentences) != len(tags):
            raise WeftError(
                f"there are {len(sentences)} sentences and {len(tags)} lists of tags", expected="one list a sentence"
            )
        self.classes_ = np.unique([tag for row in tags for tag in row])
        self._train(list(zip(sentences, tags, strict=True)))
        return self

    def predict(self, X: Iterable[Sequence[str]]) -> list[list[str]]:
        """The best tags of each sentence."""
        return [list(one.tags) for one in self._fitted().tag(_word_lists(X))]

    def predict_proba(self, X: Iterable[Sequence[str]]) -> list[Any]:
        """For each sentence the marginal probability of each tag at each word, (T, classes), as `classes_` orders."""
        predictor = self._fitted()
        order = [predictor.tags.index(tag) for tag in self.classes_]
        return [probabilities[:, order] for probabilities in predictor.marginals(_word_lists(X))]

    def score(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> float:
        """The share of words with the right tag; where tags are spans (BIO, BIOES ...), the F1 of spans."""
        pairs = [(list(words), list(tags)) for words, tags in zip(X, y, strict=True)]
        return float(self._fitted().evaluate(pairs).score())
