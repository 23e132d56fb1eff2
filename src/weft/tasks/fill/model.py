"""The fill-in-the-blank model: predicts a token from the tokens before it and after it.

Two stacks read the same row, one in each direction, and never meet below the output layer. The token at position t is
predicted from the forward stack's output at t-1 and the backward stack's output at t+1. Neither stack has read token t,
so the target cannot leak however deep the stacks are, and one pass predicts every token of a row. A stack of
bidirectional layers would leak: from the second layer on, the forward direction reads the outputs of the backward
direction below it, which has read everything.

    P(x_t | all others) = softmax(W_o tanh(W_j [f_(t-1); b_(t+1)] + b_j) + b_o)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.data.sharing import shared_map
from weft.data.windows import Passage, Tokens, evaluation_passages
from weft.decoding.blanks import FilledBlanks, fill_blanks
from weft.engine import Dropout, dropout, embed, linear_cross_entropy
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.nn import Stack, make_stack
from weft.tasks.config import ModelConfig
from weft.tasks.mixture import EQUAL, Mixture
from weft.training.loss import Loss, count_predictions

MAX_TOKENS = 1 << 16  # tokens in a batch while blanks are filled


class Filler(nn.Module):
    """A recurrent model that predicts each token of a row from all the others.

    The blank is an additional id after the vocabulary, `self.blank`: it is read, never predicted. Past the edges of a
    row the stack outputs are zero. With bidirectional=false there is no backward stack, and a token is predicted from
    those before it.

    With embedding_dim=0 the stacks read one-hot vectors.
    """

    def __init__(self, vocabulary_size: int, config: ModelConfig) -> None:
        super().__init__()
        if config.tied and config.embedding_dim != config.hidden_size:
            raise WeftError(
                f"model.tied with model.embedding_dim={config.embedding_dim}, model.hidden_size={config.hidden_size}",
                expected="the two to be equal, because one matrix is used for both",
                hint=f"`model.embedding_dim={config.hidden_size}`, or `model.tied=false`",
            )
        self.vocabulary_size, self.dropout, self.blank = vocabulary_size, config.dropout, vocabulary_size
        self.embedding = nn.Embedding(vocabulary_size + 1, config.embedding_dim) if config.embedding_dim else None
        if self.embedding is not None:
            nn.init.normal_(self.embedding.weight, std=config.embedding_dim**-0.5)

        def stack(*, reverse: bool) -> Stack:
            return make_stack(
                config.cell,
                config.embedding_dim or vocabulary_size + 1,
                config.hidden_size,
                layers=config.num_layers,
                reverse=reverse,
                dropout=config.dropout,
                residual=config.residual,
            )

        self.forward_stack = stack(reverse=False)
        self.backward_stack = stack(reverse=True) if config.bidirectional else None
        # Without this layer the logits would be a sum of one term per direction; with it the directions interact.
        self.join = nn.Linear(config.hidden_size * (2 if config.bidirectional else 1), config.hidden_size)
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocabulary_size, config.hidden_size))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=config.hidden_size**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.context = "both" if config.bidirectional else "left"  # what a token is predicted from

    def contexts(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Computes the context of every position, which excludes its own token: (B, T) to (B, T, 2H), or (B, T, H)."""
        x = ids
        if self.embedding is not None:
            x = embed(ids, self.embedding.weight, self.dropout, self.training)
        return dropout(self.sides(x, lengths), self.dropout, self.training)

    def sides(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The outputs of the stacks before and after every position, of ids (B, T) or vectors (B, T, E)."""
        forward, _ = self.forward_stack(x, lengths=lengths)
        sides = [F.pad(forward[:, :-1], (0, 0, 1, 0))]
        if self.backward_stack is not None:
            # Outputs past a row's length are zero, so the last position of each row has a zero right context.
            backward, _ = self.backward_stack(x, lengths=lengths)
            sides.append(F.pad(backward[:, 1:], (0, 0, 0, 1)))
        return torch.cat(sides, -1)

    def readout(self, contexts: Tensor) -> Tensor:
        """Maps contexts (..., 2H) to logits (..., V)."""
        joined = dropout(torch.tanh(self.join(contexts)), self.dropout, self.training)
        return F.linear(joined, self._output_weight(), self.bias)

    def _output_weight(self) -> Tensor:
        if self.weight is not None:
            return self.weight
        assert self.embedding is not None
        return self.embedding.weight[: self.vocabulary_size]

    def forward(self, ids: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        """Computes logits (B, T, V) of the token at every position given all the others; ids are (B, T)."""
        return self.readout(self.contexts(ids, lengths))

    def loss(self, passage: Passage) -> Loss:
        """Computes the summed cross-entropy of the targets, each given the rest of its row."""
        contexts = self.contexts(passage.ids.to(self.bias.device), passage.lengths)
        joined, drop = torch.tanh(self.join(contexts)), Dropout(self.dropout if self.training else 0.0)
        total = linear_cross_entropy(
            joined, self._output_weight(), self.bias, passage.targets, dropout=drop, reduction="sum"
        )
        return Loss(total, int((passage.targets != IGNORE_INDEX).sum()))

    def mask_tokens(self, ids: Tensor, rate: float) -> Tensor:
        """Replaces random tokens of ids (B, T), on the CPU, by blanks; a row's rate is uniform in [0, 2 * rate]."""
        rates = 2 * rate * torch.rand(len(ids), 1)
        return ids.masked_fill(torch.rand(ids.shape) < rates, self.blank)

    @torch.no_grad()
    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        found = shared_map(self.predict_passage, evaluation_passages(tokens))
        return sum(found, start=TokenPredictions(Likelihood(0.0, 0), 0))

    def predict_passage(self, passage: Passage) -> TokenPredictions:
        """Predicts the targets of a passage, each from all the others."""
        logits = self.logits_at_targets(passage)
        return count_predictions(logits, passage.targets[passage.targets != IGNORE_INDEX].to(logits.device))

    def logits_at_targets(self, passage: Passage) -> Tensor:
        """The logits (N, V) of the targets of a passage."""
        valid = passage.targets != IGNORE_INDEX
        logits: Tensor = self(passage.ids.to(self.bias.device))[valid.to(self.bias.device)]
        return logits

    @torch.no_grad()
    def fill_blanks(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        return fill_blanks(ids, self.blank, n, self.log_probs_at, width=width, banned=banned)

    def log_probs_at(self, rows: Tensor, position: int) -> Tensor:
        """The log-probabilities (K, V) of the token at a position of rows (K, T), given all the others."""
        # Parts bound the memory for a long text with many hypotheses.
        parts = torch.split(rows.to(self.bias.device), max(1, MAX_TOKENS // rows.shape[1]))
        known = torch.cat([self.contexts(part)[:, position] for part in parts])
        return self.readout(known).double().log_softmax(-1).cpu()


class FillerMixture(Mixture[Filler]):
    """Averages the probabilities of the tokens."""

    def __init__(self, models: Sequence[Filler]) -> None:
        super().__init__(models)
        self.context, self.blank = models[0].context, models[0].blank

    @torch.no_grad()
    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        found = TokenPredictions(Likelihood(0.0, 0), 0)
        for passage in evaluation_passages(tokens):
            log_probs = EQUAL.join([member.logits_at_targets(passage).cpu().log_softmax(-1) for member in self.models])
            found += count_predictions(log_probs, passage.targets[passage.targets != IGNORE_INDEX])
        return found

    @torch.no_grad()
    def fill_blanks(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        def log_probs(rows: Tensor, position: int) -> Tensor:
            return self.joined(lambda member: member.log_probs_at(rows, position))

        return fill_blanks(ids, self.blank, n, log_probs, width=width, banned=banned)
