"""The decoders of a translator: four ways to let the source into the words of its translation.

    state          the source is the state the decoder begins with, and nothing else     (Sutskever et al. 2014)
    context        and the encoder's last state joins the input of every step            (Cho et al. 2014)
    attend_before  the state before a step is the query; what it finds joins the input   (Bahdanau et al. 2015)
    attend_after   the state after a step is the query; what it finds joins the output   (Luong et al. 2015)

Each reads inputs (B, T, E) from a state that `start` makes of an encoded source, and gives outputs (B, T, O) and the
state after them; a step is a run of one input. In the last way no step waits for another's attention, so a whole
target runs through the engine at once while training, and attention is two batched products; in the third each step
does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.engine import Embedded, dropout
from weft.nn import make_stack, map_state
from weft.nn.attention import Attention, AttentionMemory
from weft.tasks.translate.bridge import make_bridge
from weft.tasks.translate.config import TranslateModelConfig
from weft.tasks.translate.encoder import Encoded, Encoder


class Carried(NamedTuple):
    """What a decoder carries from step to step: the state of its layers, and the source, which stays as it is."""

    layers: tuple[State, ...]
    source: Tensor | AttentionMemory | tuple[()]

    def select(self, rows: Tensor) -> Carried:
        """Those rows, in that order; they may repeat."""
        source = self.source.select(rows) if isinstance(self.source, AttentionMemory) else _select(self.source, rows)
        return Carried(_select(self.layers, rows), source)


def _select(state: State, rows: Tensor) -> State:
    return map_state(lambda part: part.index_select(0, rows.to(part.device)), state)


class Decoded(NamedTuple):
    outputs: Tensor  # (B, T, O)
    weights: Tensor | None  # (B, T, S) of the attention, where there is one
    carried: Carried


class Decoder(nn.Module, ABC):
    """What all have in common: a stack of layers in one direction, and the bridge into it."""

    attends = False

    def __init__(self, encoder: Encoder, config: TranslateModelConfig, *, joined: int = 0) -> None:
        """`joined` numbers stand beside the embedded token in the input of the lowest layer."""
        super().__init__()
        self.stack = make_stack(
            config.cell,
            config.embedding_dim + joined,
            config.hidden_size,
            layers=config.num_layers,
            dropout=config.dropout,
            residual=config.residual,
        )
        self.bridge = make_bridge(encoder.stack, self.stack)
        self.output_size = config.hidden_size

    @abstractmethod
    def initial_state(self, encoded: Encoded) -> Carried:
        """The state before the first token."""

    @abstractmethod
    def forward(self, inputs: Embedded, carried: Carried, *, lengths: Tensor | None = None) -> Decoded:
        """What it makes of the inputs, from a state on."""


class StateDecoder(Decoder):
    """The source is known by the state alone."""

    def initial_state(self, encoded: Encoded) -> Carried:
        return Carried(self.bridge(encoded.state), ())

    def forward(self, inputs: Embedded, carried: Carried, *, lengths: Tensor | None = None) -> Decoded:
        outputs, layers = self.stack(inputs, carried.layers, lengths=lengths)
        return Decoded(outputs, None, Carried(layers, ()))


class ContextDecoder(Decoder):
    """The encoder's last state joins the input of every step: always the encoder's, never the decoder's own."""

    def __init__(self, encoder: Encoder, config: TranslateModelConfig) -> None:
        super().__init__(encoder, config, joined=encoder.output_size)

    def initial_state(self, encoded: Encoded) -> Carried:
        return Carried(self.bridge(encoded.state), encoded.context)

    def forward(self, inputs: Embedded, carried: Carried, *, lengths: Tensor | None = None) -> Decoded:
        context = carried.source
        assert isinstance(context, Tensor)
        outputs, layers = self.stack(inputs.join(context), carried.layers, lengths=lengths)
        return Decoded(outputs, None, Carried(layers, context))


class AttendBefore(Decoder):
    """The top layer's state before the step asks; the answer is a part of the step's input."""

    attends = True

    def __init__(self, encoder: Encoder, config: TranslateModelConfig) -> None:
        super().__init__(encoder, config, joined=encoder.output_size)
        self.attention = Attention(config.attention, config.hidden_size, encoder.output_size)

    def initial_state(self, encoded: Encoded) -> Carried:
        return Carried(self.bridge(encoded.state), self.attention.prepare(encoded.outputs, encoded.lengths))

    def forward(self, inputs: Embedded, carried: Carried, *, lengths: Tensor | None = None) -> Decoded:
        layers, source = carried
        outputs, weights = [], []
        for time, x in enumerate(inputs.tensor().unbind(1)):
            context, weight = self.attention(layers[-1].h[:, None], source)
            active = None if lengths is None else (lengths > time).long()
            output, layers = self.stack(torch.cat([x[:, None], context], -1), layers, lengths=active)
            outputs.append(output)
            weights.append(weight)
        return Decoded(torch.cat(outputs, 1), torch.cat(weights, 1), Carried(layers, source))


class AttendAfter(Decoder):
    """The top layer's output asks; what it says and what it is answered make the output: tanh(W [h; context])."""

    attends = True

    def __init__(self, encoder: Encoder, config: TranslateModelConfig) -> None:
        super().__init__(encoder, config)
        self.attention = Attention(config.attention, config.hidden_size, encoder.output_size)
        # As wide as an embedding, so that tied output weights fit whatever the number of hidden units.
        self.output_size = config.embedding_dim
        self.join = nn.Linear(config.hidden_size + encoder.output_size, self.output_size)
        self.dropout = config.dropout

    def initial_state(self, encoded: Encoded) -> Carried:
        return Carried(self.bridge(encoded.state), self.attention.prepare(encoded.outputs, encoded.lengths))

    def forward(self, inputs: Embedded, carried: Carried, *, lengths: Tensor | None = None) -> Decoded:
        outputs, layers = self.stack(inputs, carried.layers, lengths=lengths)
        context, weights = self.attention(outputs, carried.source)
        joined = dropout(torch.cat([outputs, context], -1), self.dropout, self.training)
        return Decoded(torch.tanh(self.join(joined)), weights, Carried(layers, carried.source))


DECODERS: dict[str, type[StateDecoder] | type[ContextDecoder] | type[AttendBefore] | type[AttendAfter]] = {
    "state": StateDecoder,
    "context": ContextDecoder,
    "attend_before": AttendBefore,
    "attend_after": AttendAfter,
}
