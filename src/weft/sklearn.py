"""scikit-learn estimators: weft's classifier, tagger and forecaster for pipelines, cross-validation and grid search.

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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.config import load_config
from weft.errors import WeftError
from weft.series import SeriesSet, read_series
from weft.tasks import get_task
from weft.text.columns import read_rows
from weft.text.dataframes import is_missing
from weft.text.word_tables import WORD_NAMES

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import NotFittedError
except ImportError as error:
    raise ImportError("weft.sklearn needs scikit-learn: pip install scikit-learn, or weft[sklearn]") from error


_TIME = "the time"


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What all estimators do: train in a run directory of their own, and survive pickling."""

    _task: str
    _predictor: Any
    run_dir: str | Path | None

    def _train_with(self, source: Any, sets: Mapping[str, Any]) -> None:
        task = get_task(self._task)
        config = load_config(task.config_class, sets={name: value for name, value in sets.items() if value is not None})
        out = self._new_folder() / "run" if self.run_dir is None else Path(self.run_dir)
        self._predictor = task.train(source, out, config)

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


class _TextEstimator(_Estimator):
    """The parameters of a network that reads text."""

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

    def _train(self, examples: list[Any]) -> None:
        named = {
            "train.epochs": self.epochs,
            "train.learning_rate": self.learning_rate,
            "model.hidden_size": self.hidden_size,
            "train.seed": self.random_state,
        }
        self._train_with(examples, named | dict(self.settings or {}))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class TextClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
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


class SequenceTagger(_TextEstimator):
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
    >>> SequenceTagger(epochs=20, learning_rate=0.02, hidden_size=16).fit(words, tags).predict([["the", "dog"]])
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


class Forecaster(_Estimator):
    """A forecaster of series with scikit-learn's conventions and the methods of sktime's forecasters.

    A series is a list of numbers, an array (T,) or a pandas Series with times as its index; several channels are an
    array (T, C) or a DataFrame. Forecasts have the type of `y`: arrays, or a Series or DataFrame with the next times.

    Args:
        horizon: Steps to forecast; None: one season. Likewise `season`, by the step of time.
        season: Steps of a season.
        random_state: The seed of all randomness.
        settings: Further settings by name, such as `{"model.kind": "linear"}`.
        run_dir: The run directory to create; None: a temporary one.

    >>> y = [3.0, 5.0, 4.0, 6.0] * 8
    >>> model = Forecaster(horizon=4, season=4, settings={"model.kind": "baselines"}).fit(y)
    >>> model.predict().round(2).tolist(), model.predict(fh=[1, 4]).round(2).tolist()
    ([3.0, 5.0, 4.0, 6.0], [3.0, 6.0])
    """

    _task = "forecast"

    def __init__(
        self,
        horizon: int | None = None,
        *,
        season: int | None = None,
        random_state: int | None = None,
        settings: Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
    ) -> None:
        self.horizon, self.season, self.random_state = horizon, season, random_state
        self.settings, self.run_dir = settings, run_dir

    def fit(self, y: Any, X: Any = None) -> Forecaster:
        """Train on a series; `X` (T, K) are covariates that are known in advance."""
        series = self._series(y, X)
        named = {"model.horizon": self.horizon, "model.season": self.season, "train.seed": self.random_state}
        known = {} if X is None else {"data.known": ",".join(series.known)}
        self._train_with(series, {**named, **known, **dict(self.settings or {})})
        self._y, self._X = y, X
        return self

    def predict(self, fh: int | Iterable[int] | None = None, X: Any = None) -> Any:
        """The medians at these steps after the last value, counted from 1; a number: as many; None: the horizon.

        Args:
            fh: The steps.
            X: The covariates (F, K) after the last value, at least up to the last step.
        """
        forecast, steps = self._forecast(fh, X, "80")
        return self._shaped(forecast.values[steps], forecast.moments[steps], None)

    def predict_interval(
        self, fh: int | Iterable[int] | None = None, X: Any = None, coverage: float | Sequence[float] = 0.9
    ) -> Any:
        """The lower and the upper ends of intervals, (steps, channels * coverages * 2); for pandas a DataFrame.

        Args:
            fh: The steps, as in `predict`.
            X: The covariates after the last value.
            coverage: The share of true values that lie inside; several give several intervals.
        """
        shares = [coverage] if isinstance(coverage, int | float) else list(coverage)
        if not shares or not all(0 < share < 1 for share in shares):
            raise WeftError(f"the coverage is {coverage}", expected="a share between 0 and 1, or several")
        forecast, steps = self._forecast(fh, X, [100 * share for share in shares])
        ends = list(forecast.intervals.values())
        columns = [(name, share, side) for name in forecast.channels for share in shares for side in ("lower", "upper")]
        values = np.stack([ends[shares.index(share)][side == "upper"][steps, forecast.channels.index(name)]
                           for name, share, side in columns], axis=1)  # fmt: skip
        return self._shaped(values, forecast.moments[steps], columns)

    def _forecast(self, fh: int | Iterable[int] | None, X: Any, level: Any) -> tuple[Any, Any]:
        predictor = self._fitted()
        horizon = predictor.model.horizon
        wanted = range(1, horizon + 1) if fh is None else range(1, fh + 1) if isinstance(fh, int) else list(fh)
        steps = np.asarray(list(wanted))
        if not steps.size or steps.dtype.kind != "i" or steps.min() < 1:
            raise WeftError(f"`fh` is {fh}", expected="steps after the last value, whole numbers from 1 on")
        (series,) = self._series(self._y, self._X, X).series
        (forecast,) = predictor.forecast([series], horizon=int(steps.max()), level=level)
        return forecast, steps - 1

    def _series(self, y: Any, X: Any, future: Any = None) -> SeriesSet:
        """A series with its covariates; `future` are those after its end."""
        found = _read_series(y)
        (one,), known, names = found.series, found.series[0].known, tuple[str, ...]()
        if X is not None:
            parts = [np.asarray(part, np.float64).reshape(len(part), -1) for part in (X, future) if part is not None]
            if len(parts[0]) != len(one) or any(part.shape[1] != parts[0].shape[1] for part in parts):
                shapes = " and ".join(str(part.shape) for part in parts)
                raise WeftError(f"the covariates are {shapes}, of {len(one)} values", expected="a row for each step")
            known = np.concatenate(parts)
            names = tuple(f"x{place}" for place in range(1, known.shape[1] + 1))
        elif future is not None:
            raise WeftError("there are covariates to predict with, and none in fit", expected="both, or none")
        return replace(found, series=(replace(one, known=known),), known=names)

    def _shaped(self, values: Any, moments: Any, columns: list[tuple[str, float, str]] | None) -> Any:
        """Values (steps, columns) as what `y` was; `columns` are those of intervals."""
        y = self._y
        if not hasattr(y, "index") or not hasattr(y, "to_numpy"):
            return values[:, 0] if columns is None and values.shape[1] == 1 else values
        import pandas

        index = pandas.Index(moments, name=y.index.name)
        if isinstance(y.index, pandas.PeriodIndex):
            index = pandas.DatetimeIndex(moments).to_period(y.index.freq)
        if columns is not None:
            return pandas.DataFrame(values, index, pandas.MultiIndex.from_tuples(columns))
        if hasattr(y, "columns"):
            return pandas.DataFrame(values, index, y.columns)
        return pandas.Series(values[:, 0], index, name=y.name)


def _read_series(y: Any) -> SeriesSet:
    """A list of numbers, an array, or a Series or DataFrame of pandas, with times as its index or without."""
    index: Any = getattr(y, "index", None) if hasattr(y, "to_numpy") else None
    times = index.to_timestamp() if hasattr(index, "to_timestamp") else index
    if times is None or not hasattr(times, "tz"):
        values = np.asarray(y, np.float64)
        if values.ndim not in (1, 2):
            raise WeftError(f"the series has the shape {values.shape}", expected="(T,) values, or (T, C) of channels")
        return read_series(values)
    values = y.to_numpy(np.float64).reshape(len(y), -1)
    names = [str(name) for name in y.columns] if hasattr(y, "columns") else ["y"]
    table = {_TIME: times.to_numpy(), **dict(zip(names, values.T, strict=True))}
    none: tuple[str, ...] = ()
    return read_series(table, id=none, time=[_TIME], target=names, known=none, past=none, static=none, layout="long")
