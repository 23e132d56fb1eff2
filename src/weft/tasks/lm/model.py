"""The recurrent language model.

    ids (B, T) -> embedding or one-hot -> recurrent stack (B, T, H) -> logits (B, T, V) of the next token

    P(x) = product over t of P(x_t | x_1 ... x_(t-1))

`LanguageModel` has one output layer over the whole vocabulary, `AdaptiveLanguageModel` an adaptive softmax for large
vocabularies. Tied input and output weights: Press and Wolf 2017, "Using the output embedding to improve language
models".

With `backward` a second stack predicts each token from those after it. The two stacks never meet; they share the
embedding and the output layer (Peters et al. 2018, "Deep contextualized word representations"). Only training uses
the second one: it is there for the models that take over both stacks (`weft.tasks.pretraining`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.cells import State
from weft.config import AUTO
from weft.data.sharing import shared_map, shared_parts
from weft.data.windows import Tokens, Window, evaluation_streams, evaluation_windows
from weft.engine import (
    NO_DROPOUT,
    Dropout,
    StreamLayers,
    can_stream,
    dropout,
    embed,
    float_copy,
    is_quantized,
    linear_cross_entropy,
    quantize_cell,
)
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError
from weft.metrics import Likelihood, TokenPredictions
from weft.nn import Recurrent, Stack, make_stack, map_state
from weft.nn.adaptive_softmax import AdaptiveSoftmax, default_cutoffs
from weft.nn.bptt import Unroll, full
from weft.tasks.config import ModelConfig
from weft.tasks.lm.config import LmModelConfig
from weft.training.loss import Loss, count_predictions

SMALL_VOCABULARY = 1000  # tokens up to which the embedding has no dropout: it would hide which character was read
LARGE_VOCABULARY = 10_000  # tokens from which on "auto" is an adaptive softmax
TABLE_ELEMENTS = 1 << 20  # probabilities of next tokens that are computed at a time
LARGEST_TABLE = 1 << 26  # maximum number of elements of the sampler's precomputed input projections


class LanguageModel(nn.Module):
    """A recurrent language model. It is also a `Stepper`: decoding runs it one token at a time.

    With embedding_dim=0 the stack reads one-hot vectors. Tied weights of different sizes are tied through a projection
    of the outputs.

    Args:
        vocabulary_size: V, the size of the vocabulary.
        config: the `model` settings.
        backward: whether there is a stack that reads from the last token to the first.
        recurrent_dropout: dropout rate of the state where it enters the recurrent products, one mask for a window.
    """

    def __init__(
        self, vocabulary_size: int, config: ModelConfig, *, backward: bool = False, recurrent_dropout: float = 0.0
    ) -> None:
        super().__init__()
        config = _without_auto(config, vocabulary_size)
        if config.bidirectional:
            raise WeftError(
                "a bidirectional stack cannot predict the next token: its backward direction has already read it, so "
                "training looks perfect and generation, where there is no future to read, fails",
                expected="model.bidirectional=false",
                hint="`fill` for predicting a token from both sides",
            )
        if config.tied and not config.embedding_dim:
            raise WeftError(
                "model.tied with model.embedding_dim=0",
                expected="an embedding, which the output layer shares",
                hint=f"`model.embedding_dim={config.hidden_size}`",
            )
        self.vocabulary_size, self.dropout = vocabulary_size, config.dropout
        self.embedding_dropout = config.dropout if vocabulary_size > SMALL_VOCABULARY else 0.0
        self.recurrent_dropout = recurrent_dropout
        self._add_layers(config)
        self.backward_stack = self._stack(config, self.stack.input_size, reverse=True) if backward else None

    def _add_layers(self, config: ModelConfig) -> None:
        vocabulary_size = self.vocabulary_size
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_dim) if config.embedding_dim else None
        self.stack = self._stack(config, config.embedding_dim or vocabulary_size)
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
        self.projection = None
        if config.tied and config.embedding_dim != config.hidden_size:
            self.projection = nn.Linear(config.hidden_size, config.embedding_dim, bias=False)

    def _stack(self, config: ModelConfig, input_size: int, *, reverse: bool = False) -> Stack:
        return make_stack(
            config.cell,
            input_size,
            config.hidden_size,
            layers=config.num_layers,
            reverse=reverse,
            dropout=config.dropout,
            recurrent_dropout=self.recurrent_dropout,
            residual=config.residual,
        )

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, ids: Tensor, state: State = None, *, unroll: Unroll = full) -> tuple[Tensor, State]:
        """The logits (B, T, V) of each next token of ids (B, T), and the final state; `unroll` as in weft.nn.bptt."""
        outputs, state = unroll(self.stack, self.inputs_of(ids), state)
        return self.logits(dropout(outputs, self.dropout, self.training)), state

    def inputs_of(self, ids: Tensor) -> Tensor:
        """What the stack reads of ids (B, T): their embedding with dropout, or themselves for one-hot vectors."""
        if self.embedding is None:
            return ids
        return embed(ids, self.embedding.weight, self.embedding_dropout, self.training)

    def embed(self, ids: Tensor) -> Tensor:
        """The vectors (B, T, E) of ids (B, T) as the stack reads them, without dropout."""
        if self.embedding is None:
            return F.one_hot(ids, self.vocabulary_size).to(self.bias.dtype)
        vectors: Tensor = self.embedding(ids)
        return vectors

    def logits(self, outputs: Tensor) -> Tensor:
        """The logits (..., V) of outputs (..., H) of the stack."""
        return F.linear(self._project(outputs), self._output_weight(), self.bias)

    def log_probs(self, outputs: Tensor) -> Tensor:
        """The log-probabilities (..., V) of the next token, of outputs (..., H) of the stack."""
        return self.logits(outputs).log_softmax(-1)

    def target_log_probs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The log-probabilities (N,) of the next tokens (N,), of outputs (N, H) of the stack."""
        return self.log_probs(outputs).gather(1, targets[:, None])[:, 0]

    def _output_weight(self) -> Tensor:
        weight = self.weight if self.embedding is None or self.weight is not None else self.embedding.weight
        assert weight is not None
        return weight

    def _project(self, outputs: Tensor) -> Tensor:
        return outputs if self.projection is None else self.projection(outputs)

    def _cross_entropy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The summed cross-entropy of targets (B, T) given the outputs (B, T, H) of the stack, with dropout."""
        drop = Dropout(self.dropout if self.training else 0.0)
        weight, bias = self._output_weight(), self.bias
        if self.projection is not None:
            outputs, drop = self.projection(dropout(outputs, self.dropout, self.training)), NO_DROPOUT
        return linear_cross_entropy(outputs, weight, bias, targets, dropout=drop, reduction="sum")

    def loss(self, window: Window, state: State = None, *, unroll: Unroll = full) -> Loss:
        """Computes the summed cross-entropy of the window's targets. A fresh window starts from the zero state.

        In training mode, a model with a backward stack adds that of the window's inputs, each but the last given those
        after it in the window.
        """
        ids = window.inputs.to(self.device)
        inputs = self.inputs_of(ids)
        outputs, state = unroll(self.stack, inputs, None if window.reset_state else state)
        total = self._cross_entropy(outputs, window.targets.to(self.device))
        count = int((window.targets != IGNORE_INDEX).sum())
        if self.training and self.backward_stack is not None and ids.shape[1] > 1:
            backward, _ = self.backward_stack(inputs)
            total = total + self._cross_entropy(backward[:, 1:].contiguous(), ids[:, :-1].contiguous())
            count += ids[:, :-1].numel()
        return Loss(total, count, map_state(Tensor.detach, state))

    def initial_state(self, rows: int) -> State:
        return self.stack.initial_state(rows)

    @torch.no_grad()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        logits, state = self(ids[:, None].to(self.device), state)
        return F.log_softmax(logits[:, 0], -1), state

    def stream_layers(self) -> StreamLayers | None:
        """The model as the engine's streams run it: the first cell reads token ids. None where they cannot."""
        layers = [layer for layer in self.stack.layers if isinstance(layer, Recurrent)]
        cells = [layer.cell for layer in layers]
        if self.stack.residual or not can_stream(cells):
            return None
        table = self.embedding_table()
        if table is not None:
            if self.vocabulary_size * cells[0].weight_ih.shape[0] > LARGEST_TABLE:
                return None
            # The embedding and the input projection of the first layer combine to one table with a row for each token.
            first = float_copy(cells[0])
            first.input_size = self.vocabulary_size
            first.weight_ih = nn.Parameter(cells[0].weight_ih.detach() @ table.detach().t())
            if is_quantized(cells[0]):
                quantize_cell(first)
            cells[0] = first
        weight = self._output_weight()
        if self.projection is not None:
            weight = weight.detach() @ self.projection.weight.detach()
        return StreamLayers(cells, weight, self.bias)

    def embedding_table(self) -> Tensor | None:
        """The embedding (V, E) of every token; None for one-hot vectors."""
        return None if self.embedding is None else self.embedding.weight

    def select(self, state: State, rows: Tensor) -> State:
        return map_state(lambda part: part[rows], state)

    @torch.no_grad()
    def evaluate(self, tokens: Tokens) -> Likelihood:
        self.eval()
        return sum(
            shared_map(self._evaluate_stream, evaluation_streams(tokens, shared_parts())), start=Likelihood(0.0, 0)
        )

    def _evaluate_stream(self, windows: Iterator[Window]) -> Likelihood:
        total, state = Likelihood(0.0, 0), None
        for window in windows:
            loss = self.loss(window, state)
            total, state = total + Likelihood(float(loss.total), loss.count), loss.state
        return total

    context = "left"  # tokens are predicted from those before them

    @torch.no_grad()
    def predict_tokens(self, tokens: Tokens) -> TokenPredictions:
        self.eval()
        total, state = TokenPredictions(Likelihood(0.0, 0), 0), None
        for window in evaluation_windows(tokens):
            inputs, targets = window.inputs.to(self.device), window.targets.to(self.device)
            logits, state = self(inputs, None if window.reset_state else state)
            valid = targets != IGNORE_INDEX
            total += count_predictions(logits[valid], targets[valid])
        return total

    def read_segments(self, tokens: Tokens, segment: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the outputs (T, H) of the stack and the tokens (T,) that followed; gradients flow within a segment."""
        ids, state = torch.from_numpy(np.asarray(tokens).astype(np.int64)), None
        self.eval()
        for begin in range(0, len(ids) - 1, segment):
            end = min(begin + segment, len(ids) - 1)
            outputs, state = self.stack(self.embed(ids[None, begin:end].to(self.device)), state)
            state = map_state(Tensor.detach, state)
            yield outputs[0], ids[begin + 1 : end + 1]

    @torch.no_grad()
    def next_probs(self, tokens: Tokens) -> Iterator[np.ndarray[Any, np.dtype[Any]]]:
        for outputs, _ in self.read_segments(tokens, max(1, TABLE_ELEMENTS // self.vocabulary_size)):
            yield self.log_probs(outputs).exp().cpu().numpy()

    @torch.no_grad()
    def token_log_probs(
        self, tokens: Tokens, *, row_tokens: int | None = None
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Computes log P of each token but the first of (N,), given all tokens before it: (N - 1,).

        Args:
            tokens: (N,) token ids.
            row_tokens: read the text as parallel rows of about so many tokens, as `evaluate` does; None: as one row.
        """
        self.eval()
        found, state = torch.zeros(len(tokens) - 1, dtype=torch.float64), None
        length = row_tokens or len(tokens)
        places = evaluation_windows(np.arange(len(tokens)), row_tokens=length)
        for window, at in zip(evaluation_windows(tokens, row_tokens=length), places, strict=True):
            outputs, state = self.stack(self.inputs_of(window.inputs.to(self.device)), state)
            valid = window.targets != IGNORE_INDEX
            targets = window.targets[valid].to(self.device)
            found[at.targets[valid] - 1] = self.target_log_probs(outputs[valid], targets).cpu().double()
        return found.numpy()


class AdaptiveLanguageModel(LanguageModel):
    """A recurrent language model with an adaptive softmax, whose tables are also its embedding.

    Its logits are log-probabilities.
    """

    def _add_layers(self, config: ModelConfig) -> None:
        size = config.embedding_dim or config.hidden_size
        self.softmax = AdaptiveSoftmax(
            self.vocabulary_size, size, config.hidden_size, default_cutoffs(self.vocabulary_size)
        )
        self.stack = self._stack(config, size)

    def inputs_of(self, ids: Tensor) -> Tensor:
        return dropout(self.softmax.embed(ids), self.embedding_dropout, self.training)

    def embed(self, ids: Tensor) -> Tensor:
        return self.softmax.embed(ids)

    def logits(self, outputs: Tensor) -> Tensor:
        return self.softmax.log_probs(outputs)

    def log_probs(self, outputs: Tensor) -> Tensor:
        return self.logits(outputs)

    def target_log_probs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.softmax.target_log_probs(outputs, targets)

    def _cross_entropy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.softmax.cross_entropy(dropout(outputs, self.dropout, self.training), targets)

    def stream_layers(self) -> StreamLayers | None:
        return None  # the engine samples from one softmax

    def embedding_table(self) -> Tensor:
        return self.softmax.embed(torch.arange(self.vocabulary_size, device=self.device))


def _without_auto(config: ModelConfig, vocabulary_size: int) -> ModelConfig:
    """Settings of a model that is built by itself, whose "auto" no task has chosen: E = H, and no dropout."""
    if config.cell == "auto":
        config = replace(config, cell=default_cell(vocabulary_size))
    if config.dropout == AUTO:
        config = replace(config, dropout=0.0)
    return replace(config, embedding_dim=config.hidden_size) if config.embedding_dim == AUTO else config


def default_cell(vocabulary_size: int) -> str:
    """The cell that `model.cell=auto` stands for: which one learns faster depends on what the tokens are."""
    return "lstm" if vocabulary_size <= SMALL_VOCABULARY else "gru"


def is_adaptive(vocabulary_size: int, softmax: str) -> bool:
    """Whether a setting of `model.softmax` is an adaptive softmax; "auto" is one above 10,000 tokens."""
    return softmax == "adaptive" or (softmax == "auto" and vocabulary_size > LARGE_VOCABULARY)


def make_language_model(vocabulary_size: int, config: LmModelConfig) -> LanguageModel:
    kind = AdaptiveLanguageModel if is_adaptive(vocabulary_size, config.softmax) else LanguageModel
    return kind(vocabulary_size, config, backward=config.backward, recurrent_dropout=config.recurrent_dropout)
