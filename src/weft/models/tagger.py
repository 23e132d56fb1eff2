"""The tagger: every place of a sentence is read from both sides, and its tag told from that.

what stands at each place -> bidirectional layers -> a score for each tag -> tags told together, or each for itself
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.config.tag import TagModelConfig
from weft.crf import CRF, Allowed, bio_constraints, bioes_constraints
from weft.engine import NO_DROPOUT, Dropout, Embedded, linear_cross_entropy
from weft.models.base import Loss
from weft.models.neighbours import Neighbours
from weft.models.words import Inputs, make_reader
from weft.recurrent import make_stack
from weft.text.lexicon import Lexicon, WordLexicon
from weft.text.spans import Scheme, canonical


class TaggedBatch(NamedTuple):
    """Sentences and their tags."""

    inputs: Inputs
    tags: Tensor  # (B, T)


class Linear(NamedTuple):
    """The parameters of a layer that makes scores."""

    weight: Tensor
    bias: Tensor


class Together(CRF):
    """Tags told together."""

    def nats(self, hidden: Tensor, line: Linear, tags: Tensor, lengths: Tensor, drop: Dropout) -> Tensor:
        """What the tags of all rows cost by the scores that a line makes of what is hidden, (B, T, H)."""
        scores = F.linear(drop.apply(hidden), *line)
        return -self.log_likelihood(scores, tags, lengths).sum()


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

    def nats(self, hidden: Tensor, line: Linear, tags: Tensor, lengths: Tensor, drop: Dropout) -> Tensor:
        return linear_cross_entropy(hidden, *line, tags, lengths=lengths, dropout=drop, reduction="sum")

    def marginals(self, scores: Tensor, lengths: Tensor | None = None) -> Tensor:
        return scores.softmax(-1)


OUTPUTS: dict[str, Callable[[int, Allowed | None], Together | Softmax]] = {"crf": Together, "softmax": Softmax}


class Tagger(nn.Module):
    """Inputs (B, T) to scores (B, T, K) of K tags; `output` makes tags and probabilities of them.

    `lean` is added to the scores after training: how readily spans of each kind begin, fitted to held-out sentences.
    """

    lean: Tensor

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
        # Where every word has a tag of its own there is enough to learn from.
        beside = config.neighbours > 0 and scheme is not None and isinstance(lexicon, WordLexicon)
        self.neighbours = Neighbours(config.hidden, len(lexicon.words)) if beside else None
        self.weight = config.neighbours
        self.register_buffer("lean", torch.zeros(len(tags)))

    def forward(self, inputs: Inputs) -> Tensor:
        hidden, _ = self.stack(self._read(inputs), lengths=inputs.lengths)
        scores: Tensor = self.scores(self._drop(self.dropout).apply(hidden))
        return scores if self.training else scores + self.lean

    def loss(self, batch: TaggedBatch) -> Loss:
        """The nats of the tags of all sentences, with a share of those of the words beside them; how many tags."""
        inputs, lengths = batch.inputs, batch.inputs.lengths
        x = self._read(inputs)
        hidden, _ = self.stack(x, lengths=lengths)
        line = Linear(self.scores.weight, self.scores.bias if self.training else self.scores.bias + self.lean)
        total = self.output.nats(hidden, line, batch.tags.to(hidden.device), lengths, self._drop(self.dropout))
        if self.neighbours is not None:
            # Of several layers only the lowest will do: above it, each direction has seen the other's words. It is run
            # again for that, with noise of its own.
            lowest = hidden if len(self.stack.layers) == 1 else self.stack.layers[0](x, lengths=lengths)[0]
            total = total + self.weight * self.neighbours(lowest, inputs.ids, lengths)
        return Loss(total, sum(lengths.tolist()))

    def _read(self, inputs: Inputs) -> Embedded:
        return self.reader(inputs, self._drop(self.embedding_dropout))  # type: ignore[no-any-return]  # (B, T, E)

    def _drop(self, share: float) -> Dropout:
        return Dropout(share, shared_over_time=True) if self.training else NO_DROPOUT


def allowed_tags(tags: Sequence[str], scheme: Scheme | None) -> Allowed | None:
    """What tags may follow each other, by their scheme."""
    if scheme is None:
        return None
    return (bioes_constraints if scheme.closes else bio_constraints)([canonical(tag) for tag in tags])


def keep_apart(scores: Tensor, starts: Tensor, tags: Sequence[str]) -> Tensor:
    """Scores (B, T, K) with which no span goes on over a place that is one of the `starts` (B, T).

    What would have to go on there has no way to end, in a scheme that tells ends, so that it is ruled out as well.
    """
    goes_on = torch.tensor([canonical(tag)[0] in "IE" for tag in tags], device=scores.device)
    here = starts.to(device=scores.device, dtype=torch.bool)
    return scores.masked_fill(here[:, :, None] & goes_on, -torch.inf)
