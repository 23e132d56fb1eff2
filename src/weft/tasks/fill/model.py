"""A recurrent model that fills blanks: it tells a token from what stands before it and what stands after it.

Two stacks read the same row, one from each end, and never meet below the output. The token at place t is told from
the forward stack's output at t-1 and the backward stack's output at t+1. Neither has read token t, so the answer
cannot leak, however deep the stacks are; and so one pass asks for every token of a row at once. A stack of
bidirectional layers would not do: from its second layer on, the forward half reads what the backward half below
gives, and that has seen everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.data.windows import IGNORE_INDEX, Passage, Tokens, evaluation_passages
from weft.decoding.blanks import FilledBlanks, fill_blanks
from weft.engine import Drop, dropout, embed, readout_nats
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.nn import Stack, make_stack
from weft.tasks.config import ModelConfig
from weft.training.loss import Loss, count_predictions

LONGEST = 1 << 16  # tokens read at a time while blanks are filled


class Filler(nn.Module):
    """Ids (B, T), blanks among them -> two stacks -> what each place's neighbours know (B, T, 2H) -> logits (B, T, V).

    A blank is the id after the vocabulary's last, `self.blank`: it is read, never answered. Beyond a row's edge
    nothing is known, which is a zero output of the stack. Without `bidirectional` there is no backward stack, and
    what is left tells a token from those before it.
    """

    def __init__(self, vocabulary_size: int, config: ModelConfig) -> None:
        super().__init__()
        if config.tied and config.embedding_dim != config.hidden_size:
            raise WeftError(
                f"model.tied with model.embedding_dim={config.embedding_dim}, model.hidden_size={config.hidden_size}",
                expected="the two to be equal, as one matrix serves both ends",
                hint=f"--set model.embedding_dim={config.hidden_size}, or --set model.tied=false",
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
        # Without this layer the two sides could only vote, each for its own words; with it they are heard together.
        self.join = nn.Linear(config.hidden_size * (2 if config.bidirectional else 1), config.hidden_size)
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocabulary_size, config.hidden_size))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=config.hidden_size**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def surroundings(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What is known of every place without looking at it: (B, T) to (B, T, 2H), or (B, T, H) from one side."""
        x = ids
        if self.embedding is not None:
            x = embed(ids, self.embedding.weight, self.dropout, self.training)
        ahead, _ = self.forward_stack(x, lengths=lengths)
        sides = [F.pad(ahead[:, :-1], (0, 0, 1, 0))]
        if self.backward_stack is not None:
            # Outputs past a row's length are zero, so each row's own last place finds zeros after it.
            back, _ = self.backward_stack(x, lengths=lengths)
            sides.append(F.pad(back[:, 1:], (0, 0, 0, 1)))
        return dropout(torch.cat(sides, -1), self.dropout, self.training)

    def readout(self, surroundings: Tensor) -> Tensor:
        """(..., 2H) to logits (..., V)."""
        joined = dropout(torch.tanh(self.join(surroundings)), self.dropout, self.training)
        return F.linear(joined, self._output_weight(), self.bias)

    def _output_weight(self) -> Tensor:
        if self.weight is not None:
            return self.weight
        assert self.embedding is not None
        return self.embedding.weight[: self.vocabulary_size]

    def forward(self, ids: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        """Ids (B, T) to logits (B, T, V) of the token at every place, given all the others."""
        return self.readout(self.surroundings(ids, lengths))

    def loss(self, passage: Passage) -> Loss:
        """The nats of the passage's targets, each told from the rest of its row."""
        surroundings = self.surroundings(passage.ids.to(self.bias.device), passage.lengths)
        joined, drop = torch.tanh(self.join(surroundings)), Drop(self.dropout if self.training else 0.0)
        total = readout_nats(joined, self._output_weight(), self.bias, passage.targets, drop=drop, total=True)
        return Loss(total, int((passage.targets != IGNORE_INDEX).sum()))

    def mask_tokens(self, ids: Tensor, share: float) -> Tensor:
        """The rows (on the CPU) with some tokens turned into blanks; each draws its own share, `share` on average."""
        shares = 2 * share * torch.rand(len(ids), 1)
        return ids.masked_fill(torch.rand(ids.shape) < shares, self.blank)

    @property
    def context(self) -> str:
        """What it tells a token from."""
        return "left" if self.backward_stack is None else "both"

    @torch.no_grad()
    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """How well it tells each token but the first from all the others."""
        total = TokenPredictions(Likelihood(0.0, 0), 0)
        for passage in evaluation_passages(tokens):
            ids, targets = passage.ids.to(self.bias.device), passage.targets.to(self.bias.device)
            asked = targets != IGNORE_INDEX
            total += count_predictions(self(ids)[asked], targets[asked])
        return total

    @torch.no_grad()
    def fill_blanks(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[FilledBlanks]:
        """The `n` likeliest ways to fill the blanks of one row, likeliest first; see `fill_blanks`."""

        def log_probs(rows: Tensor, place: int) -> Tensor:
            # A long text must not be held once for each row at the same time.
            parts = torch.split(rows.to(self.bias.device), max(1, LONGEST // len(ids)))
            known = torch.cat([self.surroundings(part)[:, place] for part in parts])
            return self.readout(known).double().log_softmax(-1).cpu()

        return fill_blanks(ids, self.blank, n, log_probs, width=width, banned=banned)
