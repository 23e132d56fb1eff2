"""The text classification model.

ids (B, T) -> embedding (B, T, E) -> recurrent stack (B, T, H) -> pooling (B, P) -> logits (B, labels)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.engine import Embedded, dropout
from weft.errors import unknown_name
from weft.nn import make_stack
from weft.nn.dropout import word_dropout
from weft.nn.pooling import POOLINGS
from weft.tasks.classify.config import ClassifyModelConfig
from weft.tasks.mixture import EQUAL, MEAN, Mixture
from weft.training.loss import Loss


class LabelledBatch(NamedTuple):
    """A batch of padded texts and their labels."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


class ClassifierOutput(NamedTuple):
    """The logits of the labels, and the pooling weight of each token."""

    logits: Tensor  # (B, labels)
    weights: Tensor  # (B, T)


class Classifier(nn.Module):
    """A recurrent text classifier.

    Args:
        vocabulary_size: V, the size of the vocabulary.
        labels: the number of labels.
        config: the `model` settings. With embedding_dim=0 the stack reads one-hot vectors.
        unknown: the id that word dropout puts in place of a token.

    Raises:
        WeftError: an unknown pooling.
    """

    output_layers = ("output",)

    def __init__(self, vocabulary_size: int, labels: int, config: ClassifyModelConfig, *, unknown: int = 0) -> None:
        super().__init__()
        if config.pooling not in POOLINGS:
            raise unknown_name("pooling", config.pooling, POOLINGS)
        self.config, self.unknown = config, unknown
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_dim) if config.embedding_dim else None
        if self.embedding is not None:
            nn.init.normal_(self.embedding.weight, std=config.embedding_dim**-0.5)
        self.stack = make_stack(
            config.cell,
            config.embedding_dim or vocabulary_size,
            config.hidden_size,
            layers=config.num_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
            recurrent_dropout=config.recurrent_dropout,
            residual=config.residual,
        )
        self.pooling = POOLINGS[config.pooling](config.hidden_size, config.hidden_size if config.bidirectional else 0)
        self.output = nn.Linear(self.pooling.output_size, labels)

    def forward(self, ids: Tensor, lengths: Tensor) -> ClassifierOutput:
        """Classifies padded texts: ids (B, T), lengths (B,)."""
        config, device = self.config, self.output.bias.device
        ids = ids.to(device)
        inside = torch.arange(ids.shape[1], device=device) < lengths.to(device)[:, None]  # (B, T)
        if self.training:
            ids = word_dropout(ids, config.word_dropout, self.unknown)
        x: Tensor | Embedded = ids
        if self.embedding is not None:
            x = Embedded.of(ids, self.embedding.weight, config.embedding_dropout, self.training)
        outputs, _ = self.stack(x, lengths=lengths)
        pooled = self.pooling(outputs, inside)
        return ClassifierOutput(self.output(dropout(pooled.vector, config.dropout, self.training)), pooled.weights)

    def loss(self, batch: LabelledBatch, class_weights: Tensor | None = None) -> Loss:
        """Computes the summed cross-entropy of the true labels.

        Args:
            batch: texts and labels.
            class_weights: (labels,) weights of the labels; None means 1.
        """
        logits = self(batch.ids, batch.lengths).logits
        labels = batch.labels.to(logits.device)
        losses = F.cross_entropy(logits, labels, reduction="none")
        if class_weights is not None:
            losses = losses * class_weights.to(logits.device)[labels]
        return Loss(losses.sum(), len(labels))


class ClassifierMixture(Mixture[Classifier]):
    """Averages the probabilities of the labels, and the pooling weights."""

    def forward(self, ids: Tensor, lengths: Tensor) -> ClassifierOutput:
        """Classifies padded texts: ids (B, T), lengths (B,). The logits are log-probabilities."""
        found: list[ClassifierOutput] = [member(ids, lengths) for member in self.models]
        logits = EQUAL.join([one.logits.log_softmax(-1) for one in found])
        return ClassifierOutput(logits, MEAN.join([one.weights for one in found]))
