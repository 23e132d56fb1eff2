"""The wide path of a classifier: two linear models beside the network, stored with the run.

Those of texts read n-grams, those of series the features of random convolutions, with the kernels stored beside them.

They are fitted before the network is trained, one in each step. The logistic regression of long texts is the weighted
sum of two, which differ in how they weight their features; their shares are fitted to held-out texts, too. The file
has the scores of the held-out texts by models of the other texts: the weights of the mixture are fitted to these. Where
the held-out texts were drawn from the training texts, the models that are stored are then fitted again, to all of them.

Where the held-out texts are too few to show what the n-gram models are worth, these are cross-fitted: each fifth of the
training texts is scored by models of the other four.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.config import from_dict
from weft.data.column import Array, Column
from weft.series import Series
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.convolutions import ConvolutionKernels
from weft.tasks.classify.linear import (
    CONVOLUTION,
    CONVOLUTION_SVM,
    FITS,
    IDF,
    LOGISTIC,
    MOST_OCCURRENCES,
    NBSVM,
    LinearModel,
    weighted_sum,
)
from weft.tasks.classify.mixing import DEFAULT_PRIOR, SERIES_PRIOR, MixturePrior, MixtureWeights, fit_blend, fit_prior
from weft.tasks.classify.ngram_features import NgramKeys, TextKeys, mostly_long
from weft.tasks.config import SERIES_EXAMPLES
from weft.tasks.stored_data import DEV_PART, TRAIN_PART, is_stored, store, stored
from weft.text.fields import Label
from weft.training.loss import MeanLoss
from weft.training.run import (
    DATA_FOLDER,
    WEIGHTS,
    Run,
    decoding,
    finite_weights,
    load_tensors,
    read_json,
    with_prefix,
    write_json,
)
from weft.training.step import Progress
from weft.training.trainer import Phase, Update

LINEAR_FILE = "linear.safetensors"
SOURCE_FILE, PLAN_FILE = f"{DATA_FOLDER}/source.safetensors", f"{DATA_FOLDER}/linear.json"
NGRAMS = "ngrams"  # ends the names of the parts of the data that have the n-gram keys of texts
KERNELS = "kernels."  # begins the names of their tensors
MARGIN_SCALE = 5.0  # makes margins of the SVM about as large as log-probabilities

TokenTexts = Sequence[Sequence[str]]
FeatureRows = Sequence[TextKeys] | Sequence[Array]


class LabelledTokens(NamedTuple):
    """Tokenized texts and their labels."""

    texts: TokenTexts
    labels: Sequence[int]


@dataclass(frozen=True)
class WideModels:
    """The two linear models of a run.

    Attributes:
        logistic: the logistic regression.
        nbsvm: the SVM, of texts with naive Bayes ratios.
        kernels: those that the features of series are made with; None: they are the n-grams of texts.
    """

    logistic: LinearModel
    nbsvm: LinearModel
    kernels: ConvolutionKernels | None = None

    def scores(self, examples: TokenTexts | Sequence[Array]) -> Tensor:
        """The scores of both models for tokenized texts, or for series (T, C): (N, labels, 2), in double precision."""
        features = read_features(examples, self.kernels)
        margins = MARGIN_SCALE * self.nbsvm.logits_of(features)
        return torch.stack([self.logistic.logits_of(features).log_softmax(-1), margins], -1).double()

    def tensors(self) -> dict[str, Tensor]:
        """What `load_wide_file` reads."""
        models = (self.logistic, self.nbsvm)
        parts = [model.tensors(f"{kind}.") for model, kind in zip(models, kinds_of(self.kernels), strict=True)]
        return parts[0] | parts[1] | ({} if self.kernels is None else self.kernels.tensors(KERNELS))

    def contributions(self, tokens: Sequence[str]) -> Tensor:
        """What each token adds to the scores of both models, (T, labels, 2)."""
        margins = MARGIN_SCALE * self.nbsvm.contributions(tokens)
        return torch.stack([self.logistic.contributions(tokens), margins], -1).double()


def kinds_of(kernels: ConvolutionKernels | None) -> tuple[str, str]:
    """The kinds of the two models of a run."""
    return (LOGISTIC, NBSVM) if kernels is None else (CONVOLUTION, CONVOLUTION_SVM)


def read_features(examples: Any, kernels: ConvolutionKernels | None) -> FeatureRows:
    """The features of tokenized texts, or of series."""
    if kernels is not None:
        return kernels.of(examples)
    reader = NgramKeys(characters=True)
    return [reader.of(tokens) for tokens in examples]


def fitted_scores(models: Mapping[str, LinearModel], texts: FeatureRows) -> Tensor:
    """The scores of the models by kind for texts, or series, (N, labels, 3), in double precision."""
    first, svm = (CONVOLUTION, CONVOLUTION_SVM) if CONVOLUTION in models else (LOGISTIC, NBSVM)
    log_probs = [
        models[kind].logits_of(texts).log_softmax(-1)
        if kind in models
        else torch.zeros(len(texts), len(models[svm].bias))
        for kind in (first, IDF)
    ]
    return torch.stack([*log_probs, MARGIN_SCALE * models[svm].logits_of(texts)], -1).double()


def join_fitted(
    models: Mapping[str, LinearModel], share: float, kernels: ConvolutionKernels | None = None
) -> WideModels:
    """The two models of a run from those that were fitted; `share` is that of the second logistic regression."""
    first, svm = kinds_of(kernels)
    logistic = models[first]
    if IDF in models:
        logistic = weighted_sum((logistic, 1 - share), (models[IDF], share))
    return WideModels(logistic, models[svm], kernels)


def blended(scores: Tensor, share: float) -> Tensor:
    """The scores of the two models of a run, (N, labels, 2), from those of the three that were fitted."""
    logistic = (1 - share) * scores[..., 0] + share * scores[..., 1]
    return torch.stack([logistic.log_softmax(-1), scores[..., 2]], -1)


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
    known: dict[tuple[bytes, bytes], int] = {}  # equal texts have the same fold
    keys = ((text.tokens.tobytes(), text.characters.tobytes()) for text in texts)
    fold_of = [known.setdefault(key, len(known)) % FOLDS for key in keys]
    found = []
    for fold in range(FOLDS):
        inside = [row for row, own in enumerate(fold_of) if own == fold]
        others = [row for row, own in enumerate(fold_of) if own != fold]
        if inside and others:
            found.append((others, inside))
    return found


def store_ngrams(
    data: Path,
    train: LabelledTokens,
    held_out: LabelledTokens,
    *,
    count: int,
    seed: int,
    drawn: bool,
    cross_fit: bool,
    origin: Run | None,
) -> None:
    """Stores what the linear models of a new run are fitted to: the n-gram keys of texts, and how to use them.

    Args:
        data: the folder data/ of the run.
        train: the training texts.
        held_out: the held-out texts.
        count: the number of labels.
        seed: selects the texts where there are too many.
        drawn: whether the held-out texts were drawn from those given to train on; the final models are of all of them.
        cross_fit: whether the labels of the training texts tell what the models are worth; not those of a teacher.
        origin: the run that is fine-tuned.
    """
    reader = NgramKeys(characters=True)
    keys, labels = _read_some(reader, train, seed)
    _store_keys(data, TRAIN_PART, keys, labels)
    if held_out.texts:
        _store_keys(data, DEV_PART, [reader.of(tokens) for tokens in held_out.texts], held_out.labels)
    starts = origin is not None and has_wide(origin)
    if origin is not None and starts:
        shutil.copyfile(origin.path / LINEAR_FILE, data.parent / SOURCE_FILE)
    plan = {
        "cross_fit": cross_fit and bool(held_out.texts) and is_worthwhile(keys, count, len(held_out.texts)),
        "blend": not starts and mostly_long(keys),
        "all": drawn and bool(held_out.texts) and len(keys) == len(train.texts),
    }
    write_json(data.parent / PLAN_FILE, plan)


def store_series_plan(data: Path, *, all: bool) -> None:
    """Stores how linear models of series are fitted: to the series that are stored, in the end to `all` or not.

    They are not cross-fitted: the network is the better model of series, and that would speak for the linear ones only.
    """
    write_json(data.parent / PLAN_FILE, {"cross_fit": False, "blend": False, "all": all})


def _store_keys(data: Path, part: str, keys: Sequence[TextKeys], labels: Sequence[int]) -> None:
    columns = {
        name: Column.from_rows([text[group] for text in keys], np.uint64) for group, name in enumerate(TextKeys._fields)
    }
    store(data, f"{part}-{NGRAMS}", {**columns, "label": Column(np.array(labels))})


def _stored_keys(run: Run, part: str, count: int) -> tuple[list[TextKeys], list[int]]:
    """The keys and labels that `store_ngrams` stored."""
    columns = stored(run, f"{part}-{NGRAMS}", {"label": count})
    with decoding(run.path / DATA_FOLDER):
        groups = [Column(np.asarray(columns[name].values), columns[name].ends) for name in TextKeys._fields]
        if any(group.values.dtype != np.uint64 or len(group) != len(columns["label"]) for group in groups):
            raise ValueError("keys that do not fit")
    rows = range(len(columns["label"]))
    return [TextKeys(*(group[row] for group in groups)) for row in rows], columns["label"].values.tolist()


class _Fit(NamedTuple):
    """One model that is fitted."""

    stage: str  # "train", "all", or the number of a fold
    kind: str
    rows: Sequence[int]  # of the texts that it is fitted to


class LinearFitting(Phase):
    """Fits the linear models of a classifier, one in each step."""

    epochs, report_every, save_seconds = 1, 1, 0.0
    weights_file = LINEAR_FILE

    def __init__(self, run: Run, count: int, weights: Tensor | None) -> None:
        self.count, self.class_weights = count, weights
        fitted = _series_features(run) if SERIES_EXAMPLES in run.fields else _ngram_features(run, count)
        self.kernels, keys, self.labels, train = fitted
        self.keys: list[Any] = keys
        self.train, self.held_out = range(train), range(train, len(keys))
        path = run.path / SOURCE_FILE
        self.start = load_wide_file(run.data_file(SOURCE_FILE), count).logistic if path.exists() else None
        plan = read_json(run.data_file(PLAN_FILE))
        with decoding(run.path / PLAN_FILE):
            blends, cross_fits, fits_all = (bool(plan[name]) for name in ("blend", "cross_fit", "all"))
        kinds = (*((IDF,) if blends else ()), *kinds_of(self.kernels))
        # Of each stage the texts that models are fitted to, and those that they score.
        stages: dict[str, tuple[Sequence[int], Sequence[int]]] = {"train": (self.train, self.held_out)}
        if cross_fits:
            stages |= {str(number): fold for number, fold in enumerate(folds([keys[row] for row in self.train]))}
        if fits_all:
            stages["all"] = (range(len(keys)), range(0))
        self.stages, self.last = stages, "all" if fits_all else "train"
        self.plan = [_Fit(stage, kind, rows) for stage, (rows, _) in stages.items() for kind in kinds]
        self.fitted: dict[str, LinearModel] = {}  # of the stage under way
        self.final: dict[str, LinearModel] = {}  # of the stage whose models are stored
        self.scores: dict[str, Tensor] = {}  # of each stage: of the texts that its models were not fitted to

    def steps(self, progress: Progress) -> int:
        return len(self.plan)

    def step(self, progress: Progress, total: int, *, stop: bool) -> Update:
        stage, kind, rows = self.plan[progress.step]
        keys, labels = [self.keys[row] for row in rows], torch.tensor([self.labels[row] for row in rows])
        options = {"start": self.start} if kind == LOGISTIC else {}
        self.fitted[kind] = FITS[kind](keys, labels, self.count, class_weights=self.class_weights, **options)
        progress.step += 1
        if progress.step == total or self.plan[progress.step].stage != stage:
            scored = self.stages[stage][1]
            self.scores[stage] = fitted_scores(self.fitted, [self.keys[row] for row in scored])
            if stage == self.last:
                self.final = self.fitted
            self.fitted = {}
        what = "n-grams" if self.kernels is None else "convolutions"
        return Update(MeanLoss(0.0, 0), 1, note=f"linear models of {what}")

    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Both models, and the scores and the prior that the weights of the mixture are fitted with."""
        own, prior, share = self.scores["train"], DEFAULT_PRIOR if self.kernels is None else SERIES_PRIOR, 0.0
        truth = torch.tensor([self.labels[row] for row in self.held_out], dtype=torch.long)
        names = [stage for stage in self.stages if stage.isdigit()]
        scored = [row for name in names for row in self.stages[name][1]]
        cross = (
            torch.cat([self.scores[name] for name in names])[torch.argsort(torch.tensor(scored))] if names else own[:0]
        )
        train = torch.tensor([self.labels[row] for row in self.train])
        if IDF in self.final and len(own):
            labels = torch.cat([train[: len(cross)], truth])
            share = fit_blend(torch.cat([cross, own]), labels, self.class_weights)
        if len(cross):
            prior = fit_prior(blended(cross, share), train, self.class_weights)
        tensors = join_fitted(self.final, share, self.kernels).tensors()
        stored_prior = torch.tensor([*prior.centre, prior.texts], dtype=torch.float64)
        return {**tensors, "scores": blended(own, share), "prior": stored_prior}, {}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"scores.{stage}": scores for stage, scores in self.scores.items()}
        for name, models in (("fitted", self.fitted), ("final", self.final)):
            for kind, model in models.items():
                tensors |= model.tensors(f"{name}.{kind}.")
        return tensors, {}

    def restore(self, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        self.scores = with_prefix(tensors, "scores.")
        for name, models in (("fitted", self.fitted), ("final", self.final)):
            kinds = dict.fromkeys(key.split(".")[0] for key in with_prefix(tensors, f"{name}."))
            models |= {
                kind: LinearModel.from_tensors(
                    with_prefix(tensors, f"{name}.{kind}."), self.count, LOGISTIC if kind == IDF else kind
                )
                for kind in kinds
            }


class _Fitted(NamedTuple):
    """What linear models are fitted to: features and labels, first those of the training examples."""

    kernels: ConvolutionKernels | None
    features: list[Any]
    labels: list[int]
    train: int


def _ngram_features(run: Run, count: int) -> _Fitted:
    keys, labels = _stored_keys(run, TRAIN_PART, count)
    train = len(keys)
    if is_stored(run, f"{DEV_PART}-{NGRAMS}"):
        held_out_keys, held_out_labels = _stored_keys(run, DEV_PART, count)
        keys, labels = [*keys, *held_out_keys], [*labels, *held_out_labels]
    return _Fitted(None, keys, labels, train)


def _series_features(run: Run) -> _Fitted:
    """The features of the stored series; the training series are in random order."""
    seed = int(from_dict(ClassifyConfig, run.config).train.seed)
    count = len(run.field("label", Label).counts)
    parts = [stored(run, part, {"label": count}) for part in (TRAIN_PART, DEV_PART) if is_stored(run, part)]
    train = len(parts[0]["label"])
    order = np.random.default_rng((seed, 0x71DE)).permutation(train).tolist()
    series = [parts[0][SERIES_EXAMPLES][row] for row in order]
    labels = [int(parts[0]["label"].values[row]) for row in order]
    kernels = ConvolutionKernels.fit(series, seed)
    for part in parts[1:]:
        series += [part[SERIES_EXAMPLES][row] for row in range(len(part[SERIES_EXAMPLES]))]
        labels += part["label"].values.tolist()
    return _Fitted(kernels, kernels.of(series), labels, train)


def _read_some(reader: NgramKeys, train: LabelledTokens, seed: int) -> tuple[list[TextKeys], list[int]]:
    """The features and labels of the texts in random order, up to as many features as can be held in memory."""
    keys: list[TextKeys] = []
    order, occurrences = np.random.default_rng((seed, 0x71DE)).permutation(len(train.texts)).tolist(), 0
    for place in order:
        if occurrences > MOST_OCCURRENCES:
            break
        keys.append(reader.of(train.texts[place]))
        occurrences += sum(map(len, keys[-1]))
    return keys, [train.labels[place] for place in order[: len(keys)]]


def has_wide(run: Run) -> bool:
    """Whether a run has linear models. They are fitted before the network has weights of its own."""
    wanted = from_dict(ClassifyConfig, run.config).model.wide
    return wanted and (run.has(LINEAR_FILE) or run.has(WEIGHTS))


def load_wide(run: Run) -> WideModels | None:
    """The linear models of a run; None if it has none, or none yet.

    Raises:
        WeftError: the file is damaged.
    """
    if not has_wide(run):
        return None
    channels = len(run.field(SERIES_EXAMPLES, Series).channels) if SERIES_EXAMPLES in run.fields else 0
    return load_wide_file(run.path / LINEAR_FILE, len(run.field("label", Label).counts), channels)


def load_wide_file(path: Path, labels: int, channels: int = 0) -> WideModels:
    """The linear models in a file, of texts or of series of so many channels."""
    tensors = load_tensors(path).tensors
    finite_weights(path, {name: tensor for name, tensor in tensors.items() if not name.startswith(KERNELS)})
    with decoding(path):
        kernels = ConvolutionKernels.from_tensors(with_prefix(tensors, KERNELS), channels) if channels else None
        models = [
            LinearModel.from_tensors(with_prefix(tensors, f"{kind}."), labels, kind) for kind in kinds_of(kernels)
        ]
        if kernels is not None and any(len(model.keys) != kernels.size for model in models):
            raise ValueError("kernels and models that do not fit")
        return WideModels(models[0], models[1], kernels)


class HeldOutScores(NamedTuple):
    """What the weights of the mixture are fitted with, beside the network's log-probabilities."""

    scores: Tensor  # (N, labels, 2) of the linear models for the held-out texts
    prior: MixturePrior


def held_out_scores(run: Run, texts: int) -> HeldOutScores | None:
    """The scores of the linear models for a run's held-out texts; None if there are no such models."""
    if not has_wide(run):
        return None
    path, wanted = run.path / LINEAR_FILE, (texts, len(run.field("label", Label).counts), 2)
    tensors = load_tensors(path).tensors
    with decoding(path):
        scores, prior = tensors["scores"], tensors["prior"]
        if scores.shape != wanted or scores.dtype != torch.float64 or not scores.isfinite().all():
            raise ValueError(f"no scores {wanted}")
        if prior.shape != (4,) or not prior.isfinite().all() or not prior[3] > 0:
            raise ValueError("no prior of 4 finite numbers")
        *centre, strength = prior.tolist()
    return HeldOutScores(scores, MixturePrior(MixtureWeights(*centre), strength))
