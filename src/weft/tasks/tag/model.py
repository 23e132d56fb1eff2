"""The tagging model.

    tokens -> token representations (B, T, E) -> bidirectional stack (B, T, 2H) -> tag scores (B, T, K) -> CRF or
    softmax

Lample et al. 2016, "Neural architectures for named entity recognition".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.engine import NO_DROPOUT, Dropout, Embedded, linear_cross_entropy
from weft.nn import make_stack
from weft.nn.crf import CRF, TagConstraints, bio_constraints, bioes_constraints
from weft.tasks.mixture import MEAN, Mixture
from weft.tasks.tag.config import TagModelConfig
from weft.tasks.tag.encoder import Inputs, make_encoder
from weft.tasks.tag.lexicon import Lexicon
from weft.text.spans import Scheme, to_bioes
from weft.training.loss import Loss


class TaggedBatch(NamedTuple):
    """A batch of sentences and their tags."""

    inputs: Inputs
    tags: Tensor  # (B, T)


# By the task: so many most frequent words or characters are targets of their own; all others share the unknown word.
NEIGHBOURS = {"tags": 3000, "segments": 1000}
HIDDEN_SIZE = 50  # units between a state and the words


class NeighbourWordLoss(nn.Module):
    """The auxiliary loss of predicting neighbouring words from the outputs (B, T, 2H) of a bidirectional layer.

    The forward direction predicts the next word, the backward direction the previous one; in segmentation, characters.
    Every word is a target, so the layer learns similarities of words also from sentences tagged O throughout. The
    predictions are not used after training (Rei 2017, "Semi-supervised multitask learning for sequence labeling").

    Args:
        hidden_size: H, the units of each direction.
        words: how many words are predicted, the most frequent ones. All others count as the unknown word.
    """

    def __init__(self, hidden_size: int, words: int) -> None:
        super().__init__()
        self.hidden_size, self.words = hidden_size, words
        self.next_word, self.previous_word = (
            nn.Sequential(nn.Linear(hidden_size, HIDDEN_SIZE), nn.Tanh(), nn.Linear(HIDDEN_SIZE, self.words))
            for _ in range(2)
        )

    def forward(self, outputs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Computes the summed cross-entropy of all next and previous words.

        Args:
            outputs: (B, T, 2H), the forward direction first.
            ids: (B, T) word ids.
            lengths: (B,).
        """
        ids, lengths = ids.to(outputs.device), lengths.to(outputs.device)
        ids = ids.masked_fill(ids >= self.words, 0)
        pairs = torch.arange(1, ids.shape[1], device=ids.device) < lengths[:, None]  # (B, T - 1): both words exist
        previous, following = ids[:, :-1][pairs], ids[:, 1:][pairs]
        forward = outputs[:, :-1, : self.hidden_size][pairs]
        backward = outputs[:, 1:, self.hidden_size :][pairs]
        return _cross_entropy(self.next_word, forward, following) + _cross_entropy(
            self.previous_word, backward, previous
        )


def _cross_entropy(predictor: nn.Sequential, states: Tensor, words: Tensor) -> Tensor:
    states, last = predictor[:-1](states), predictor[-1]
    assert isinstance(last, nn.Linear)
    return linear_cross_entropy(states[None], last.weight, last.bias, words[None], reduction="sum")


class ScoreLayer(NamedTuple):
    """The parameters of the linear layer that computes the tag scores."""

    weight: Tensor
    bias: Tensor


class CRFOutput(CRF):
    """A CRF output layer: the tags of a sentence are predicted jointly."""

    def negative_log_likelihood(
        self, hidden: Tensor, layer: ScoreLayer, tags: Tensor, lengths: Tensor, drop: Dropout
    ) -> Tensor:
        """Computes the summed negative log-likelihood of tags (B, T) given hidden states (B, T, H)."""
        scores = F.linear(drop.apply(hidden), *layer)
        return -self.log_likelihood(scores, tags, lengths).sum()


class SoftmaxOutput(CRF):
    """A softmax output layer: every tag is predicted independently.

    It is a CRF without transition scores. The constraints apply in decoding only, which finds the most probable
    sequence that satisfies them.
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

    def negative_log_likelihood(
        self, hidden: Tensor, layer: ScoreLayer, tags: Tensor, lengths: Tensor, drop: Dropout
    ) -> Tensor:
        return linear_cross_entropy(hidden, *layer, tags, lengths=lengths, dropout=drop, reduction="sum")

    def marginals(self, scores: Tensor, lengths: Tensor | None = None) -> Tensor:
        return scores.softmax(-1)


OUTPUTS: dict[str, Callable[[int, TagConstraints | None], CRFOutput | SoftmaxOutput]] = {
    "crf": CRFOutput,
    "softmax": SoftmaxOutput,
}


class Tagger(nn.Module):
    """A bidirectional recurrent tagger over K tags; `output` turns the scores into tags and probabilities.

    `span_start_bias` (K,) is added to the scores in evaluation mode. It calibrates how often spans of each label begin
    and is fitted to held-out sentences.
    """

    output_layers = ("scores", "neighbour_loss")
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
        # Where every word has its own tag (no spans), the tags give enough training signal.
        auxiliary = config.neighbour_loss_weight > 0 and scheme is not None and lexicon.task in NEIGHBOURS
        targets = min(len(lexicon.words), NEIGHBOURS.get(lexicon.task, 0))
        self.neighbour_loss = NeighbourWordLoss(config.hidden_size, targets) if auxiliary else None
        self.neighbour_weight = config.neighbour_loss_weight
        self.register_buffer("span_start_bias", torch.zeros(len(tags)))

    def forward(self, inputs: Inputs) -> Tensor:
        """Computes the tag scores (B, T, K)."""
        hidden, _ = self.stack(self.encode(inputs), lengths=inputs.lengths)
        scores: Tensor = self.scores(self._drop(self.dropout).apply(hidden))
        return scores if self.training else scores + self.span_start_bias

    def loss(self, batch: TaggedBatch) -> Loss:
        """Computes the summed negative log-likelihood of the tags plus the weighted auxiliary loss."""
        inputs, lengths = batch.inputs, batch.inputs.lengths
        x = self.encode(inputs)
        hidden, _ = self.stack(x, lengths=lengths)
        layer = ScoreLayer(
            self.scores.weight, self.scores.bias if self.training else self.scores.bias + self.span_start_bias
        )
        total = self.output.negative_log_likelihood(
            hidden, layer, batch.tags.to(hidden.device), lengths, self._drop(self.dropout)
        )
        if self.neighbour_loss is not None:
            # Only the lowest layer is used: above it, each direction has read the other's words. It is run again for
            # this loss, with dropout masks of its own.
            lowest = hidden if len(self.stack.layers) == 1 else self.stack.layers[0](x, lengths=lengths)[0]
            total = total + self.neighbour_weight * self.neighbour_loss(lowest, inputs.ids, lengths)
        return Loss(total, sum(lengths.tolist()))

    def encode(self, inputs: Inputs) -> Embedded | Tensor:
        return self.encoder(inputs, self._drop(self.embedding_dropout))  # type: ignore[no-any-return]  # (B, T, E)

    def _drop(self, rate: float) -> Dropout:
        return Dropout(rate, shared_over_time=True) if self.training else NO_DROPOUT


def tag_constraints(tags: Sequence[str], scheme: Scheme | None) -> TagConstraints | None:
    """Returns the constraints of the scheme, or None without a scheme."""
    if scheme is None:
        return None
    return (bioes_constraints if scheme.marks_end else bio_constraints)([to_bioes(tag) for tag in tags])


def forbid_continuation(scores: Tensor, starts: Tensor, tags: Sequence[str]) -> Tensor:
    """Forbids that a span continues across given boundaries.

    In a scheme that marks the ends of spans, a span that would have to continue there cannot be closed, so it becomes
    impossible as a whole.

    Args:
        scores: (B, T, K).
        starts: (B, T), true at the tokens at which a new span or an O must start.
        tags: the names of the K tags.

    Returns:
        Scores (B, T, K), -inf for I and E tags at the starts.
    """
    continues = torch.tensor([to_bioes(tag)[0] in "IE" for tag in tags], device=scores.device)
    here = starts.to(device=scores.device, dtype=torch.bool)
    return scores.masked_fill(here[:, :, None] & continues, -torch.inf)


class TaggerMixture(Mixture[Tagger]):
    """Averages the tag scores and the transition scores: a CRF whose score of a tag sequence is the members' mean."""

    def __init__(self, members: Sequence[Tagger]) -> None:
        super().__init__(members, MEAN)
        self.output = copy.deepcopy(members[0].output)
        others = [dict(member.output.named_parameters()) for member in members]
        with torch.no_grad():
            for name, parameter in self.output.named_parameters():
                parameter.copy_(MEAN.join([one[name] for one in others]))

    def forward(self, inputs: Inputs) -> Tensor:
        """Computes the mean tag scores (B, T, K)."""
        return self.joined(lambda member: member(inputs))
