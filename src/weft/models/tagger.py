"""The tagger: every place of a sentence is read from both sides, and its tag told from that.

what stands at each place -> bidirectional layers -> a score for each tag -> tags told together, or each for itself
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.config.tag import TagModelConfig
from weft.crf import CRF, Allowed, bio_constraints, bioes_constraints
from weft.models.base import Loss
from weft.models.noise import drop_rows
from weft.models.words import Inputs, make_reader
from weft.recurrent import make_stack
from weft.text.lexicon import Lexicon
from weft.text.spans import Scheme, canonical


class TaggedBatch(NamedTuple):
    """Sentences and their tags."""

    inputs: Inputs
    tags: Tensor  # (B, T)


class Softmax(CRF):
    """Tags each told for itself: a CRF whose tags do not see each other.

    Only when a sentence is tagged must they keep to what is allowed: the likeliest sequence that does is taken.
    """

    def __init__(self, tags: int, allowed: Allowed | None = None) -> None:
        super().__init__(tags, allowed)
        for parameter in self.parameters():
            nn.init.zeros_(parameter.requires_grad_(False))

    def log_likelihood(self, scores: Tensor, tags: Tensor, lengths: Tensor | None = None) -> Tensor:
        each = scores.log_softmax(-1).gather(2, tags[:, :, None])[:, :, 0]  # (B, T)
        if lengths is not None:
            each = each.masked_fill(
                torch.arange(each.shape[1], device=each.device) >= lengths[:, None].to(each.device), 0
            )
        return each.sum(1)

    def marginals(self, scores: Tensor, lengths: Tensor | None = None) -> Tensor:
        return scores.softmax(-1)


OUTPUTS: dict[str, Callable[[int, Allowed | None], CRF]] = {"crf": CRF, "softmax": Softmax}


class Tagger(nn.Module):
    """Inputs (B, T) to scores (B, T, K) of K tags; `output` makes tags and probabilities of them."""

    def __init__(self, lexicon: Lexicon, tags: Sequence[str], scheme: Scheme | None, config: TagModelConfig) -> None:
        super().__init__()
        self.embedding_dropout, self.dropout = config.embedding_dropout, config.dropout
        self.reader = make_reader(lexicon, config)
        self.stack = make_stack(
            config.cell,
            self.reader.output_size,
            config.hidden,
            layers=config.layers,
            bidirectional=True,
            dropout=config.dropout,
            recurrent_dropout=config.recurrent_dropout,
            residual=config.residual,
        )
        self.scores = nn.Linear(self.stack.output_size, len(tags))
        self.output = OUTPUTS[config.output](len(tags), allowed_tags(tags, scheme))

    def forward(self, inputs: Inputs) -> Tensor:
        x = drop_rows(self.reader(inputs), self.embedding_dropout if self.training else 0.0)  # (B, T, E)
        hidden, _ = self.stack(x, lengths=inputs.lengths)
        return self.scores(drop_rows(hidden, self.dropout if self.training else 0.0))  # type: ignore[no-any-return]

    def loss(self, batch: TaggedBatch) -> Loss:
        """The nats of the tags of all sentences, and how many tags there are."""
        scores, lengths = self(batch.inputs), batch.inputs.lengths
        total = -self.output.log_likelihood(scores, batch.tags.to(scores.device), lengths).sum()
        return Loss(total, int(lengths.sum()))


def allowed_tags(tags: Sequence[str], scheme: Scheme | None) -> Allowed | None:
    """What tags may follow each other, by their scheme."""
    if scheme is None:
        return None
    return (bioes_constraints if scheme.closes else bio_constraints)([canonical(tag) for tag in tags])
