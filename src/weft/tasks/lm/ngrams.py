"""n-gram models in training: counted in one phase, alone or before a network that is interpolated with them.

    P(w | h) = (1 - weight) P_network(w | h) + weight P_ngram(w | h)        (`model.ngram_order` of a network)

The n-gram model remembers strings of a small text that a network cannot learn from a few occurrences. Each evaluation
in training fits the weight to the held-out text by EM. The run directory of such a network has the n-gram model in
`ngram.safetensors`; the weight is in the metadata of the best weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from weft.data.windows import ROW_TOKENS
from weft.metrics import CROSS_ENTROPY
from weft.tasks.kneser_ney import NGram, modified_kneser_ney
from weft.tasks.lm.interpolation import likelihood
from weft.tasks.lm.model import LanguageModel
from weft.tasks.mixture import LINEAR, Array
from weft.tasks.text_task import TextData
from weft.training.loss import MeanLoss
from weft.training.run import WEIGHTS, Run, decoding, read_metadata
from weft.training.step import Evaluation, Progress
from weft.training.trainer import Phase, Update

NGRAM = "ngram.safetensors"
NGRAM_WEIGHT = "ngram_weight"  # its name among the metrics
WEIGHT_WITHOUT_DEV = 0.3  # where there is no held-out text to fit the weight to


class Counting(Phase):
    """Counts the n-grams of a text, in one step. Every worker does it.

    Args:
        order: the length of the longest n-grams.
        data: the text.
        weights_file: where the run has the model; with NGRAM it is a preparation of a network, without a loss.
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
