"""A translator: an encoder reads a sentence, a decoder writes its translation, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.buckets import Padded
from weft.config import TranslateModelConfig
from weft.engine import Dropout, Embedded, TopK, dropout, linear_cross_entropy
from weft.errors import WeftError
from weft.models.base import Loss
from weft.models.decoder import DECODERS, Carried, Decoded
from weft.models.encoder import Encoded, Encoder, make_embedding
from weft.recurrent import make_stack
from weft.text.vocabulary import BOS, RESERVED

BEGIN = RESERVED.index(BOS)  # what the decoder reads first


class Sentences(NamedTuple):
    """One batch: sentences, and their translations with <eos> at their ends."""

    sources: Padded
    targets: Padded


class Translator(nn.Module):
    """Source ids (B, S) -> encoder -> bridge -> decoder, which reads the translation so far -> logits (B, T, V)."""

    def __init__(self, source_size: int, target_size: int, config: TranslateModelConfig) -> None:
        super().__init__()
        sides = 2 if config.bidirectional else 1
        if config.bidirectional and not config.encoder_hidden and config.hidden % 2:
            raise WeftError(
                f"model.hidden={config.hidden} cannot be shared by the encoder's two directions",
                expected="an even number",
                hint="--set model.encoder_hidden=N, or --set model.bidirectional=false",
            )
        stack = make_stack(
            config.encoder_cell or config.cell,
            config.embedding,
            config.encoder_hidden or config.hidden // sides,
            layers=config.encoder_layers or config.layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
            residual=config.residual,
        )
        self.dropout = config.dropout
        self.encoder = Encoder(source_size, stack)
        self.embedding = make_embedding(target_size, config.embedding)
        self.decoder = DECODERS[config.decoder](self.encoder, config)
        given, wanted = self.decoder.output_size, config.embedding if config.tied else self.decoder.output_size
        # Tied output weights are as wide as an embedding, which a decoder's outputs need not be.
        self.narrow = nn.Linear(given, wanted, bias=False) if given != wanted else None
        self.weight = None if config.tied else nn.Parameter(torch.empty(target_size, wanted))
        self.bias = nn.Parameter(torch.zeros(target_size))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=wanted**-0.5)

    @property
    def attends(self) -> bool:
        return self.decoder.attends

    @property
    def output_weight(self) -> Tensor:
        return self.embedding.weight if self.weight is None else self.weight

    def embed(self, ids: Tensor) -> Embedded:
        return Embedded.of(ids, self.embedding.weight, self.dropout, self.training)

    def readout(self, outputs: Tensor) -> Tensor:
        """What the decoder gives (..., O) to logits (..., V)."""
        return F.linear(self.narrowed(dropout(outputs, self.dropout, self.training)), self.output_weight, self.bias)

    def narrowed(self, outputs: Tensor) -> Tensor:
        """What the decoder gives (..., O), as wide as the output weights."""
        return outputs if self.narrow is None else self.narrow(outputs)

    def decode(self, encoded: Encoded, targets: Padded) -> Decoded:
        """The decoder over whole translations, each token read after those before it (teacher forcing)."""
        carried = self.decoder.start(encoded)
        return self.decoder(self.embed(_shifted(targets.ids)), carried, lengths=targets.lengths)  # type: ignore[no-any-return]

    def decode_sampled(self, encoded: Encoded, targets: Padded, share: float) -> Decoded:
        """The same, but with that chance an input is the decoder's own guess, not the truth.

        That is scheduled sampling (Bengio et al. 2015). A guess waits for the step before it, so steps run one by one.
        """
        carried = self.decoder.start(encoded)
        inputs = _shifted(targets.ids).to(self.bias.device)
        guessed = torch.rand(inputs.shape).to(inputs.device) < share
        outputs, weights, ids = [], [], inputs[:, :1]
        for time in range(inputs.shape[1]):
            active = (targets.lengths > time).long()
            decoded = self.decoder(self.embed(ids), carried, lengths=active)
            carried = decoded.carried
            outputs.append(decoded.outputs)
            weights.append(decoded.weights)
            if time + 1 < inputs.shape[1]:
                with torch.no_grad():
                    guess = self.readout(decoded.outputs).argmax(-1)
                ids = torch.where(guessed[:, time + 1, None], guess, inputs[:, time + 1, None])
        return Decoded(torch.cat(outputs, 1), torch.cat(weights, 1) if self.attends else None, carried)

    def forward(self, batch: Sentences) -> Tensor:
        """Logits (B, T, V) of every token of the translations, given the source and the tokens before it."""
        return self.readout(self.decode(self.encoder(batch.sources), batch.targets).outputs)

    def nats(self, batch: Sentences) -> Tensor:
        """The nats of every token of the translations, (B, T); 0 past their ends."""
        decoded = self.decode(self.encoder(batch.sources), batch.targets)
        return self._nats(decoded.outputs, batch.targets)

    def loss(self, batch: Sentences, *, smoothing: float = 0.0, sampling: float = 0.0) -> Loss:
        """The nats of the translations' tokens, against targets smoothed that much."""
        encoded = self.encoder(batch.sources)
        decoded = (
            self.decode_sampled(encoded, batch.targets, sampling) if sampling else self.decode(encoded, batch.targets)
        )
        total = self._nats(decoded.outputs, batch.targets, smoothing, total=True)
        return Loss(total, sum(batch.targets.lengths.tolist()))

    def _nats(self, outputs: Tensor, targets: Padded, smoothing: float = 0.0, *, total: bool = False) -> Tensor:
        share = self.dropout if self.training else 0.0
        if self.narrow is not None:
            outputs, share = self.narrow(dropout(outputs, share)), 0.0
        return linear_cross_entropy(
            outputs,
            self.output_weight,
            self.bias,
            targets.ids,
            lengths=targets.lengths,
            label_smoothing=smoothing,
            dropout=Dropout(share),
            reduction="sum" if total else "none",
        )

    @torch.no_grad()
    def align(self, batch: Sentences) -> Tensor:
        """Which source tokens each token of the translations attends to, (B, T, S). All of it in one run."""
        weights = self.decode(self.encoder(batch.sources), batch.targets).weights
        assert weights is not None, "a decoder without attention"
        return weights

    @torch.no_grad()
    def stepper(self, sources: Padded) -> TranslationStepper:
        """What decoding steps through: the translations of these sources."""
        begun = self.decoder.start(self.encoder(sources))
        return TranslationStepper(self, begun, len(sources.lengths), TopK(self.output_weight, self.bias))


def _shifted(targets: Tensor) -> Tensor:
    """What the decoder reads before each target: the one before it, <bos> before the first."""
    return torch.cat([targets.new_full((len(targets), 1), BEGIN), targets[:, :-1]], 1)


@dataclass(frozen=True)
class TranslationStepper:
    """A Stepper over the translations of given sources: row r of its start is the r-th source, before any token."""

    model: Translator
    begun: Carried
    sources: int
    output: TopK

    def start(self, rows: int) -> Carried:
        assert rows == self.sources, f"{rows} rows of {self.sources} sources"
        return self.begun

    @torch.no_grad()
    def step(self, ids: Tensor, state: Carried) -> tuple[Tensor, Carried]:
        """Ids (R,) to log-probabilities (R, V) of the next token."""
        decoded = self.model.decoder(self.model.embed(ids[:, None]), state)
        return F.log_softmax(self.model.readout(decoded.outputs[:, 0]), -1), decoded.carried

    @torch.no_grad()
    def likeliest(self, ids: Tensor, state: Carried, many: int) -> tuple[Tensor, Tensor, Carried]:
        """The same of the likeliest alone, as many as there are: their log-probabilities and ids, (R, many)."""
        decoded = self.model.decoder(self.model.embed(ids[:, None]), state)
        outputs = self.model.narrowed(decoded.outputs[:, 0])
        return *self.output(outputs, min(many, self.output.size)), decoded.carried

    def select(self, state: Carried, rows: Tensor) -> Carried:
        return state.pick(rows)
