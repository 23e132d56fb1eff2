"""The tagger: every place of a sentence is read from both sides, and its tag told from that.

what stands at each place -> bidirectional layers -> a score for each tag -> tags told together, or each for itself
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.engine import NOTHING, Drop, Embedded, readout_nats
from weft.nn import make_stack
from weft.nn.crf import CRF, TagConstraints, bio_constraints, bioes_constraints
from weft.tasks.tag.config import TagModelConfig
from weft.tasks.tag.encoder import Inputs, make_encoder
from weft.tasks.tag.lexicon import Lexicon, WordLexicon
from weft.tasks.tag.neighbours import NeighbourWordLoss
from weft.text.spans import Scheme, to_bioes
from weft.training.loss import Loss


class TaggedBatch(NamedTuple):
    """Sentences and their tags."""

    inputs: Inputs
    tags: Tensor  # (B, T)


class Linear(NamedTuple):
    """The parameters of a layer that makes scores."""

    weight: Tensor
    bias: Tensor


class CRFOutput(CRF):
    """Tags told together."""

    def nats(self, hidden: Tensor, line: Linear, tags: Tensor, lengths: Tensor, drop: Drop) -> Tensor:
        """What the tags of all rows cost by the scores that a line makes of what is hidden, (B, T, H)."""
        scores = F.linear(drop.apply(hidden), *line)
        return -self.log_likelihood(scores, tags, lengths).sum()


class SoftmaxOutput(CRF):
    """Tags each told for itself: a CRF whose tags do not see each other.

    Only when a sentence is tagged must they keep to what is allowed: the likeliest sequence that does is taken.
    """

    def __init__(self, tags: int, allowed: TagConstraints | None = None) -> None:
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

    def nats(self, hidden: Tensor, line: Linear, tags: Tensor, lengths: Tensor, drop: Drop) -> Tensor:
        return readout_nats(hidden, *line, tags, lengths=lengths, drop=drop, total=True)

    def marginals(self, scores: Tensor, lengths: Tensor | None = None) -> Tensor:
        return scores.softmax(-1)


OUTPUTS: dict[str, Callable[[int, TagConstraints | None], CRFOutput | SoftmaxOutput]] = {
    "crf": CRFOutput,
    "softmax": SoftmaxOutput,
}


class Tagger(nn.Module):
    """Inputs (B, T) to scores (B, T, K) of K tags; `output` makes tags and probabilities of them.

    `span_start_bias` is added to the scores after training: how readily spans of each kind begin, fitted to held-out
    sentences.
    """

    span_start_bias: Tensor

    def __init__(self, lexicon: Lexicon, tags: Sequence[str], scheme: Scheme | None, config: TagModelConfig) -> None:
        super().__init__()
        self.embedding_dropout, self.dropout = config.embedding_dropout, config.dropout
        self.encoder = make_encoder(lexicon, config)
        self.stack = make_stack(
            config.cell,
            self.encoder.output_size,
            config.hidden_size,
            layers=config.num_layers,
            bidirectional=True,
            dropout=config.dropout,
            recurrent_dropout=config.recurrent_dropout,
            residual=config.residual,
        )
        self.scores = nn.Linear(self.stack.output_size, len(tags))
        self.output = OUTPUTS[config.output](len(tags), tag_constraints(tags, scheme))
        # Where every word has a tag of its own there is enough to learn from.
        beside = config.neighbour_loss_weight > 0 and scheme is not None and isinstance(lexicon, WordLexicon)
        self.neighbours = NeighbourWordLoss(config.hidden_size, len(lexicon.words)) if beside else None
        self.weight = config.neighbour_loss_weight
        self.register_buffer("span_start_bias", torch.zeros(len(tags)))

    def forward(self, inputs: Inputs) -> Tensor:
        hidden, _ = self.stack(self._read(inputs), lengths=inputs.lengths)
        scores: Tensor = self.scores(self._drop(self.dropout).apply(hidden))
        return scores if self.training else scores + self.span_start_bias

    def loss(self, batch: TaggedBatch) -> Loss:
        """The nats of the tags of all sentences, with a share of those of the words beside them; how many tags."""
        inputs, lengths = batch.inputs, batch.inputs.lengths
        x = self._read(inputs)
        hidden, _ = self.stack(x, lengths=lengths)
        line = Linear(
            self.scores.weight, self.scores.bias if self.training else self.scores.bias + self.span_start_bias
        )
        total = self.output.nats(hidden, line, batch.tags.to(hidden.device), lengths, self._drop(self.dropout))
        if self.neighbours is not None:
            # Of several layers only the lowest will do: above it, each direction has seen the other's words. It is run
            # again for that, with noise of its own.
            lowest = hidden if len(self.stack.layers) == 1 else self.stack.layers[0](x, lengths=lengths)[0]
            total = total + self.weight * self.neighbours(lowest, inputs.ids, lengths)
        return Loss(total, sum(lengths.tolist()))

    def _read(self, inputs: Inputs) -> Embedded:
        return self.encoder(inputs, self._drop(self.embedding_dropout))  # type: ignore[no-any-return]  # (B, T, E)

    def _drop(self, share: float) -> Drop:
        return Drop(share, units=True) if self.training else NOTHING


def tag_constraints(tags: Sequence[str], scheme: Scheme | None) -> TagConstraints | None:
    """What tags may follow each other, by their scheme."""
    if scheme is None:
        return None
    return (bioes_constraints if scheme.marks_end else bio_constraints)([to_bioes(tag) for tag in tags])


def forbid_continuation(scores: Tensor, starts: Tensor, tags: Sequence[str]) -> Tensor:
    """Scores (B, T, K) with which no span goes on over a place that is one of the `starts` (B, T).

    What would have to go on there has no way to end, in a scheme that tells ends, so that it is ruled out as well.
    """
    goes_on = torch.tensor([to_bioes(tag)[0] in "IE" for tag in tags], device=scores.device)
    here = starts.to(device=scores.device, dtype=torch.bool)
    return scores.masked_fill(here[:, :, None] & goes_on, -torch.inf)
