"""The wide path of a classifier: two linear n-gram models beside the network, stored with the run.

They are fitted when a run is created, before the network is trained, and stored in logistic.safetensors and
nbsvm.safetensors. data/ngrams.safetensors has their scores of the held-out texts: the weights of the mixture are fitted
to these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.tasks.classify.linear import MOST_OCCURRENCES, LinearModel, fit_logistic, fit_nbsvm
from weft.tasks.classify.ngram_features import NgramKeys, TextKeys
from weft.training.run import DATA_FOLDER, Run, load_tensors, save_tensors

LOGISTIC_FILE, NBSVM_FILE = "logistic.safetensors", "nbsvm.safetensors"
HELD_OUT_SCORES = f"{DATA_FOLDER}/ngrams.safetensors"
MARGIN_SCALE = 5.0  # makes margins of the SVM about as large as log-probabilities

TokenTexts = Sequence[Sequence[str]]


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


def store_wide(
    folder: Path,
    texts: TokenTexts,
    labels: Sequence[int],
    held_out: TokenTexts,
    *,
    count: int,
    seed: int,
    class_weights: Tensor | None = None,
    start: WideModels | None = None,
) -> None:
    """Fits both models and stores them in a new run, with their scores of the held-out texts.

    Args:
        folder: the run directory.
        texts: the training texts, tokenized.
        labels: their labels.
        held_out: the held-out texts.
        count: the number of labels.
        seed: selects the texts where there are too many.
        class_weights: (labels,) weights of the labels; None means 1.
        start: the models of the run that is fine-tuned.
    """
    reader, chosen, keys, occurrences = NgramKeys(characters=True), [], [], 0
    for place in np.random.default_rng((seed, 0x71DE)).permutation(len(texts)).tolist():
        if occurrences > MOST_OCCURRENCES:
            break
        chosen.append(place)
        keys.append(reader.of(texts[place]))
        occurrences += sum(map(len, keys[-1]))
    truth = torch.tensor([labels[place] for place in chosen])
    before = None if start is None else start.logistic
    logistic = fit_logistic(keys, truth, count, class_weights=class_weights, start=before)
    models = WideModels(logistic, fit_nbsvm(keys, truth, count, class_weights=class_weights))
    models.logistic.save(folder / LOGISTIC_FILE)
    models.nbsvm.save(folder / NBSVM_FILE)
    if held_out:
        scores = models._scores([reader.of(tokens) for tokens in held_out])
        save_tensors(folder / HELD_OUT_SCORES, {"scores": scores}, {})


def load_wide(run: Run) -> WideModels | None:
    """The linear models of a run; None if it was trained without them.

    Raises:
        WeftError: a file is missing or damaged.
    """
    if not run.vocabulary.get("wide"):
        return None
    labels = len(run.vocabulary["labels"])
    return WideModels(*(LinearModel.load(run.path / name, labels) for name in (LOGISTIC_FILE, NBSVM_FILE)))


def held_out_scores(run: Run, texts: int) -> Tensor | None:
    """The scores of the linear models for a run's held-out texts, (N, labels, 2); None if there are no such models."""
    if not run.vocabulary.get("wide"):
        return None
    scores = load_tensors(run.data_file(HELD_OUT_SCORES)).tensors.get("scores")
    wanted = (texts, len(run.vocabulary["labels"]), 2)
    if scores is None or scores.shape != wanted or scores.dtype != torch.float64 or not scores.isfinite().all():
        raise WeftError(f"{run.path / HELD_OUT_SCORES} does not fit the held-out texts", expected=f"scores {wanted}")
    return scores
