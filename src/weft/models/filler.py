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

from weft.batch import IGNORED, Passage, Tokens, evaluation_passages
from weft.config import ModelConfig
from weft.engine import Dropout, dropout, embed, linear_cross_entropy
from weft.errors import WeftError
from weft.metrics import Guesses, Likelihood
from weft.models.base import Loss, count_guesses
from weft.models.filled import Filled, best_fills
from weft.recurrent import Stack, make_stack

LONGEST = 1 << 16  # tokens read at a time while blanks are filled


class Filler(nn.Module):
    """Ids (B, T), blanks among them -> two stacks -> what each place's neighbours know (B, T, 2H) -> logits (B, T, V).

    A blank is the id after the vocabulary's last, `self.blank`: it is read, never answered. Beyond a row's edge
    nothing is known, which is a zero output of the stack. Without `bidirectional` there is no backward stack, and
    what is left tells a token from those before it.
    """

    def __init__(self, vocabulary_size: int, config: ModelConfig) -> None:
        super().__init__()
        if config.tied and config.embedding != config.hidden:
            raise WeftError(
                f"model.tied with model.embedding={config.embedding} and model.hidden={config.hidden}",
                expected="the two to be equal, as one matrix serves both ends",
                hint=f"--set model.embedding={config.hidden}, or --set model.tied=false",
            )
        self.vocabulary_size, self.dropout, self.blank = vocabulary_size, config.dropout, vocabulary_size
        self.embedding = nn.Embedding(vocabulary_size + 1, config.embedding) if config.embedding else None
        if self.embedding is not None:
            nn.init.normal_(self.embedding.weight, std=config.embedding**-0.5)

        def stack(*, reverse: bool) -> Stack:
            return make_stack(
                config.cell,
                config.embedding or vocabulary_size + 1,
                config.hidden,
                layers=config.layers,
                reverse=reverse,
                dropout=config.dropout,
                residual=config.residual,
            )

        self.ahead = stack(reverse=False)
        self.back = stack(reverse=True) if config.bidirectional else None
        # Without this layer the two sides could only vote, each for its own words; with it they are heard together.
        self.join = nn.Linear(config.hidden * (2 if config.bidirectional else 1), config.hidden)
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocabulary_size, config.hidden))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=config.hidden**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def surroundings(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What is known of every place without looking at it: (B, T) to (B, T, 2H), or (B, T, H) from one side."""
        x = ids
        if self.embedding is not None:
            x = embed(ids, self.embedding.weight, self.dropout, self.training)
        ahead, _ = self.ahead(x, lengths=lengths)
        sides = [F.pad(ahead[:, :-1], (0, 0, 1, 0))]
        if self.back is not None:
            # Outputs past a row's length are zero, so each row's own last place finds zeros after it.
            back, _ = self.back(x, lengths=lengths)
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
        joined, drop = torch.tanh(self.join(surroundings)), Dropout(self.dropout if self.training else 0.0)
        total = linear_cross_entropy(
            joined, self._output_weight(), self.bias, passage.targets, dropout=drop, reduction="sum"
        )
        return Loss(total, int((passage.targets != IGNORED).sum()))

    def hide(self, ids: Tensor, share: float) -> Tensor:
        """The rows (on the CPU) with some tokens turned into blanks; each draws its own share, `share` on average."""
        shares = 2 * share * torch.rand(len(ids), 1)
        return ids.masked_fill(torch.rand(ids.shape) < shares, self.blank)

    @property
    def reads(self) -> str:
        """What it tells a token from."""
        return "before" if self.back is None else "both sides"

    @torch.no_grad()
    def guess(self, tokens: Tokens) -> Guesses:
        """How well it tells each token but the first from all the others."""
        total = Guesses(Likelihood(0.0, 0), 0)
        for passage in evaluation_passages(tokens):
            ids, targets = passage.ids.to(self.bias.device), passage.targets.to(self.bias.device)
            asked = targets != IGNORED
            total += count_guesses(self(ids)[asked], targets[asked])
        return total

    @torch.no_grad()
    def best(self, ids: Sequence[int], n: int, *, width: int, banned: Sequence[int] = ()) -> list[Filled]:
        """The `n` likeliest ways to fill the blanks of one row, likeliest first; see `best_fills`."""

        def log_probs(rows: Tensor, place: int) -> Tensor:
            # A long text must not be held once for each row at the same time.
            parts = torch.split(rows.to(self.bias.device), max(1, LONGEST // len(ids)))
            known = torch.cat([self.surroundings(part)[:, place] for part in parts])
            return self.readout(known).double().log_softmax(-1).cpu()

        return best_fills(ids, self.blank, n, log_probs, width=width, banned=banned)
