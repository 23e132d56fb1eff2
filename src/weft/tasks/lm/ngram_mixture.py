"""A network interpolated with an n-gram model of its own training text (`model.ngram_order`).

    P(w | h) = (1 - weight) P_network(w | h) + weight P_ngram(w | h)

The n-gram model remembers strings of a small text that a network cannot learn from a few occurrences, and takes
seconds to count. Each evaluation in training fits the weight to the held-out text by EM. The run directory has the
n-gram model in `ngram.safetensors`; the weight is in the metadata of the best weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from weft.data.windows import ROW_TOKENS, Tokens
from weft.metrics import CROSS_ENTROPY, Likelihood, TokenPredictions
from weft.tasks.kneser_ney import NGram, modified_kneser_ney
from weft.tasks.lm.cache import read_outputs
from weft.tasks.lm.interpolation import Interpolation, likelihood
from weft.tasks.lm.model import LanguageModel
from weft.tasks.lm.predictor import TokenModel
from weft.tasks.mixture import LINEAR, Array
from weft.training.run import WEIGHTS, Run, decoding, read_metadata
from weft.training.step import Evaluation

NGRAM = "ngram.safetensors"
NGRAM_WEIGHT = "ngram_weight"  # its name among the metrics
TABLE_ELEMENTS = 1 << 20  # probabilities of next tokens that are computed at a time
WEIGHT_WITHOUT_DEV = 0.3  # where there is no held-out text to fit the weight to


class NgramMixture(Interpolation):
    """Networks with equal weights and an n-gram model, interpolated.

    Args:
        networks: one network, or the members of an ensemble.
        ngram: the n-gram model.
        weight: the weight of the n-gram model.
    """

    def __init__(self, networks: Sequence[LanguageModel], ngram: NGram, weight: float) -> None:
        weights = [*[(1 - weight) / len(networks)] * len(networks), weight]
        super().__init__([*networks, ngram], weights, members=networks)
        self.ngram, self.own_networks = ngram, tuple(networks)

    def evaluate(self, tokens: Tokens) -> Likelihood:
        """Computes the likelihood of the tokens (N,). Networks read a long text in rows, as without an n-gram model."""
        log_probs = [_log_probs_in_rows(network, tokens) for network in self.own_networks]
        return likelihood(
            LINEAR.join_targets(np.stack([*log_probs, self.ngram.token_log_probs(tokens)], 1), self.weights)
        )

    @torch.no_grad()
    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """As `token_log_probs`, and counts how often the most probable token is the true one."""
        ids, correct = np.asarray(tokens).astype(np.int64), 0
        rows = max(1, TABLE_ELEMENTS // self.ngram.size)
        parts = [read_outputs(network, ids, rows) for network in self.own_networks]
        for probs, *read in zip(self.ngram.tables(ids[:-1], rows), *parts, strict=True):
            probs *= self.weights[-1]
            for network, weight, (outputs, _) in zip(self.own_networks, self.weights, read, strict=False):
                probs += weight * network.log_probs(outputs.to(network.device)).exp().cpu().numpy()
            correct += int((probs.argmax(-1) == read[0][1].numpy()).sum())  # the tokens that followed
        return TokenPredictions(likelihood(self.token_log_probs(ids)), correct)

    def replace_networks(self, models: Sequence[TokenModel]) -> Interpolation:
        """The interpolation with other models in the place of the networks."""
        return Interpolation([*models, self.ngram], self.weights)


class NgramEvaluation:
    """Evaluates a network interpolated with an n-gram model on held-out text, with the best weight.

    Args:
        network: the network, in training.
        ngram: the n-gram model.
        dev: (N,) the held-out tokens.
    """

    def __init__(self, network: LanguageModel, ngram: NGram, dev: Tokens) -> None:
        self.network, self.dev = network, dev
        self.log_probs = ngram.token_log_probs(dev)

    def __call__(self) -> Evaluation:
        log_probs = np.stack([_log_probs_in_rows(self.network, self.dev), self.log_probs], 1)
        weights = LINEAR.fit_to(log_probs)
        found = likelihood(LINEAR.join_targets(log_probs, weights))
        return Evaluation.by(CROSS_ENTROPY, {**found.metrics(), NGRAM_WEIGHT: float(weights[1])})


def _log_probs_in_rows(network: LanguageModel, tokens: Tokens) -> Array:
    return network.token_log_probs(tokens, row_tokens=ROW_TOKENS)


def count_ngrams(run: Run, order: int, tokens: Tokens, size: int) -> NGram:
    """The n-gram model of a run: counted when training starts, loaded when it resumes."""
    if run.has(NGRAM):
        return load_ngrams(run)
    ngram = modified_kneser_ney(np.asarray(tokens[:]), size, order)
    run.save(NGRAM, ngram.tensors(), {"size": ngram.size, "discounts": ngram.discounts})
    return ngram


def load_ngrams(run: Run) -> NGram:
    """Loads the n-gram model of a run."""
    saved = run.load(NGRAM)
    with decoding(run.file(NGRAM)):
        return NGram.from_tensors(*saved)


def fitted_weight(run: Run) -> float:
    """The weight of the n-gram model that belongs to the best weights of a run."""
    metadata = read_metadata(run.file(WEIGHTS)) if run.has(WEIGHTS) else {}
    with decoding(run.file(WEIGHTS)):
        return float(metadata.get(NGRAM_WEIGHT, WEIGHT_WITHOUT_DEV))
