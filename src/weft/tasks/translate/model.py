"""The translation model: an encoder-decoder.

source ids (B, S) -> encoder -> bridge -> decoder, which reads the translation so far -> logits (B, T, V)

P(y | x) = product over t of P(y_t | y_1 ... y_(t-1), x)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.config import AUTO
from weft.data.buckets import Padded
from weft.engine import Dropout, Embedded, TopK, dropout, linear_cross_entropy
from weft.errors import WeftError
from weft.nn import make_stack
from weft.tasks.mixture import MEAN, Mixture
from weft.tasks.translate.config import TranslateModelConfig
from weft.tasks.translate.decoder import DECODERS, Decoded, DecoderState
from weft.tasks.translate.encoder import Encoded, Encoder, make_embedding
from weft.text.vocabulary import BOS, RESERVED
from weft.training.loss import Loss

BOS_ID = RESERVED.index(BOS)  # the first token that the decoder reads


class TranslationBatch(NamedTuple):
    """A batch of source sentences and their translations, which end with <eos>."""

    sources: Padded
    targets: Padded


class Translator(nn.Module):
    """An encoder-decoder for translation.

    Raises:
        WeftError: the hidden size cannot be divided between two directions.
    """

    def __init__(self, source_size: int, target_size: int, config: TranslateModelConfig) -> None:
        super().__init__()
        if config.dropout == AUTO:  # a model that is built by itself
            config = replace(config, dropout=0.0)
        sides = 2 if config.bidirectional else 1
        if config.bidirectional and not config.encoder_hidden_size and config.hidden_size % 2:
            raise WeftError(
                f"model.hidden_size={config.hidden_size} cannot be divided between the encoder's two directions",
                expected="an even number",
                hint="`model.encoder_hidden_size=N`, or `model.bidirectional=false`",
            )
        stack = make_stack(
            config.encoder_cell or config.cell,
            config.embedding_dim,
            config.encoder_hidden_size or config.hidden_size // sides,
            layers=config.encoder_num_layers or config.num_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
            residual=config.residual,
        )
        self.dropout = config.dropout
        self.encoder = Encoder(source_size, stack)
        self.embedding = make_embedding(target_size, config.embedding_dim)
        self.decoder = DECODERS[config.decoder](self.encoder, config)
        size = self.decoder.output_size
        wanted = config.embedding_dim if config.tied else size
        # Tied output weights have the embedding dimension, which may differ from the size of the decoder's outputs.
        self.output_projection = nn.Linear(size, wanted, bias=False) if size != wanted else None
        self.weight = None if config.tied else nn.Parameter(torch.empty(target_size, wanted))
        self.bias = nn.Parameter(torch.zeros(target_size))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=wanted**-0.5)

    @property
    def has_attention(self) -> bool:
        """Whether the decoder has attention."""
        return self.decoder.has_attention

    @property
    def output_weight(self) -> Tensor:
        """The weight of the output layer, (V, O); the target embedding if the weights are tied."""
        return self.embedding.weight if self.weight is None else self.weight

    def embed(self, ids: Tensor) -> Embedded:
        """Looks up target ids (B, T) in the embedding, with dropout."""
        return Embedded.of(ids, self.embedding.weight, self.dropout, self.training)

    def readout(self, outputs: Tensor) -> Tensor:
        """Maps decoder outputs (..., O) to logits (..., V)."""
        return F.linear(
            self.project_outputs(dropout(outputs, self.dropout, self.training)), self.output_weight, self.bias
        )

    def project_outputs(self, outputs: Tensor) -> Tensor:
        """Projects decoder outputs to the size of the output weights, if they differ."""
        return outputs if self.output_projection is None else self.output_projection(outputs)

    def decode(self, encoded: Encoded, targets: Padded) -> Decoded:
        """Runs the decoder over whole translations with teacher forcing: it reads the true previous tokens."""
        state = self.decoder.initial_state(encoded)
        return self.decoder(self.embed(_shifted(targets.ids)), state, lengths=targets.lengths)  # type: ignore[no-any-return]

    def decode_scheduled(self, encoded: Encoded, targets: Padded, probability: float) -> Decoded:
        """Runs the decoder with scheduled sampling (Bengio et al. 2015).

        With the given probability an input is the decoder's own prediction instead of the true token. A prediction
        depends on the step before it, so the steps run one by one.
        """
        state = self.decoder.initial_state(encoded)
        inputs = _shifted(targets.ids).to(self.bias.device)
        use_prediction = torch.rand(inputs.shape).to(inputs.device) < probability
        outputs, weights, ids = [], [], inputs[:, :1]
        for time in range(inputs.shape[1]):
            active = (targets.lengths > time).long()
            decoded = self.decoder(self.embed(ids), state, lengths=active)
            state = decoded.state
            outputs.append(decoded.outputs)
            weights.append(decoded.weights)
            if time + 1 < inputs.shape[1]:
                with torch.no_grad():
                    predicted = self.readout(decoded.outputs).argmax(-1)
                ids = torch.where(use_prediction[:, time + 1, None], predicted, inputs[:, time + 1, None])
        return Decoded(torch.cat(outputs, 1), torch.cat(weights, 1) if self.has_attention else None, state)

    def forward(self, batch: TranslationBatch) -> Tensor:
        """Computes logits (B, T, V) of every target token given the source and the true tokens before it."""
        return self.readout(self.decode(self.encoder(batch.sources), batch.targets).outputs)

    def token_losses(self, batch: TranslationBatch) -> Tensor:
        """Computes the cross-entropy of every target token, (B, T); 0 in the padding."""
        decoded = self.decode(self.encoder(batch.sources), batch.targets)
        return self._token_losses(decoded.outputs, batch.targets)

    def loss(self, batch: TranslationBatch, *, label_smoothing: float = 0.0, scheduled_sampling: float = 0.0) -> Loss:
        """Computes the summed cross-entropy of the target tokens.

        Args:
            batch: sentences and their translations.
            label_smoothing: weight of the uniform distribution in the targets (Szegedy et al. 2016).
            scheduled_sampling: probability that the decoder reads its own prediction.
        """
        encoded = self.encoder(batch.sources)
        if scheduled_sampling:
            decoded = self.decode_scheduled(encoded, batch.targets, scheduled_sampling)
        else:
            decoded = self.decode(encoded, batch.targets)
        total = self._token_losses(decoded.outputs, batch.targets, label_smoothing, total=True)
        return Loss(total, sum(batch.targets.lengths.tolist()))

    def _token_losses(self, outputs: Tensor, targets: Padded, smoothing: float = 0.0, *, total: bool = False) -> Tensor:
        rate = self.dropout if self.training else 0.0
        if self.output_projection is not None:
            outputs, rate = self.output_projection(dropout(outputs, rate)), 0.0
        return linear_cross_entropy(
            outputs,
            self.output_weight,
            self.bias,
            targets.ids,
            lengths=targets.lengths,
            label_smoothing=smoothing,
            dropout=Dropout(rate),
            reduction="sum" if total else "none",
        )

    @torch.no_grad()
    def attention_weights(self, batch: TranslationBatch) -> Tensor:
        """Computes the attention weights of each target token over the source tokens, (B, T, S)."""
        weights = self.decode(self.encoder(batch.sources), batch.targets).weights
        assert weights is not None, "a decoder without attention"
        return weights

    @torch.no_grad()
    def stepper(self, sources: Padded) -> TranslationStepper:
        """Encodes the sources and returns a `Stepper` over their translations."""
        initial = self.decoder.initial_state(self.encoder(sources))
        return TranslationStepper(self, initial, len(sources.lengths), TopK(self.output_weight, self.bias))


def _shifted(targets: Tensor) -> Tensor:
    """Shifts targets (B, T) to the decoder's inputs: <bos>, then the targets without the last."""
    return torch.cat([targets.new_full((len(targets), 1), BOS_ID), targets[:, :-1]], 1)


@dataclass(frozen=True)
class TranslationStepper:
    """A `Stepper` over the translations of N sources: row r of its initial state is source r."""

    model: Translator
    initial: DecoderState
    sources: int
    output: TopK

    def initial_state(self, rows: int) -> DecoderState:
        """Returns the state before the first target token. `rows` must be the number of sources."""
        assert rows == self.sources, f"{rows} rows of {self.sources} sources"
        return self.initial

    @torch.no_grad()
    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Reads ids (R,). Returns log-probabilities (R, V) of the next token and the new state."""
        outputs, state = self._decode(ids, state)
        return F.log_softmax(self.model.readout(outputs), -1), state

    @torch.no_grad()
    def top_k(self, ids: Tensor, state: DecoderState, k: int) -> tuple[Tensor, Tensor, DecoderState]:
        """Reads ids (R,). Returns the log-probabilities and ids of the top k next tokens, (R, k), and the new state."""
        outputs, state = self._decode(ids, state)
        return *self.output(self.model.project_outputs(outputs), min(k, self.output.size)), state

    def _decode(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        outputs, weights, state = self.model.decoder(self.model.embed(ids[:, None]), state)
        return outputs[:, 0], state._replace(weights=None if weights is None else weights[:, 0])

    def select(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """Returns the state of the given rows, which may repeat."""
        return state.select(rows)


def last_weights(state: DecoderState | tuple[DecoderState, ...]) -> Tensor:
    """The attention weights (R, S) of the last step, for `beam_search(record=...)`; their mean, of several models."""
    states = (state,) if isinstance(state, DecoderState) else state
    return MEAN.join([one.weights for one in states if one.weights is not None])


class TranslatorMixture(Mixture[Translator]):
    """Averages the probabilities of each next token, and the attention weights."""

    @property
    def has_attention(self) -> bool:
        """Whether the decoders have attention."""
        return self.models[0].has_attention

    @torch.no_grad()
    def token_losses(self, batch: TranslationBatch) -> Tensor:
        """Computes the cross-entropy of every target token, (B, T); 0 in the padding."""
        return -self.joined(lambda member: -member.token_losses(batch))

    @torch.no_grad()
    def attention_weights(self, batch: TranslationBatch) -> Tensor:
        """Computes the mean attention weights of each target token over the source tokens, (B, T, S)."""
        return MEAN.join([member.attention_weights(batch) for member in self.models])

    def stepper(self, sources: Padded) -> Mixture[TranslationStepper]:
        """Encodes the sources and returns a `Stepper` over their translations."""
        return Mixture([member.stepper(sources) for member in self.models])
