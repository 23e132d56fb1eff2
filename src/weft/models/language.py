"""A recurrent language model: reads tokens, and after each gives the chances of the next one."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.batch import IGNORED, Tokens, Window, evaluation_windows
from weft.bptt import Unroll, full
from weft.cells import State
from weft.config import ModelConfig
from weft.engine import Dropout, Stream, can_stream, dropout, embed, linear_cross_entropy
from weft.errors import WeftError
from weft.metrics import Guesses, Likelihood
from weft.models.base import Loss, count_guesses
from weft.recurrent import Recurrent, make_stack, map_state

LARGEST_TABLE = 1 << 26  # numbers in the sampler's table of a whole vocabulary


class LanguageModel(nn.Module):
    """Token ids (B, T) -> embedding or one-hot -> recurrent stack -> logits (B, T, V).

    It is also a Stepper: `start`, `step` and `select` let decoding run it one token at a time.
    """

    def __init__(self, vocabulary_size: int, config: ModelConfig) -> None:
        super().__init__()
        if config.bidirectional:
            raise WeftError(
                "a bidirectional stack cannot predict the next token: its backward half has already read it, so that "
                "training looks perfect and generation, where there is no future to read, fails",
                expected="model.bidirectional=false",
                hint="`fill` for predicting a token from both sides",
            )
        if config.tied and config.embedding != config.hidden:
            raise WeftError(
                f"model.tied with model.embedding={config.embedding} and model.hidden={config.hidden}",
                expected="the two to be equal, as one matrix serves both ends",
                hint=f"--set model.embedding={config.hidden}",
            )
        self.vocabulary_size, self.dropout = vocabulary_size, config.dropout
        self.embedding = nn.Embedding(vocabulary_size, config.embedding) if config.embedding else None
        self.stack = make_stack(
            config.cell,
            config.embedding or vocabulary_size,
            config.hidden,
            layers=config.layers,
            dropout=config.dropout,
            residual=config.residual,
        )
        # Either way the first layer's projected input starts with a variance of about 1/3, as much as its state brings.
        if self.embedding is None:
            nn.init.normal_(self.stack.layers[0].cell.weight_ih, std=3**-0.5)  # type: ignore[union-attr,arg-type]
        elif config.tied:
            nn.init.normal_(self.embedding.weight, std=config.embedding**-0.5)  # as output weights they must be small
        # Tied weights are the embedding's, so there is no matrix of the output's own.
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocabulary_size, config.hidden))
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=config.hidden**-0.5)

    def forward(self, ids: Tensor, state: State = None, *, unroll: Unroll = full) -> tuple[Tensor, State]:
        """Ids (B, T) to logits (B, T, V) of each next token, and the state after the last."""
        outputs, state = self._run(ids, state, unroll)
        return F.linear(dropout(outputs, self.dropout, self.training), self._output_weight(), self.bias), state

    def _run(self, ids: Tensor, state: State, unroll: Unroll) -> tuple[Tensor, State]:
        """The outputs (B, T, H) of the stack."""
        x = ids
        if self.embedding is not None:
            x = embed(ids, self.embedding.weight, self.dropout, self.training)
        return unroll(self.stack, x, state)

    def _output_weight(self) -> Tensor:
        weight = self.weight if self.embedding is None or self.weight is not None else self.embedding.weight
        assert weight is not None
        return weight

    def loss(self, window: Window, state: State = None, *, unroll: Unroll = full) -> Loss:
        """The nats of the window's targets; the state is dropped where the window starts anew."""
        outputs, state = self._run(window.inputs.to(self.bias.device), None if window.fresh else state, unroll)
        drop = Dropout(self.dropout if self.training else 0.0)
        total = linear_cross_entropy(
            outputs, self._output_weight(), self.bias, window.targets, dropout=drop, reduction="sum"
        )
        count = int((window.targets != IGNORED).sum())
        return Loss(total, count, map_state(Tensor.detach, state))

    def start(self, rows: int) -> State:
        return self.stack.start(rows)

    @torch.no_grad()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Ids (R,) to log-probabilities (R, V) of the next token."""
        logits, state = self(ids[:, None].to(self.bias.device), state)
        return F.log_softmax(logits[:, 0], -1), state

    def sampler(self, rows: int) -> Stream | None:
        """The engine's own loop from token to token, where it can run this model."""
        layers = [layer for layer in self.stack.layers if isinstance(layer, Recurrent)]
        cells = [layer.cell for layer in layers]
        if self.stack.residual or not can_stream(cells):
            return None
        weight: Tensor | None = self.weight
        if self.embedding is not None:
            if self.vocabulary_size * cells[0].weight_ih.shape[0] > LARGEST_TABLE:
                return None
            # Embedding and input projection are two products in a row: one table of the vocabulary does both.
            first = copy.deepcopy(cells[0])
            first.input_size = self.vocabulary_size
            first.weight_ih = nn.Parameter(cells[0].weight_ih.detach() @ self.embedding.weight.detach().t())
            cells[0] = first
            weight = self.embedding.weight if weight is None else weight
        return Stream(cells, weight, self.bias, rows=rows)

    def select(self, state: State, rows: Tensor) -> State:
        return map_state(lambda part: part[rows], state)

    @torch.no_grad()
    def measure(self, tokens: Tokens) -> Likelihood:
        """How well the model foretells the tokens, each from all that stand before it."""
        self.eval()
        total, state = Likelihood(0.0, 0), None
        for window in evaluation_windows(tokens):
            loss = self.loss(window, state)
            total, state = total + Likelihood(float(loss.total), loss.count), loss.state
        return total

    reads = "before"

    @torch.no_grad()
    def guess(self, tokens: Tokens) -> Guesses:
        """The same, with how often the likeliest token was the true one."""
        self.eval()
        total, state = Guesses(Likelihood(0.0, 0), 0), None
        for window in evaluation_windows(tokens):
            inputs, targets = window.inputs.to(self.bias.device), window.targets.to(self.bias.device)
            logits, state = self(inputs, None if window.fresh else state)
            asked = targets != IGNORED
            total += count_guesses(logits[asked], targets[asked])
        return total
