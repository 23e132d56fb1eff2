"""The classification model.

ids (B, T) or values (B, T, C) -> embedding (B, T, E) -> recurrent stack (B, T, H) -> pooling (B, P)
-> logits (B, labels)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.engine import Embedded, dropout
from weft.errors import unknown_name
from weft.nn import make_stack
from weft.nn.channels import ChannelLayer
from weft.nn.dropout import word_dropout
from weft.nn.pooling import POOLINGS
from weft.tasks.classify.config import ClassifyModelConfig
from weft.tasks.mixture import EQUAL, MEAN, Mixture
from weft.training.loss import Loss


class LabelledBatch(NamedTuple):
    """A batch of padded texts, or series, and their labels."""

    values: Tensor  # (B, T) ids, or (B, T, C)
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


class ClassifierOutput(NamedTuple):
    """The logits of the labels, and the pooling weight of each step."""

    logits: Tensor  # (B, labels)
    weights: Tensor  # (B, T)


class TokenLayer(nn.Module):
    """ids (B, T) -> embeddings (B, T, E); with embedding_dim=0 one-hot vectors. Word dropout reads ids as `unknown`."""

    weight: nn.Parameter | None

    def __init__(self, vocabulary_size: int, config: ClassifyModelConfig, *, unknown: int = 0) -> None:
        super().__init__()
        self.config, self.unknown = config, unknown
        self.output_size = config.embedding_dim or vocabulary_size
        table = nn.Embedding(vocabulary_size, config.embedding_dim) if config.embedding_dim else None
        if table is not None:
            nn.init.normal_(table.weight, std=config.embedding_dim**-0.5)
        self.weight = None if table is None else nn.Parameter(table.weight.data)

    def forward(self, ids: Tensor) -> Tensor | Embedded:
        config = self.config
        if self.training:
            ids = word_dropout(ids, config.word_dropout, self.unknown)
        if self.weight is None:
            return ids
        return Embedded.of(ids, self.weight, config.embedding_dropout, self.training)

    def vectors(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """What the stack reads of each id (B, T), as vectors."""
        return F.one_hot(ids, self.output_size).to(dtype) if self.weight is None else F.embedding(ids, self.weight)


class Classifier(nn.Module):
    """A recurrent classifier of texts or series.

    Raises:
        WeftError: an unknown pooling.
    """

    output_layers = ("output",)

    def __init__(self, embedding: TokenLayer | ChannelLayer, labels: int, config: ClassifyModelConfig) -> None:
        super().__init__()
        if config.pooling not in POOLINGS:
            raise unknown_name("pooling", config.pooling, POOLINGS)
        self.config, self.embedding = config, embedding
        self.stack = make_stack(
            config.cell,
            embedding.output_size,
            config.hidden_size,
            layers=config.num_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
            recurrent_dropout=config.recurrent_dropout,
            residual=config.residual,
        )
        self.pooling = POOLINGS[config.pooling](config.hidden_size, config.hidden_size if config.bidirectional else 0)
        self.output = nn.Linear(self.pooling.output_size, labels)

    def forward(self, values: Tensor, lengths: Tensor) -> ClassifierOutput:
        """Classifies padded examples: ids (B, T) of texts, or values (B, T, C) of series; lengths (B,)."""
        config, device = self.config, self.output.bias.device
        values = values.to(device)
        inside = torch.arange(values.shape[1], device=device) < lengths.to(device)[:, None]  # (B, T)
        outputs, _ = self.stack(self.embedding(values), lengths=lengths)
        pooled = self.pooling(outputs, inside)
        return ClassifierOutput(self.output(dropout(pooled.vector, config.dropout, self.training)), pooled.weights)

    def loss(self, batch: LabelledBatch, class_weights: Tensor | None = None) -> Loss:
        """Computes the summed cross-entropy of the true labels."""
        logits = self(batch.values, batch.lengths).logits
        labels = batch.labels.to(logits.device)
        losses = F.cross_entropy(logits, labels, reduction="none")
        if class_weights is not None:
            losses = losses * class_weights.to(logits.device)[labels]
        return Loss(losses.sum(), len(labels))


class ClassifierMixture(Mixture[Classifier]):
    """Averages the probabilities of the labels, and the pooling weights."""

    def forward(self, values: Tensor, lengths: Tensor) -> ClassifierOutput:
        """Classifies padded examples, as `Classifier` does. The logits are log-probabilities."""
        found: list[ClassifierOutput] = [member(values, lengths) for member in self.models]
        logits = EQUAL.join([one.logits.log_softmax(-1) for one in found])
        return ClassifierOutput(logits, MEAN.join([one.weights for one in found]))
