"""The recurrent language model.

    ids (B, T) -> embedding or one-hot -> recurrent stack (B, T, H) -> logits (B, T, V) of the next token

    P(x) = product over t of P(x_t | x_1 ... x_(t-1))

Tied input and output weights: Press and Wolf 2017, "Using the output embedding to improve language models".
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.cells import State
from weft.data.windows import Tokens, Window, evaluation_windows
from weft.engine import Dropout, Stream, can_stream, dropout, embed, linear_cross_entropy
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.nn import Recurrent, make_stack, map_state
from weft.nn.bptt import Unroll, full
from weft.tasks.config import ModelConfig
from weft.training.loss import Loss, count_predictions

LARGEST_TABLE = 1 << 26  # maximum number of elements of the sampler's precomputed input projections


class LanguageModel(nn.Module):
    """A recurrent language model. It is also a `Stepper`: decoding runs it one token at a time.

    Args:
        vocabulary_size: V, the size of the vocabulary.
        config: the `model` settings. With embedding_dim=0 the stack reads one-hot vectors.

    Raises:
        WeftError: a bidirectional stack, or tied weights of different sizes.
    """

    def __init__(self, vocabulary_size: int, config: ModelConfig) -> None:
        super().__init__()
        if config.bidirectional:
            raise WeftError(
                "a bidirectional stack cannot predict the next token: its backward direction has already read it, so "
                "training looks perfect and generation, where there is no future to read, fails",
                expected="model.bidirectional=false",
                hint="`fill` for predicting a token from both sides",
            )
        if config.tied and config.embedding_dim != config.hidden_size:
            raise WeftError(
                f"model.tied with model.embedding_dim={config.embedding_dim}, model.hidden_size={config.hidden_size}",
                expected="the two to be equal, because one matrix is used for both",
                hint=f"`model.embedding_dim={config.hidden_size}`",
            )
        self.vocabulary_size, self.dropout = vocabulary_size, config.dropout
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_dim) if config.embedding_dim else None
        self.stack = make_stack(
            config.cell,
            config.embedding_dim or vocabulary_size,
            config.hidden_size,
            layers=config.num_layers,
            dropout=config.dropout,
            residual=config.residual,
        )
        # In both cases the first layer's input projection starts with a variance of about 1/3, like the recurrent one.
        if self.embedding is None:
            nn.init.normal_(self.stack.layers[0].cell.weight_ih, std=3**-0.5)  # type: ignore[union-attr,arg-type]
        elif config.tied:
            nn.init.normal_(self.embedding.weight, std=config.embedding_dim**-0.5)  # small, as output weights
        # Tied weights are those of the embedding.
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocabulary_size, config.hidden_size))
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=config.hidden_size**-0.5)

    def forward(self, ids: Tensor, state: State = None, *, unroll: Unroll = full) -> tuple[Tensor, State]:
        """Computes logits.

        Args:
            ids: (B, T) token ids.
            state: the initial state; None means zeros.
            unroll: the method of backpropagation through time (weft.nn.bptt).

        Returns:
            Logits (B, T, V) of each next token, and the final state.
        """
        outputs, state = self._run(ids, state, unroll)
        return F.linear(dropout(outputs, self.dropout, self.training), self._output_weight(), self.bias), state

    def _run(self, ids: Tensor, state: State, unroll: Unroll) -> tuple[Tensor, State]:
        """Computes the outputs (B, T, H) of the stack."""
        x = ids
        if self.embedding is not None:
            x = embed(ids, self.embedding.weight, self.dropout, self.training)
        return unroll(self.stack, x, state)

    def _output_weight(self) -> Tensor:
        weight = self.weight if self.embedding is None or self.weight is not None else self.embedding.weight
        assert weight is not None
        return weight

    def loss(self, window: Window, state: State = None, *, unroll: Unroll = full) -> Loss:
        """Computes the summed cross-entropy of the window's targets. A fresh window starts from the zero state."""
        outputs, state = self._run(window.inputs.to(self.bias.device), None if window.reset_state else state, unroll)
        drop = Dropout(self.dropout if self.training else 0.0)
        total = linear_cross_entropy(
            outputs, self._output_weight(), self.bias, window.targets, dropout=drop, reduction="sum"
        )
        count = int((window.targets != IGNORE_INDEX).sum())
        return Loss(total, count, map_state(Tensor.detach, state))

    def initial_state(self, rows: int) -> State:
        """Returns the zero state for `rows` sequences."""
        return self.stack.initial_state(rows)

    @torch.no_grad()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Reads ids (R,). Returns log-probabilities (R, V) of the next token and the new state."""
        logits, state = self(ids[:, None].to(self.bias.device), state)
        return F.log_softmax(logits[:, 0], -1), state

    def sampler(self, rows: int) -> Stream | None:
        """Returns the engine's sampling loop for `rows` sequences, or None if the engine cannot run this model."""
        layers = [layer for layer in self.stack.layers if isinstance(layer, Recurrent)]
        cells = [layer.cell for layer in layers]
        if self.stack.residual or not can_stream(cells):
            return None
        weight: Tensor | None = self.weight
        if self.embedding is not None:
            if self.vocabulary_size * cells[0].weight_ih.shape[0] > LARGEST_TABLE:
                return None
            # The embedding and the input projection of the first layer combine to one table with a row for each token.
            first = copy.deepcopy(cells[0])
            first.input_size = self.vocabulary_size
            first.weight_ih = nn.Parameter(cells[0].weight_ih.detach() @ self.embedding.weight.detach().t())
            cells[0] = first
            weight = self.embedding.weight if weight is None else weight
        return Stream(cells, weight, self.bias, rows=rows)

    def select(self, state: State, rows: Tensor) -> State:
        """Returns the state of the given rows, which may repeat."""
        return map_state(lambda part: part[rows], state)

    @torch.no_grad()
    def evaluate(self, tokens: Tokens) -> Likelihood:
        """Computes the likelihood of the tokens (N,), each given all tokens before it."""
        self.eval()
        total, state = Likelihood(0.0, 0), None
        for window in evaluation_windows(tokens):
            loss = self.loss(window, state)
            total, state = total + Likelihood(float(loss.total), loss.count), loss.state
        return total

    context = "left"  # tokens are predicted from those before them

    @torch.no_grad()
    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        """As `evaluate`, and counts how often the most probable token is the true one."""
        self.eval()
        total, state = TokenPredictions(Likelihood(0.0, 0), 0), None
        for window in evaluation_windows(tokens):
            inputs, targets = window.inputs.to(self.bias.device), window.targets.to(self.bias.device)
            logits, state = self(inputs, None if window.reset_state else state)
            valid = targets != IGNORE_INDEX
            total += count_predictions(logits[valid], targets[valid])
        return total
