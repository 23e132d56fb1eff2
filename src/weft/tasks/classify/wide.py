"""The wide path of a classifier: two linear n-gram models beside the network, stored with the run.

They are fitted when a run is created, before the network is trained, and stored in logistic.safetensors and
nbsvm.safetensors. The logistic regression of long texts is the weighted sum of two, which differ in how they weight
their features; their shares are fitted to held-out texts, too. data/ngrams.safetensors has the scores of the held-out
texts by models of the other texts: the weights of the mixture are fitted to these. Where the held-out texts were drawn
from the training texts, the models that are stored are then fitted again, to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.tasks.classify.cross_fitting import cross_scores, is_worthwhile
from weft.tasks.classify.example import label_counts
from weft.tasks.classify.linear import (
    MOST_OCCURRENCES,
    LinearModel,
    fit_idf_logistic,
    fit_logistic,
    fit_nbsvm,
    weighted_sum,
)
from weft.tasks.classify.mixing import DEFAULT_PRIOR, Mixture, MixturePrior, fit_blend, fit_prior
from weft.tasks.classify.ngram_features import NgramKeys, TextKeys, mostly_long
from weft.training.run import DATA_FOLDER, Run, load_tensors, save_tensors

LOGISTIC_FILE, NBSVM_FILE = "logistic.safetensors", "nbsvm.safetensors"
HELD_OUT_SCORES = f"{DATA_FOLDER}/ngrams.safetensors"
MARGIN_SCALE = 5.0  # makes margins of the SVM about as large as log-probabilities

TokenTexts = Sequence[Sequence[str]]


class LabelledTokens(NamedTuple):
    """Tokenized texts and their labels."""

    texts: TokenTexts
    labels: Sequence[int]


@dataclass(frozen=True)
class WideModels:
    """The two linear models of a run."""

    logistic: LinearModel
    nbsvm: LinearModel

    def scores(self, texts: TokenTexts) -> Tensor:
        """The scores of both models for tokenized texts, (N, labels, 2), in double precision."""
        reader = NgramKeys(characters=True)
        return self._scores([reader.of(tokens) for tokens in texts])

    def _scores(self, texts: Sequence[TextKeys]) -> Tensor:
        margins = MARGIN_SCALE * self.nbsvm.logits_of(texts)
        return torch.stack([self.logistic.logits_of(texts).log_softmax(-1), margins], -1).double()

    def contributions(self, tokens: Sequence[str]) -> Tensor:
        """What each token adds to the scores of both models, (T, labels, 2)."""
        margins = MARGIN_SCALE * self.nbsvm.contributions(tokens)
        return torch.stack([self.logistic.contributions(tokens), margins], -1).double()


class _Fitted(NamedTuple):
    """What is fitted to texts: two logistic regressions, which become one, and the SVM."""

    logistic: LinearModel
    idf_logistic: LinearModel | None  # of long texts, unless a run is fine-tuned: the first starts from its source
    nbsvm: LinearModel

    def scores(self, texts: Sequence[TextKeys]) -> Tensor:
        """The scores of all three for texts, (N, labels, 3), in double precision."""
        log_probs = [
            torch.zeros(len(texts), len(self.nbsvm.bias)) if model is None else model.logits_of(texts).log_softmax(-1)
            for model in (self.logistic, self.idf_logistic)
        ]
        return torch.stack([*log_probs, MARGIN_SCALE * self.nbsvm.logits_of(texts)], -1).double()

    def models(self, share: float) -> WideModels:
        """The two models of a run; `share` is that of the second logistic regression."""
        if self.idf_logistic is None:
            return WideModels(self.logistic, self.nbsvm)
        return WideModels(weighted_sum((self.logistic, 1 - share), (self.idf_logistic, share)), self.nbsvm)


def blended(scores: Tensor, share: float) -> Tensor:
    """The scores of the two models of a run, (N, labels, 2), from those of the three that were fitted."""
    logistic = (1 - share) * scores[..., 0] + share * scores[..., 1]
    return torch.stack([logistic.log_softmax(-1), scores[..., 2]], -1)


def store_wide(
    folder: Path,
    train: LabelledTokens,
    held_out: LabelledTokens,
    *,
    count: int,
    seed: int,
    drawn: bool,
    class_weights: Tensor | None = None,
    start: WideModels | None = None,
    cross_fit: bool = True,
) -> None:
    """Fits both models and stores them in a new run, with the scores of the held-out texts.

    Args:
        folder: the run directory.
        train: the training texts.
        held_out: the held-out texts.
        count: the number of labels.
        seed: selects the texts where there are too many.
        drawn: whether the held-out texts were drawn from those given to train on; the final models are of all of them.
        class_weights: (labels,) weights of the labels; None means 1.
        start: the models of the run that is fine-tuned.
        cross_fit: whether the labels of the training texts tell what the models are worth; not those of a teacher.
    """
    reader = NgramKeys(characters=True)

    def fit(keys: Sequence[TextKeys], labels: Sequence[int]) -> _Fitted:
        truth, idf = torch.tensor(labels), None
        if blends:
            idf = fit_idf_logistic(keys, truth, count, class_weights=class_weights)
        before = None if start is None else start.logistic
        logistic = fit_logistic(keys, truth, count, class_weights=class_weights, start=before)
        return _Fitted(logistic, idf, fit_nbsvm(keys, truth, count, class_weights=class_weights))

    keys, labels = _read_some(reader, train, seed)
    blends = start is None and mostly_long(keys)
    fitted, share = fit(keys, labels), 0.0
    if held_out.texts:
        held_out_keys = [reader.of(tokens) for tokens in held_out.texts]
        own, prior, truth = fitted.scores(held_out_keys), DEFAULT_PRIOR, torch.tensor(held_out.labels)
        cross = own[:0]
        if cross_fit and is_worthwhile(keys, count, len(held_out_keys)):
            cross = cross_scores(keys, labels, lambda texts, truth, others: fit(texts, truth).scores(others))
        if blends:
            all_labels = torch.cat([torch.tensor(labels[: len(cross)], dtype=truth.dtype), truth])
            share = fit_blend(torch.cat([cross, own]), all_labels, class_weights)
        if len(cross):
            prior = fit_prior(blended(cross, share), torch.tensor(labels), class_weights)
        stored = torch.tensor([*prior.centre, prior.texts], dtype=torch.float64)
        save_tensors(folder / HELD_OUT_SCORES, {"scores": blended(own, share), "prior": stored}, {})
        if drawn and len(keys) == len(train.texts):
            fitted = fit(keys + held_out_keys, [*labels, *held_out.labels])
    models = fitted.models(share)
    models.logistic.save(folder / LOGISTIC_FILE)
    models.nbsvm.save(folder / NBSVM_FILE)


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


def load_wide(run: Run) -> WideModels | None:
    """The linear models of a run; None if it was trained without them.

    Raises:
        WeftError: a file is missing or damaged.
    """
    if not run.vocabulary.get("wide"):
        return None
    labels = len(run.decode(label_counts))
    return WideModels(*(LinearModel.load(run.path / name, labels) for name in (LOGISTIC_FILE, NBSVM_FILE)))


class HeldOutScores(NamedTuple):
    """What the weights of the mixture are fitted with, beside the network's log-probabilities."""

    scores: Tensor  # (N, labels, 2) of the linear models for the held-out texts
    prior: MixturePrior


def held_out_scores(run: Run, texts: int) -> HeldOutScores | None:
    """The scores of the linear models for a run's held-out texts; None if there are no such models."""
    if not run.vocabulary.get("wide"):
        return None
    stored = load_tensors(run.data_file(HELD_OUT_SCORES)).tensors
    wanted = (texts, len(run.decode(label_counts)), 2)
    scores, prior = (
        stored.get("scores"),
        stored.get("prior", torch.tensor([*DEFAULT_PRIOR.centre, DEFAULT_PRIOR.texts])),
    )
    if scores is None or scores.shape != wanted or scores.dtype != torch.float64 or not scores.isfinite().all():
        raise WeftError(f"{run.path / HELD_OUT_SCORES} does not fit the held-out texts", expected=f"scores {wanted}")
    if prior.shape != (4,) or not prior.isfinite().all() or not prior[3] > 0:
        raise WeftError(f"{run.path / HELD_OUT_SCORES} is damaged", expected="a prior of the weights: 4 finite numbers")
    *centre, strength = prior.tolist()
    return HeldOutScores(scores, MixturePrior(Mixture(*centre), strength))
