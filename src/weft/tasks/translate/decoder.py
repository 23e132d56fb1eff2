"""The decoders of the translation model: four ways to condition on the source.

    state          the source is the initial state, and nothing else                      Sutskever et al. 2014
    context        the encoder's final output is also an input of every step              Cho et al. 2014
    attend_before  the state before a step is the query; the context joins the input      Bahdanau et al. 2015
    attend_after   the state after a step is the query; the context joins the output      Luong et al. 2015

A decoder reads inputs (B, T, E) from a state that `initial_state` computes from the encoded source, and returns outputs
(B, T, O) and the final state. A single step is a run of length 1. With `attend_after` no step depends on the attention
of another, so in training a whole target runs through the engine at once and attention is two batched products; with
`attend_before` the steps run one by one.

A bridge leads from the encoder's final state to the decoder's initial state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.engine import Embedded, dropout, linear
from weft.nn import Stack, make_stack, map_state
from weft.nn.attention import Attention, AttentionMemory
from weft.nn.states import state_leaves
from weft.tasks.translate.config import TranslateModelConfig
from weft.tasks.translate.encoder import Encoded, Encoder


class IdentityBridge(nn.Module):
    """The final state is the initial state, because encoder and decoder have the same shape (Sutskever et al. 2014)."""

    def forward(self, states: tuple[State, ...]) -> tuple[State, ...]:
        return states


class LinearBridge(nn.Module):
    """Each decoder layer starts with tanh(W s + b), where the shapes of encoder and decoder differ.

    s is the complete final state of an encoder layer, both directions and memory cells included: of the layer at the
    same height, or of the top layer for decoder layers above it.
    """

    def __init__(self, encoder: Stack, decoder: Stack) -> None:
        super().__init__()
        sizes = [sum(part.shape[-1] for part in state_leaves(layer)) for layer in encoder.initial_state(1)]
        wanted = decoder.initial_state(1)
        self.kinds = [type(layer) for layer in wanted]
        self.sizes = [[part.shape[-1] for part in state_leaves(layer)] for layer in wanted]
        self.linears = nn.ModuleList(
            nn.Linear(sizes[min(height, len(sizes) - 1)], sum(parts)) for height, parts in enumerate(self.sizes)
        )

    def forward(self, states: tuple[State, ...]) -> tuple[State, ...]:
        initial = []
        for height, (kind, sizes, layer) in enumerate(zip(self.kinds, self.sizes, self.linears, strict=True)):
            below = torch.cat(state_leaves(states[min(height, len(states) - 1)]), -1)
            initial.append(kind(*torch.split(torch.tanh(layer(below)), sizes, -1)))
        return tuple(initial)


def make_bridge(encoder: Stack, decoder: Stack) -> IdentityBridge | LinearBridge:
    """Builds the identity if the shapes of the states agree, else a linear bridge."""

    def shape(stack: Stack) -> list[object]:
        return [(type(layer), [part.shape for part in state_leaves(layer)]) for layer in stack.initial_state(1)]

    return IdentityBridge() if shape(encoder) == shape(decoder) else LinearBridge(encoder, decoder)


class DecoderState(NamedTuple):
    """The state of a decoder: the states of its layers, and the source, which does not change."""

    layers: tuple[State, ...]
    source: Tensor | AttentionMemory | tuple[()]  # context vector (B, M), attention memory, or nothing
    weights: Tensor | None = None  # (B, S) attention of the step that led to it, in a search

    def select(self, rows: Tensor) -> DecoderState:
        """Returns the state of the given rows, in that order; rows may repeat."""
        source = self.source.select(rows) if isinstance(self.source, AttentionMemory) else _select(self.source, rows)
        return DecoderState(_select(self.layers, rows), source)


def _select(state: State, rows: Tensor) -> State:
    return map_state(lambda part: part.index_select(0, rows.to(part.device)), state)


class Decoded(NamedTuple):
    """The result of a decoder's run."""

    outputs: Tensor  # (B, T, O)
    weights: Tensor | None  # (B, T, S) attention weights, or None without attention
    state: DecoderState


class Decoder(nn.Module, ABC):
    """Base class: a causal stack of layers, and the bridge from the encoder's final state.

    `joined` features join the embedded token in the input of the lowest layer.
    """

    has_attention = False

    def __init__(self, encoder: Encoder, config: TranslateModelConfig, *, joined: int = 0) -> None:
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
    def initial_state(self, encoded: Encoded) -> DecoderState:
        """Computes the state before the first target token."""

    @abstractmethod
    def forward(self, inputs: Embedded, state: DecoderState, *, lengths: Tensor | None = None) -> Decoded:
        """Runs over inputs (B, T, E) from a state; `lengths` (B,) are those of the targets."""


class StateDecoder(Decoder):
    """The source is the initial state, and nothing else."""

    def initial_state(self, encoded: Encoded) -> DecoderState:
        return DecoderState(self.bridge(encoded.state), ())

    def forward(self, inputs: Embedded, state: DecoderState, *, lengths: Tensor | None = None) -> Decoded:
        outputs, layers = self.stack(inputs, state.layers, lengths=lengths)
        return Decoded(outputs, None, DecoderState(layers, ()))


class ContextDecoder(Decoder):
    """The encoder's final output joins the input of every step."""

    def __init__(self, encoder: Encoder, config: TranslateModelConfig) -> None:
        super().__init__(encoder, config, joined=encoder.output_size)

    def initial_state(self, encoded: Encoded) -> DecoderState:
        return DecoderState(self.bridge(encoded.state), encoded.context)

    def forward(self, inputs: Embedded, state: DecoderState, *, lengths: Tensor | None = None) -> Decoded:
        context = state.source
        assert isinstance(context, Tensor)
        outputs, layers = self.stack(inputs.join(context), state.layers, lengths=lengths)
        return Decoded(outputs, None, DecoderState(layers, context))


class AttentionDecoder(Decoder):
    """A decoder with attention over the outputs of the encoder."""

    has_attention = True

    def __init__(self, encoder: Encoder, config: TranslateModelConfig, *, joined: int = 0) -> None:
        super().__init__(encoder, config, joined=joined)
        self.attention = Attention(config.attention, config.hidden_size, encoder.output_size)

    def initial_state(self, encoded: Encoded) -> DecoderState:
        return DecoderState(self.bridge(encoded.state), self.attention.prepare(encoded.outputs, encoded.lengths))


class AttendBeforeDecoder(AttentionDecoder):
    """The query is the top layer's state before the step; the context joins the step's input."""

    def __init__(self, encoder: Encoder, config: TranslateModelConfig) -> None:
        super().__init__(encoder, config, joined=encoder.output_size)

    def forward(self, inputs: Embedded, state: DecoderState, *, lengths: Tensor | None = None) -> Decoded:
        layers, source = state.layers, state.source
        outputs, weights = [], []
        for time, x in enumerate(inputs.tensor().unbind(1)):
            context, weight = self.attention(layers[-1].h[:, None], source)
            active = None if lengths is None else (lengths > time).long()
            output, layers = self.stack(torch.cat([x[:, None], context], -1), layers, lengths=active)
            outputs.append(output)
            weights.append(weight)
        return Decoded(torch.cat(outputs, 1), torch.cat(weights, 1), DecoderState(layers, source))


class AttendAfterDecoder(AttentionDecoder):
    """The query is the top layer's output h; the output is tanh(W [h; context])."""

    def __init__(self, encoder: Encoder, config: TranslateModelConfig) -> None:
        super().__init__(encoder, config)
        # The embedding dimension, so that tied output weights fit any hidden size.
        self.output_size = config.embedding_dim
        self.join = nn.Linear(config.hidden_size + encoder.output_size, self.output_size)
        self.dropout = config.dropout

    def forward(self, inputs: Embedded, state: DecoderState, *, lengths: Tensor | None = None) -> Decoded:
        outputs, layers = self.stack(inputs, state.layers, lengths=lengths)
        context, weights = self.attention(outputs, state.source)
        joined = dropout(torch.cat([outputs, context], -1), self.dropout, self.training)
        output = torch.tanh(linear(joined, self.join.weight, self.join.bias))
        return Decoded(output, weights, DecoderState(layers, state.source))


DECODERS: dict[
    str, type[StateDecoder] | type[ContextDecoder] | type[AttendBeforeDecoder] | type[AttendAfterDecoder]
] = {
    "state": StateDecoder,
    "context": ContextDecoder,
    "attend_before": AttendBeforeDecoder,
    "attend_after": AttendAfterDecoder,
}
