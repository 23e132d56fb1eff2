"""Linear interpolation of language models: P(w | h) = sum over k of weight_k P_k(w | h).

Members of a run have equal weights. An n-gram model of the training text (`model.ngram_order`) is counted in a phase
before the network, as the n-gram task counts it, and remembers strings of a small text that a network cannot learn from
a few occurrences. Each evaluation in training fits its weight to the held-out text by EM. The run directory has it in
`ngram.safetensors`; the weight is in the metadata of the best weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.data.windows import ROW_TOKENS, Tokens
from weft.errors import WeftError
from weft.metrics import CROSS_ENTROPY, Likelihood, TokenPredictions
from weft.tasks.kneser_ney import NGram, modified_kneser_ney
from weft.tasks.lm.model import LanguageModel
from weft.tasks.lm.predictor import NextTokenModel, TokenModel
from weft.tasks.mixture import LINEAR, Array, Mixture
from weft.tasks.text_task import TextData
from weft.training.loss import MeanLoss
from weft.training.run import WEIGHTS, Run, decoding, read_metadata
from weft.training.step import Evaluation, Progress
from weft.training.trainer import Phase, Update


class Interpolation(Mixture[NextTokenModel]):
    """Several language models with fixed weights, as one.

    Args:
        models: the language models, of the same vocabulary.
        weights: as many weights, which sum to 1; None: equal ones.
        members: those that are members of one run, the first of the models.
    """

    context = "left"  # tokens are predicted from those before them

    def __init__(
        self,
        models: Sequence[NextTokenModel],
        weights: Sequence[float] | None = None,
        members: Sequence[NextTokenModel] = (),
    ) -> None:
        if weights is None:
            weights = [1 / len(models)] * len(models)
        if len(models) != len(weights) or not models or min(weights) < 0 or not abs(sum(weights) - 1) <= 1e-6:
            raise WeftError(
                f"{len(models)} models with the weights {list(weights)}",
                expected="a weight for each, not negative, with the sum 1",
            )
        super().__init__(models, LINEAR, weights, members)

    def with_members(self, members: Sequence[TokenModel]) -> Interpolation:
        """The interpolation with other models in the place of its members."""
        return Interpolation([*members, *self.models[len(members) :]], self.weights, members)

    def token_log_probs(self, tokens: Tokens) -> Array:
        return LINEAR.join_targets(all_log_probs(self.models, tokens), self.weights)

    def evaluate(self, tokens: Tokens) -> Likelihood:
        """Computes the likelihood of the tokens (N,). Networks read a long text in rows, as they do alone."""
        return likelihood(LINEAR.join_targets(all_log_probs(self.models, tokens, ROW_TOKENS), self.weights))

    def next_probs(self, tokens: Tokens) -> Iterable[Array]:
        for rows in zip(*(chain.from_iterable(model.next_probs(tokens)) for model in self.models), strict=True):
            yield np.stack([weight * row for weight, row in zip(self.weights, rows, strict=True)]).sum(0)[None]

    @torch.no_grad()
    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        pairs = zip(chain.from_iterable(self.next_probs(tokens)), np.asarray(tokens)[1:], strict=True)
        correct = sum(int(probs.argmax() == token) for probs, token in pairs)
        return TokenPredictions(likelihood(self.token_log_probs(tokens)), correct)


def interpolate(networks: Sequence[TokenModel], ngram: NGram | None = None, weight: float = 0.0) -> Interpolation:
    """The networks of a run, one or the members of an ensemble, with equal weights, and an n-gram model."""
    if ngram is None:
        return Interpolation(networks, members=networks)
    weights = [*[(1 - weight) / len(networks)] * len(networks), weight]
    return Interpolation([*networks, ngram], weights, members=networks)


def networks_of(model: Any) -> list[LanguageModel]:
    """A recurrent language model, or those that are the members of an interpolation; none of other models."""
    return [one for one in getattr(model, "members", ()) or (model,) if isinstance(one, LanguageModel)]


def all_log_probs(models: Sequence[NextTokenModel], tokens: Tokens, row_tokens: int | None = None) -> Array:
    """The log-probability of each token but the first by each model, (N - 1, K); networks may read rows of a length."""
    found = [
        model.token_log_probs(tokens, row_tokens=row_tokens)
        if isinstance(model, LanguageModel)
        else model.token_log_probs(tokens)
        for model in models
    ]
    return np.stack(found, 1)


def likelihood(log_probs: Array) -> Likelihood:
    """The likelihood of tokens of these log-probabilities."""
    if not len(log_probs):
        raise WeftError("there are less than 2 tokens to evaluate on", expected="at least 2")
    return Likelihood(-float(log_probs.sum()), len(log_probs))


NGRAM = "ngram.safetensors"
NGRAM_WEIGHT = "ngram_weight"  # its name among the metrics
WEIGHT_WITHOUT_DEV = 0.3  # where there is no held-out text to fit the weight to


class Counting(Phase):
    """Counts the n-grams of a text, in one step. Every worker does it.

    With the file NGRAM it is a preparation of a network, without a loss.
    """

    epochs = report_every = 1
    save_seconds = 0.0
    model: Any = None  # until it is counted

    def __init__(self, order: int, data: TextData, weights_file: str = WEIGHTS) -> None:
        self.order, self.data, self.description, self.weights_file = order, data, data.description, weights_file
        self.evaluate_every = int(data.dev is not None)

    def steps(self, progress: Progress) -> int:
        return 1

    def step(self, progress: Progress, total: int, *, stop: bool) -> Update:
        tokens = np.asarray(self.data.train[:])
        self.model = modified_kneser_ney(tokens, len(self.data.text_field.vocabulary), self.order)
        progress.step = progress.epoch = 1
        loss, note = MeanLoss(0.0, 0), ""
        if self.weights_file == NGRAM:
            note = f"{self.order}-grams of the text"
        elif len(tokens) > 1:
            found = self.model.evaluate(tokens)
            loss = MeanLoss(found.nats, found.count)
        return Update(loss, epoch=1, evaluation_due=True, note=note)

    def evaluate(self) -> Evaluation:
        assert self.data.dev is not None
        return Evaluation.by(CROSS_ENTROPY, self.model.evaluate(self.data.dev).metrics())

    def weights(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        model = self.model
        return model.tensors(), {"size": model.size, "discounts": model.discounts, "ngrams": len(model)}


def load_ngrams(run: Run, file: str = NGRAM) -> NGram:
    saved = run.load(file)
    with decoding(run.file(file)):
        return NGram.from_tensors(*saved)


def evaluate_with_ngrams(network: LanguageModel, ngram_log_probs: Array, dev: Array) -> dict[str, float]:
    """The metrics of a network interpolated with n-grams on held-out text (N,), and the weight that suits it best."""
    log_probs = np.stack([network.token_log_probs(dev, row_tokens=ROW_TOKENS), ngram_log_probs], 1)
    weights = LINEAR.fit_to(log_probs)
    found = likelihood(LINEAR.join_targets(log_probs, weights))
    return {**found.metrics(), NGRAM_WEIGHT: float(weights[1])}


def fitted_weight(run: Run) -> float:
    """The weight of the n-gram model that belongs to the best weights of a run."""
    metadata = read_metadata(run.file(WEIGHTS)) if run.has(WEIGHTS) else {}
    with decoding(run.file(WEIGHTS)):
        return float(metadata.get(NGRAM_WEIGHT, WEIGHT_WITHOUT_DEV))
